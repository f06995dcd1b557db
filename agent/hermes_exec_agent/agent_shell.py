"""The mark of an agent's shell, and the refusal of what is for a person alone."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from hermes_exec.config.plan import Plan

AGENT = "HERMES_EXEC_AGENT"
"""The variable that has the model's name in shells of an agent: skills registered from there are the agent's."""
_OWN_TERMINAL = "the same command in a terminal that a person opened"


def mark_plan(plan: Plan, model: str) -> None:
    """Mark the processes that serve an agent on this machine.

    They adopt every process below them whose parent ends, so that a command cannot leave them by ``exec``, by a new
    session or by a double fork.
    """
    plan.backend.options = replace(plan.backend.options, marks={AGENT: model or "unknown"})


def refuse_agent(command: str = "this") -> None:
    """Check that this is not the shell of an agent: changes are recorded as the person's, and judgements are evidence.

    Raises:
        UsageError: it is.
    """
    if AGENT in os.environ:
        what = f"{command} is for a person, and this is the shell of an agent ({AGENT} is set)"
        raise UsageError(what, remedy=_OWN_TERMINAL)


def refuse_agents_descendant() -> None:
    """Check that no process above this one is an agent's, also if its variable was removed here.

    Raises:
        UsageError: one is, or a process of this user hides its environment.
    """
    refuse_agent()
    pid = os.getppid()
    while pid > 1:
        try:
            folder = Path(f"/proc/{pid}")
            parent = int((folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
            marked = any(each.startswith(f"{AGENT}=".encode()) for each in _read_environ(folder).split(b"\0"))
        except FileNotFoundError:  # no /proc, or the process has ended just now
            return
        except OSError as error:
            raise UsageError(
                f"this command is for a person; whether an agent started process {pid}, its ancestor, is unknown",
                remedy=_OWN_TERMINAL,
            ) from error
        if marked:
            what = f"this is for a person, and process {pid} above it is the shell of an agent"
            raise UsageError(what, remedy=_OWN_TERMINAL)
        pid = parent


def require_terminal(command: str) -> None:
    """Check that a person can be asked.

    Raises:
        UsageError: standard input or standard error is not a terminal.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{command} asks a person, and standard input is not a terminal", remedy="the same command at a terminal"
        )


def _read_environ(folder: Path) -> bytes:
    """Return the environment of a process; empty if it is another user's, such as a login's."""
    try:
        return (folder / "environ").read_bytes()
    except PermissionError:
        if (folder / "stat").stat().st_uid == os.getuid():
            raise
        return b""
