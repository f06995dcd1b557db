"""The words of ``hermes-exec``. Only the modules of the commands that are asked for are loaded."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hermes_exec.cli.console import BROKEN_PIPE, INTERRUPTED, USAGE, report, say
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.open_target import tell_warnings
from hermes_exec.cli.strict_typer import StrictTyper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME = "hermes-exec"
_COMPLETING = "_HERMES_EXEC_COMPLETE"

COMMANDS = {
    "run": ("hermes_exec.cli.run", "Run a command in a place."),
    "shell": ("hermes_exec.cli.shell", "Work in a place, in its shell."),
    "cp": ("hermes_exec.cli.cp", "Copy files and folders to a place, from it, or between two."),
    "sync": ("hermes_exec.cli.cp", "Make a folder like another one, moving only what changed."),
    "jobs": ("hermes_exec.cli.jobs", "List the jobs of a place."),
    "logs": ("hermes_exec.cli.jobs", "Show what a job wrote."),
    "attach": ("hermes_exec.cli.jobs", "Tie this terminal to a job."),
    "kill": ("hermes_exec.cli.jobs", "End a job and all that it started."),
    "forward": ("hermes_exec.cli.forward", "Pass a port on to a place, or from it to here."),
    "backends": ("hermes_exec.cli.doctor", "List the kinds of place, and which can be used here."),
    "doctor": ("hermes_exec.cli.doctor", "Look for what is amiss, and tell what mends it."),
    "profile": ("hermes_exec.cli.profile", "The places that you gave a name."),
    "policy": ("hermes_exec_policies.cli", "What confines untrusted programs, and what holds it here."),
    "chat": ("hermes_exec_agent.cli.chat", "Talk to the agent, which works in a place."),
    "conversations": ("hermes_exec_agent.cli.conversations", "What was said to the agent, and what it did."),
    "serve": ("hermes_exec_agent.cli.serve", "Offer the agent to programs, over HTTP."),
    "skill": ("hermes_exec_agent.cli.skill", "What was taught: proven skills, and what becomes of them."),
    "log": ("hermes_exec.cli.log", "Show the commands of the past."),
    "bench": ("hermes_exec.cli.bench", "Measure how fast a place is."),
    "demo": ("hermes_exec.cli.demo", "Do a real job in every place that can be used here."),
}
"""Each command, its module, and its line in the list of commands."""


def start(words: Sequence[str]) -> int:
    """Run one command line and return the exit code; whatever goes wrong is told in a line."""
    app = build(words)
    try:
        outcome: object = app(args=list(words) or ["--help"], prog_name=NAME, standalone_mode=False)
        code = outcome if isinstance(outcome, int) else 0
        sys.stdout.flush()
    except SystemExit as error:  # typer's own way to tell that nobody reads our output
        code = BROKEN_PIPE if isinstance(error.__context__, BrokenPipeError) else int(error.code or 0)
    except typer.TyperException as error:
        code = _usage(error)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    except Exception as error:  # noqa: BLE001  the last one who can tell it in a line
        code = report(error)
    return code


def build(words: Sequence[str]) -> typer.Typer:
    """The application, with the real commands among ``words`` and only the names of the others."""
    app = StrictTyper(
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        help="One terminal for every place: this machine, containers, hosts over SSH, clouds.",
    )
    app.callback()(_before)
    wanted = set(COMMANDS) if _COMPLETING in os.environ else set(words)
    for name, (module, summary) in COMMANDS.items():
        add = import_module(module).add if name in wanted else _add_name
        add(app, name, summary)
    return app


def _add_name(app: typer.Typer, name: str, summary: str) -> None:
    app.command(name, help=summary)(_not_loaded)


def _not_loaded() -> None:
    raise AssertionError("a command whose name is not among the words")


def _version(wanted: bool) -> None:  # noqa: FBT001  the shape of typer's callbacks
    if wanted:
        from importlib.metadata import version

        print(f"{NAME} {version('hermes-exec')}")
        raise typer.Exit


def _variable(name: str) -> Callable[[str | None], str | None]:
    """An option that is the same as a variable, and stronger."""

    def take(value: str | None) -> str | None:
        if value is not None:
            os.environ[f"HERMES_EXEC_{name}"] = value
        return value

    return take


def _before(
    *,
    version: Annotated[  # noqa: ARG001  its callback does it
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
    config: Annotated[  # noqa: ARG001  its callback does it
        str | None,
        typer.Option(metavar="FILE", help="Read this instead of your own file.", callback=_variable("CONFIG")),
    ] = None,
    log_format: Annotated[  # noqa: ARG001  its callback does it
        Literal["text", "json"] | None,
        typer.Option(help="How -v tells it.", callback=_variable("LOG_FORMAT")),
    ] = None,
    audit: Annotated[bool | None, typer.Option("--audit/--no-audit", help="Whether commands are recorded.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")] = False,
    verbose: Annotated[
        int,
        typer.Option("--verbose", "-v", count=True, show_default=False, help="Tell what happens; twice: everything."),
    ] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    flags.quiet, flags.verbose, flags.debug = quiet, verbose, debug
    if audit is not None:
        os.environ["HERMES_EXEC_AUDIT"] = "1" if audit else "0"
    if verbose:
        os.environ["HERMES_EXEC_LOG"] = "info" if verbose == 1 else "debug"
    tell_warnings()


def _usage(error: typer.TyperException) -> int:
    asked = f"{getattr(getattr(error, 'ctx', None), 'command_path', NAME)} --help"
    said = " ".join(error.format_message().split()).replace(": Value error, ", ": ")  # of pydantic, not of a person
    say(f"{said if said.endswith(('.', '?', '!')) else said + '.'} Try: {asked}")
    return USAGE
