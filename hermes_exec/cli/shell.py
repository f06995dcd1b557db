"""``shell``, and whatever else has a terminal of its own in a place."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from hermes_exec.cli import interruptible
from hermes_exec.cli.arguments import seconds, variables
from hermes_exec.cli.console import note
from hermes_exec.cli.fast_args import Spoken
from hermes_exec.cli.open_target import opened, planned
from hermes_exec.cli.options import Cwd, Env, On
from hermes_exec.cli.run_command import perform
from hermes_exec.terminal.pty import Pty
from hermes_exec.terminal.terminal import Terminal

_LEAVE_S = 5.0
_LOGIN_SHELL = """
shell=$SHELL user=$(id -u)
[ -n "$shell" ] || while IFS=: read -r _ _ id _ _ _ named; do
    [ "$id" != "$user" ] || { shell=$named; break; }
done </etc/passwd
case ${shell##*/} in "" | nologin | false) shell=/bin/sh ;; esac
exec "$shell" -l
"""
"""What a PTY's program is when none is named."""
_FOR_EVER_S = 10 * 365 * 86400.0


def add(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, short_help=summary)(shell)


def shell(
    on: On = None,
    cwd: Cwd = None,
    env: Env = None,
    *,
    keep: Annotated[bool, typer.Option("--keep", "-k", help="Let it go on when it is left, for: attach NAME.")] = False,
    name: Annotated[str, typer.Option(metavar="NAME", help="What to attach by; a new word if left out.")] = "",
    keep_for: Annotated[
        str, typer.Option(metavar="TIME", help="How long it goes on with nobody attached; 0 is for ever.")
    ] = "1d",
) -> int:
    """Work in a place, in its login shell on a terminal of its own; its exit code becomes ours.

    Every key goes there, Ctrl-C too. After Enter, ~. hangs up and ends all that runs in it, ~? lists
    what else there is. With --keep, ~d leaves it to itself, as do a closed window and a lost connection.

    Where standard input is a pipe or a file, the shell runs that to its end, without a terminal.
    """
    lives_s = (seconds(keep_for) or _FOR_EVER_S) if keep or name else 0.0
    if not lives_s and not os.isatty(0):
        return perform(Spoken(["sh", "-c", _LOGIN_SHELL], on=on, cwd=cwd, env=env or [], shell=False, stdin=True))

    async def work() -> int:
        async with opened(planned(on)) as terminal:
            return await lend_terminal(terminal, None, cwd=cwd, env=variables(env or []), name=name, keep_s=lives_s)

    return interruptible.run(work())


async def lend_terminal(
    terminal: Terminal,
    command: Sequence[str] | None,
    *,
    cwd: str | None,
    env: Mapping[str, str],
    name: str = "",
    keep_s: float = 0.0,
) -> int:
    """Run a program with our terminal as its own until it ends or is left, and give its exit code."""
    from hermes_exec.terminal.tty import size_of

    rows, cols = size_of(1)
    shown_on = {"TERM": os.environ.get("TERM", "dumb")}
    pty = await terminal.pty(command, rows=rows, cols=cols, cwd=cwd, env={**shown_on, **env}, name=name, keep_s=keep_s)
    return await look_at(pty, kept=keep_s > 0)


async def look_at(pty: Pty, *, kept: bool) -> int:
    """Lend our terminal to a program that runs; one that is not kept ends when it is left."""
    from hermes_exec.terminal.tty import interact

    async with contextlib.nullcontext() if kept else pty:
        try:
            result = await interact(pty)
        except asyncio.CancelledError:
            if kept:
                await _leave(pty)
            raise
    if result is None:
        goes_on = f"left; {pty.name} goes on. Try: hermes-exec attach {pty.name}, or kill"
        note(goes_on if kept else "left, which ended it. Try: hermes-exec shell --keep")
        return 0
    if result.note:
        note(result.note)
    return result.shell_code


async def _leave(pty: Pty) -> None:
    """Look away; a place that is out of reach keeps the program all the same."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LEAVE_S):
            await pty.detach()
    note(f"left; {pty.name} goes on. Try: hermes-exec attach {pty.name}, or kill")
