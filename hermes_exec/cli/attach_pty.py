"""Attach this terminal to a program on a PTY in a target."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING

from hermes_exec.cli.console import note
from hermes_exec.cli.output import show_json
from hermes_exec.cli.run_command import to_json
from hermes_exec.terminal.tty import interact, read_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.terminal.pty import Pty
    from hermes_exec.terminal.terminal import Terminal

_DETACH_S = 5.0


async def run_attached(
    terminal: Terminal,
    command: Sequence[str] | None,
    *,
    cwd: str | None,
    env: Mapping[str, str],
    name: str = "",
    keep_s: float = 0.0,
    json: bool = False,
) -> int:
    """Run a program on a PTY, attached to this terminal until it ends or is detached; return its exit code."""
    rows, cols = read_size(1)
    shown_on = {"TERM": os.environ.get("TERM", "dumb")}
    pty = await terminal.pty(command, rows=rows, cols=cols, cwd=cwd, env={**shown_on, **env}, name=name, keep_s=keep_s)
    return await attach(pty, kept=keep_s > 0, json=json)


async def attach(pty: Pty, *, kept: bool, json: bool = False) -> int:
    """Attach this terminal to a running program; a program that is not ``kept`` ends when it is detached.

    With ``json`` the result is printed at the end: null if the program was detached.
    """
    async with contextlib.nullcontext() if kept else pty:
        try:
            result = await interact(pty)
        except asyncio.CancelledError:
            if kept:
                await _detach(pty)
            raise
    if json:
        show_json({"job": pty.name, "detached": result is None, "result": None if result is None else to_json(result)})
    if result is None:
        print(file=sys.stderr)  # the cursor is behind the program's last line
        running = f"detached; {pty.name} keeps running. Try: hermes-exec attach {pty.name}, or kill"
        note(running if kept else "detached, which ended the program. Try: hermes-exec shell --keep")
        return 0
    if result.note:
        note(result.note)
    return result.shell_code


async def _detach(pty: Pty) -> None:
    """Detach; a target that cannot be reached keeps the program running too."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DETACH_S):
            await pty.detach()
    note(f"detached; {pty.name} keeps running. Try: hermes-exec attach {pty.name}, or kill")
