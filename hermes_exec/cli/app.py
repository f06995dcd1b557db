"""The application of ``hermes-exec``, built with typer. It loads the module of the requested command only."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.main import get_group

from hermes_exec.cli.commands import (
    Command,
    CommandTable,
    find_command,
    list_commands,
    list_panels,
    load_command,
)
from hermes_exec.cli.console import BROKEN_PIPE, INTERRUPTED, USAGE, note, print_error, report, say
from hermes_exec.cli.global_flags import flags, set_verbosity, skip_global_options
from hermes_exec.cli.open_target import show_warnings
from hermes_exec.cli.strict_typer import StrictCommand, StrictTyper
from hermes_exec.errors import NOTHING_RAN, HermesError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typer.core import TyperGroup

NAME = "hermes-exec"


def start(argv: Sequence[str]) -> int:
    """Run one command line and return the exit code; an error is reported in one line."""
    try:
        root: Any = build(argv)
        outcome: object = root(args=list(argv) or ["--help"], prog_name=NAME, standalone_mode=False)
        code = outcome if isinstance(outcome, int) else 0
        sys.stdout.flush()
    except SystemExit as error:  # typer raises it when the reader of our output has gone
        code = BROKEN_PIPE if isinstance(error.__context__, BrokenPipeError) else int(error.code or 0)
    except typer.TyperException as error:
        code = _report_usage(error, argv)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except BrokenPipeError:
        code = BROKEN_PIPE
    except Exception as error:  # noqa: BLE001  the outermost handler reports every error
        code = report(error)
    return code


def build(argv: Sequence[str], *, completing: bool = False) -> TyperGroup:
    """Return the group of the requested command alone, or where there is none, of the names of all commands.

    A command whose name is anywhere in ``argv`` is loaded. While a shell completes a line, commands that cannot be
    loaded are listed without their options, and problems are not printed.
    """
    app = StrictTyper(
        add_completion=False,  # the scripts of hermes_exec.cli.completion complete more than typer's
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        help="Run commands, jobs and skills in targets: this machine, containers, SSH hosts, clouds.",
    )
    app.callback()(_apply_global_options)
    requested = _find_requested(argv)
    table = list_commands() if requested is None else CommandTable({requested.name: requested})
    for problem in table.problems if not completing else ():
        note(str(problem))
    for command in table.commands.values():
        if command.name in argv:
            _load(app, command, may_fail=completing)
    group = get_group(app)
    panels = list_panels(table.commands.values())
    names: dict[str, Any] = {
        command.name: StrictCommand(command.name, short_help=command.summary, rich_help_panel=command.panel)
        for command in sorted(table.commands.values(), key=lambda command: panels.index(command.panel))
    }  # without typer, which would inspect the signature of a function for each
    group.commands = {**names, **group.commands}
    return group


def _find_requested(argv: Sequence[str]) -> Command | None:
    at = skip_global_options(argv)
    return find_command(argv[at]) if at < len(argv) else None


def _load(app: typer.Typer, command: Command, *, may_fail: bool) -> None:
    try:
        load_command(command)(app, command.name, command.summary)
    except HermesError:
        if not may_fail:
            raise


def _print_version(wanted: bool) -> None:  # noqa: FBT001  the signature of typer's callbacks
    if wanted:
        from hermes_exec import __version__

        print(f"{NAME} {__version__}")
        raise typer.Exit


def _set_variable(name: str) -> Callable[[str | None], str | None]:
    """Return a callback that sets a variable to the option's value, which takes precedence over it."""

    def set_variable(value: str | None) -> str | None:
        if value is not None:
            os.environ[f"HERMES_EXEC_{name}"] = value
        return value

    return set_variable


def _apply_global_options(
    *,
    version: Annotated[  # noqa: ARG001  its callback applies it
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    config: Annotated[  # noqa: ARG001  its callback applies it
        str | None,
        typer.Option(metavar="FILE", help="Read FILE instead of your hermes.toml.", callback=_set_variable("CONFIG")),
    ] = None,
    log_format: Annotated[  # noqa: ARG001  its callback applies it
        Literal["text", "json"] | None,
        typer.Option(help="Set the format of the log that -v prints.", callback=_set_variable("LOG_FORMAT")),
    ] = None,
    audit: Annotated[
        bool | None, typer.Option("--audit/--no-audit", help="Record commands in the audit log, or do not.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, show_default=False, help="Print the log; repeat it for every detail."
        ),
    ] = 0,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    flags.quiet, flags.debug = quiet, debug
    if audit is not None:
        os.environ["HERMES_EXEC_AUDIT"] = "1" if audit else "0"
    set_verbosity(verbose)
    show_warnings()


def _report_usage(error: typer.TyperException, argv: Sequence[str]) -> int:
    requested = _find_requested(argv)
    own = f"{NAME} {requested.name}" if requested else NAME  # a missing value of an option names no command
    command = getattr(getattr(error, "ctx", None), "command_path", own)
    text = " ".join(error.format_message().split()).replace(": Value error, ", ": ")  # added by pydantic
    if flags.json:
        print_error("UsageError", text, USAGE, remedy=f"{command} --help", state=NOTHING_RAN)
    else:
        say(f"{text if text.endswith(('.', '?', '!')) else text + '.'} Try: {command} --help")
    return USAGE
