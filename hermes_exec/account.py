"""What is told of each command: its start and its end, to the audit and, with ``-vv``, to the log."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec.carrier import Running
    from hermes_exec.execute import Context, Options, Words
    from hermes_exec.result import Result

_log = logging.getLogger("hermes_exec.command")


def shown(command: Words | Sequence[Words]) -> str:
    """A command as people read it."""
    if isinstance(command, str | bytes):
        return os.fsdecode(command)
    return shlex.join(os.fsdecode(word) for word in command)


class Account:
    """Tells of one command that was sent; ``ended`` or ``failed`` is called once, when that is over."""

    __slots__ = ("_context", "_id", "_since")

    def __init__(self, context: Context, id: str) -> None:
        self._context = context
        self._id = id
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
            self._context.audit.ended(self._id, *facts)

    def _tell(self, what: str, **facts: object) -> None:
        _log.debug("command %s %s", self._id, what, extra={"target": self._context.target, **facts})


def begin(
    context: Context, call: Running, command: Words | Sequence[Words], options: Options, session: str
) -> Account | None:
    """Tell of the start, right after the request was sent, so that nobody waits for the disk.

    None where nobody wants to know.
    """
    tells = _log.isEnabledFor(logging.DEBUG)
    if context.audit is None and not tells:
        return None
    account = Account(context, str(call.number))
    text = shown(command)
    cwd = "" if options.cwd is None else os.fspath(options.cwd)
    if context.audit is not None:
        kind = "shell" if isinstance(command, str | bytes) else "argv"
        context.audit.started(str(call.number), context.target, session, kind, text, cwd)
    if tells:
        facts = {"target": context.target, "session": session, "cwd": cwd, "command": text}
        _log.debug("command %s sent", call.number, extra={key: value for key, value in facts.items() if value})
    return account
