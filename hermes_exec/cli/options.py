"""Options and arguments that several commands have.

typer reads annotations at run time, so modules with commands leave `annotations` of `__future__` out.
"""

from typing import Annotated

import typer


def _targets(incomplete: str) -> list[str]:
    from hermes_exec.config.load import load_settings
    from hermes_exec.config.registry import known_types
    from hermes_exec.errors import HermesError

    try:
        known = [*load_settings().profiles, *known_types()]
    except HermesError:
        known = ["local"]
    return sorted({name for name in known if name.startswith(incomplete)})


On = Annotated[
    str | None,
    typer.Option(
        "--on",
        "-o",
        metavar="TARGET",
        help="The place: a profile, or a one-line target.",
        autocompletion=_targets,
    ),
]
Improve = Annotated[
    bool,
    typer.Option("--improve/--no-improve", help="Whether a skill that fails in use is improved and run once more."),
]


def _skills(incomplete: str) -> list[str]:
    from hermes_exec.errors import HermesError
    from hermes_exec_agent.skills.registry.home import this_home
    from hermes_exec_agent.skills.registry.registry import Registry

    try:
        known = Registry().skills() if this_home().log.exists() else ()
    except HermesError:
        known = ()
    return sorted(name for name in known if name.startswith(incomplete))


Skill = Annotated[str, typer.Argument(metavar="NAME", help="A skill's name.", autocompletion=_skills)]
Skills = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME]...", help="Skills; all if left out.", autocompletion=_skills),
]
Number = Annotated[
    int | None, typer.Option("--version", "-V", metavar="N", help="A version; the current one if left out.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Place = Annotated[
    str | None,
    typer.Argument(metavar="[TARGET]", help="The place: a profile, or a one-line target.", autocompletion=_targets),
]
Cwd = Annotated[str | None, typer.Option("--cwd", "-C", metavar="DIR", help="The folder to start in, in the place.")]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", "-e", metavar="NAME=VALUE", help="A variable; NAME alone takes its value from here."),
]
