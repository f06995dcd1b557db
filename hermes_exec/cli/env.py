"""``env``: show the variables that commands of a target get."""

from dataclasses import replace

import typer

from hermes_exec.backend import Backend, Inherited, SupportsInheritance
from hermes_exec.cli.console import note
from hermes_exec.cli.open_target import plan_target
from hermes_exec.cli.options import Json, Target
from hermes_exec.cli.output import show_json, show_table


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(env)


def env(target: Target = None, *, json: Json = False) -> int:
    """Show the names of the variables that commands get from the profile and from here.

    On this machine, run and shell inherit every variable, and agents those that find programs, unless the key inherit
    of the profile says otherwise. Variables that look like secrets are withheld; name them in the key secrets. Other
    targets inherit nothing. Values are not shown.
    """
    plan = plan_target(target)
    person, agent = (_select(plan.backend, personal=personal) for personal in (True, False))
    withheld = sorted({*person.withheld, *agent.withheld})
    if json:
        shown = {"profile": sorted(plan.env), "run": sorted(person.variables), "agent": sorted(agent.variables)}
        show_json({"target": plan.target} | shown | {"withheld": withheld})
        return 0
    rows = [(name, "profile", "profile") for name in sorted(plan.env)]
    others = {*person.variables, *agent.variables, *withheld} - {*plan.env}
    rows += [(name, _describe(name, person), _describe(name, agent)) for name in sorted(others)]
    if not rows:
        note(f"{plan.target}: its commands get no variables from here")
        return 0
    show_table(("VARIABLE", "RUN AND SHELL", "AGENTS"), rows)
    return 0


def _select(backend: Backend, *, personal: bool) -> Inherited:
    if not isinstance(backend, SupportsInheritance):
        return Inherited({}, ())
    backend.options = replace(backend.options, personal=personal)
    return backend.select_inherited()


def _describe(name: str, inherited: Inherited) -> str:
    return "inherited" if name in inherited.variables else "withheld" if name in inherited.withheld else ""
