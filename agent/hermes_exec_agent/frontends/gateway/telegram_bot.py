"""A bot of Telegram: its settings, the library's client, and its errors, without the token in any text or log."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import httpx
from pydantic import BaseModel, Field
from telegram import Bot
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
from telegram.request import HTTPXRequest

from hermes_exec.config.values import Source
from hermes_exec_agent.frontends.gateway.adapter import NotSent, Rejected, SendUnknown

if TYPE_CHECKING:
    from hermes_exec.config.secrets import Secret

_RETRY_S = 5.0
for _name in ("httpx", "httpcore", "telegram"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # their lines have the address of each request, with the token
os.environ.setdefault("PTB_TIMEDELTA", "true")  # else the library warns at each wait that its type will change


class TelegramSettings(BaseModel, frozen=True, extra="forbid", strict=True):
    """One bot."""

    token: Source
    """The source of the bot's token."""
    base_url: str = Field(default="https://api.telegram.org/bot", pattern="https?://.+")
    poll_s: float = Field(default=50.0, ge=0, le=100)
    """Seconds that a request for updates waits at the server."""
    interval_s: float = Field(default=1.0, ge=0)
    """The shortest time between two messages in one chat."""
    limit_s: float = Field(default=20.0, gt=0)
    """Seconds to wait for an answer to a message."""
    webhook: bool = False
    """Whether Telegram sends updates to the gateway's listener, instead of being asked for them."""
    webhook_url: str | None = Field(default=None, pattern="https?://.+")
    """The address of the listener as Telegram reaches it, without a path of its own."""


class _QuietBot(Bot):
    """The library's representation of a bot has its token."""

    def __repr__(self) -> str:
        return "Bot"


def create_bot(settings: TelegramSettings, token: Secret) -> tuple[Bot, str]:
    """Return the client, and the address that files are read from, without the token."""
    limit = settings.limit_s
    sending = HTTPXRequest(32, read_timeout=limit, write_timeout=limit, connect_timeout=limit, pool_timeout=limit)
    polling = HTTPXRequest(1, read_timeout=limit, connect_timeout=limit)
    base, _, end = settings.base_url.rpartition("/")
    file_url = f"{base}/file/{end}"
    bot = _QuietBot(token.reveal(), settings.base_url, file_url, request=sending, get_updates_request=polling)
    return bot, file_url


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
