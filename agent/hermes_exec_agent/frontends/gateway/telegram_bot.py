"""The settings of a bot of Telegram, and the library's client for it, which writes no token into the log."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field
from telegram import Bot
from telegram.request import HTTPXRequest

from hermes_exec.config.values import Source

if TYPE_CHECKING:
    from hermes_exec.config.secrets import Secret

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
