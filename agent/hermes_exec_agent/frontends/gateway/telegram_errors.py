"""What errors of Telegram's library say about a message, without the token that their texts may have."""

from __future__ import annotations

import httpx
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
)

from hermes_exec_agent.frontends.gateway.adapter import NotSent, Rejected, SendUnknown

_RETRY_S = 5.0


def translate_error(error: TelegramError) -> NotSent | Rejected | SendUnknown:
    """Return what is certain about a message after an error."""
    match error:
        case RetryAfter():
            return NotSent("too many messages", retry_s=_read_wait(error))
        case BadRequest() | Forbidden() | ChatMigrated():
            return Rejected(str(error))
        case InvalidToken() | Conflict():
            return NotSent(describe(error), retry_s=60.0)
        case _:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
                return NotSent(describe(error), retry_s=_RETRY_S)
            return SendUnknown(describe(error))


def _read_wait(error: RetryAfter) -> float:
    after = error.retry_after
    return float(after) if isinstance(after, int) else after.total_seconds()


def describe(error: TelegramError) -> str:
    """Return an error without the address of the request, which has the token."""
    if isinstance(error, NetworkError) and error.__cause__ is not None:
        return f"the Bot API cannot be reached ({type(error.__cause__).__name__})"
    return f"{type(error).__name__}: the Bot API refused a request"
