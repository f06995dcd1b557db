"""What is told of each command, job and PTY: its start and its end, to the audit and, with ``-vv``, to the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hermes_exec.carrier import Running
    from hermes_exec.encoding import Words
    from hermes_exec.execute import Context, Options
    from hermes_exec.result import Result

_log = logging.getLogger("hermes_exec.command")


def shown(command: Words | Sequence[Words]) -> str:
    """A command as people read it."""
    if isinstance(command, str | bytes):
        return os.fsdecode(command)
    return shlex.join(os.fsdecode(word) for word in command)


class Account:
    """Tells of one command that was sent; ``ended`` or ``failed`` is called once, when that is over."""

    __slots__ = ("_context", "_since", "id")

    def __init__(self, context: Context, id: str) -> None:
        self._context = context
        self.id = id
        self._since = time.monotonic()

    def ended(self, result: Result, out: int, err: int) -> None:
        """It ran; ``out`` and ``err`` are the bytes that came of its streams."""
        why = "cancelled" if result.cancelled else ""
        self._end(result.exit_code, result.signal, result.timed_out, result.duration_s, out, err, why)
        if _log.isEnabledFor(logging.DEBUG):
            self._tell("ended", how=result.reason, duration_s=round(result.duration_s, 6), stdout=out, stderr=err)

    def failed(self, error: BaseException, out: int, err: int) -> None:
        """It was refused, or cancelled, or nobody knows how it ended."""
        why = "cancelled" if isinstance(error, asyncio.CancelledError) else str(error) or type(error).__name__
        self._end(None, None, False, time.monotonic() - self._since, out, err, why)
        if _log.isEnabledFor(logging.DEBUG):
            self._tell("did not end as it should", why=why)

    def _end(self, *facts: Any) -> None:
        if self._context.audit is not None:
            self._context.audit.ended(self.id, *facts)

    def _tell(self, what: str, **facts: object) -> None:
        _log.debug("command %s %s", self.id, what, extra={"target": self._context.target, **facts})


def begin(
    context: Context, call: Running, command: Words | Sequence[Words], options: Options, session: str
) -> Account | None:
    """Tell of the start, right after the request was sent, so that nobody waits for the disk.

    None where nobody wants to know.
    """
    if context.audit is None and not _log.isEnabledFor(logging.DEBUG):
        return None
    kind = "shell" if isinstance(command, str | bytes) else "argv"
    return _start(context, str(call.number), kind, shown(command), options.cwd, session)


def _start(
    context: Context, id: str, kind: str, text: str, cwd: str | os.PathLike[str] | None, session: str
) -> Account:
    folder = "" if cwd is None else os.fspath(cwd)
    if context.audit is not None:
        context.audit.started(id, context.target, session, kind, text, folder)
    if _log.isEnabledFor(logging.DEBUG):
        facts = {"target": context.target, "session": session, "cwd": folder, "command": text}
        _log.debug("command %s sent", id, extra={key: value for key, value in facts.items() if value})
    return Account(context, id)


@contextlib.contextmanager
def starting(
    context: Context, id: str, kind: str, text: str, cwd: str | os.PathLike[str] | None, session: str = ""
) -> Generator[Account]:
    """Tell of the start of a job or a PTY, and of its failure if the block fails; its end is for others to tell."""
    account = _start(context, id, kind, text, cwd, session)
    try:
        yield account
    except BaseException as error:
        account.failed(error, 0, 0)
        raise
