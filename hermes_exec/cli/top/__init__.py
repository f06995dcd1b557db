"""``top``: targets, terminals, jobs, conversations and money on one screen, which follows them."""

from typing import Annotated

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.options import Json, On
from hermes_exec.errors import UsageError


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(top)


def top(
    on: On = None,
    *,
    every: Annotated[str, typer.Option(metavar="TIME", help="Read everything again after this time.")] = "1s",
    json: Json = False,
) -> int:
    """Show targets in use, terminals, jobs, conversations and costs, and follow them.

    Keys: 1 to 5 and TAB select a table, arrows a row; l shows the log of a job or the text of a conversation, a
    attaches this terminal, k ends a job or a shell after a question, q quits. Without colours if NO_COLOR is set.
    --json prints everything once.
    """
    from hermes_exec.cli.arguments import parse_duration

    every_s = parse_duration(every)
    if every_s < _LEAST_S:
        raise UsageError(f"--every {every} is too often", remedy=f"{_LEAST_S:g}s or more")
    if json:
        from hermes_exec.cli.top.snapshot import print_snapshot

        return interruptible.run(print_snapshot(on))
    _check_terminal()
    from hermes_exec.extras import require

    require("top", "top")
    from hermes_exec.cli.top.screen import run_top

    return interruptible.run(run_top(on, every_s))


_LEAST_S = 0.2


def _check_terminal() -> None:
    import os

    if not (os.isatty(0) and os.isatty(1)) or os.environ.get("TERM", "dumb") == "dumb":
        raise UsageError("top needs a terminal that can move its cursor", remedy="hermes-exec top --json")
