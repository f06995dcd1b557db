"""``help``: show the help of a command."""

from typing import Annotated, Any

import typer

from hermes_exec.cli.completion.values import complete_commands


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(show_help)


def show_help(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND]",
            help="A command, such as: run, or: profile list.",
            autocompletion=complete_commands,
        ),
    ] = None,
) -> int:
    """Show the help of a command, or the list of commands."""
    from hermes_exec.cli.app import NAME, build

    rest = command or []
    context: Any = build(rest).make_context(NAME, [], resilient_parsing=True)
    context.resilient_parsing = False  # so that a wrong name is refused
    while rest and hasattr(context.command, "resolve_command"):
        name, found, rest = context.command.resolve_command(context, rest)
        context = found.make_context(name, [], parent=context, resilient_parsing=True)
        context.resilient_parsing = False
    print(context.get_help())
    return 0
