"""``shell``, and whatever else has a terminal of its own in a place."""

import os
from collections.abc import Mapping, Sequence

import typer

from hermes_exec.cli import loop
from hermes_exec.cli.options import Cwd, Env, On
from hermes_exec.cli.places import opened, planned
from hermes_exec.cli.say import note
from hermes_exec.cli.words import variables
from hermes_exec.terminal import Terminal


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(shell)


def shell(on: On = None, cwd: Cwd = None, env: Env = None) -> int:
    """Work in a place, in its login shell on a terminal of its own; its exit code becomes ours.

    Every key goes there, Ctrl-C too. After Enter, ~. hangs up and ends all that runs in it, ~? lists
    what else there is.
    """

    async def work() -> int:
        async with opened(planned(on)) as terminal:
            return await lend_terminal(terminal, None, cwd=cwd, env=variables(env or []))

    return loop.run(work())


async def lend_terminal(
    terminal: Terminal, command: Sequence[str] | None, *, cwd: str | None, env: Mapping[str, str]
) -> int:
    """Run a program with our terminal as its own until it ends, and give its exit code."""
    from hermes_exec.tty import interact, size_of

    rows, cols = size_of(1)
    shown_on = {"TERM": os.environ.get("TERM", "dumb")}
    pty = await terminal.pty(command, rows=rows, cols=cols, cwd=cwd, env={**shown_on, **env})
    async with pty:
        result = await interact(pty)
    if result is None:
        note("left, which ended it: only a job goes on by itself. Try: hermes-exec run --detach")
        return 0
    if result.note:
        note(result.note)
    return result.shell_code
