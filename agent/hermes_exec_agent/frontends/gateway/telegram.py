"""Telegram's Bot API, by long polling with python-telegram-bot.

The server keeps an update until a request with a later offset confirms it, so each is recorded before the next
request. The API takes no key that would make sending idempotent.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import httpx
from pydantic import BaseModel, Field
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup
from telegram.constants import ChatType, MessageEntityType
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

from hermes_exec.config.check import validate_table
from hermes_exec.config.secrets import resolve_secrets
from hermes_exec.config.values import Source
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.adapter import (
    NOT_OWN,
    AdapterTraits,
    Incoming,
    NotSent,
    PlatformDown,
    Rejected,
    SendUnknown,
)
from hermes_exec_agent.frontends.gateway.rendering import to_html

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from telegram import CallbackQuery, Message, Update

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Choice

for _name in ("httpx", "httpcore", "telegram"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # their lines have the address of each request, with the token
os.environ.setdefault("PTB_TIMEDELTA", "true")  # else the library warns at each wait that its type will change
_RETRY_S = 5.0
_UPDATES = ["message", "edited_message", "callback_query"]


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


def create(name: str, table: Mapping[str, object]) -> TelegramAdapter:
    """Return the adapter of an account.

    Raises:
        ConfigError: the table is wrong, or its token is missing or has another form.
    """
    settings = validate_table(TelegramSettings, table, f"[gateway.platforms.{name}]")
    token = resolve_secrets({"token": settings.token}, os.environ)["token"]
    if not token.reveal().partition(":")[0].isdigit():
        raise ConfigError(f"[gateway.platforms.{name}] token: it has another form than NUMBER:SECRET")
    return TelegramAdapter(settings, token)


class TelegramAdapter:
    """One bot."""

    platform = "telegram"

    def __init__(self, settings: TelegramSettings, token: Secret) -> None:
        self.account = token.reveal().partition(":")[0]  # the bot's id, which is no secret
        self.traits = AdapterTraits(4096, "utf16", settings.interval_s, has_buttons=True)
        self._poll_s = settings.poll_s
        limit = settings.limit_s
        sending = HTTPXRequest(32, read_timeout=limit, write_timeout=limit, connect_timeout=limit, pool_timeout=limit)
        polling = HTTPXRequest(1, read_timeout=limit, connect_timeout=limit)
        self._bot = Bot(token.reveal(), settings.base_url, request=sending, get_updates_request=polling)

    async def receive(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Ask for updates again and again; each request confirms the updates that were recorded."""
        offset: int | None = None
        try:
            await self._bot.initialize()
            ready()
            while True:
                updates = await self._bot.get_updates(offset, timeout=int(self._poll_s), allowed_updates=_UPDATES)
                for update in updates:
                    if (incoming := self._parse(update)) is not None:
                        await accept(incoming)
                    if update.callback_query is not None:
                        await self._acknowledge(update.callback_query)
                    offset = update.update_id + 1
        except TelegramError as error:
            raise PlatformDown(_describe(error)) from error

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = (), *, key: str) -> str:  # noqa: ARG002  the API takes no key
        """Send a message."""
        buttons = [InlineKeyboardButton(each.label, callback_data=each.text) for each in choices]
        markup = InlineKeyboardMarkup([buttons]) if buttons else None
        try:
            sent = await self._bot.send_message(
                chat, text, parse_mode="HTML", reply_markup=markup, disable_web_page_preview=True
            )
        except RetryAfter as error:
            raise NotSent("too many messages", retry_s=_read_wait(error)) from error
        except (BadRequest, Forbidden, ChatMigrated) as error:
            raise Rejected(str(error)) from error
        except (InvalidToken, Conflict) as error:
            raise NotSent(_describe(error), retry_s=60.0) from error
        except TelegramError as error:
            if isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
                raise NotSent(_describe(error), retry_s=_RETRY_S) from error
            raise SendUnknown(_describe(error)) from error
        return str(sent.message_id)

    def render(self, text: str) -> str:
        """Return Markdown as the HTML that the API takes."""
        return to_html(text)

    async def close(self) -> None:
        """Close the connections."""
        await self._bot.shutdown()

    async def _acknowledge(self, query: CallbackQuery) -> None:
        """Let the button show that it was pressed; that it does not is no reason to stop."""
        try:
            await self._bot.answer_callback_query(query.id)
        except TelegramError as error:
            logging.getLogger("hermes_exec.gateway").info("a button was not acknowledged: %s", _describe(error))

    def _parse(self, update: Update) -> Incoming | None:
        if (query := update.callback_query) is not None:
            chat = query.message.chat if query.message is not None else None
            if chat is None:
                return None
            is_group = chat.type != ChatType.PRIVATE
            sender, text = str(query.from_user.id), query.data or ""
            return Incoming(str(chat.id), f"button-{query.id}", sender, text, is_group=is_group, is_mention=True)
        message = update.message or update.edited_message
        if message is None or message.from_user is None or message.sender_chat is not None:
            return None
        text, is_mention = self._read_text(message)
        return Incoming(
            str(message.chat.id),
            str(message.message_id),
            str(message.from_user.id),
            text,
            is_group=message.chat.type != ChatType.PRIVATE,
            is_mention=is_mention,
            is_edit=update.edited_message is not None,
        )

    def _read_text(self, message: Message) -> tuple[str, bool]:
        """Return the text without the mention of the bot at its beginning, and whether it is addressed to the bot.

        A text of another author has no commands and no mentions, and begins with a line that says so.
        """
        text, name = message.text or message.caption or "", f"@{self._bot.username}"
        if message.forward_origin is not None or message.via_bot is not None:
            return (f"{NOT_OWN}\n{text}" if text.strip() else ""), False
        kinds: list[str | None] = [MessageEntityType.MENTION, MessageEntityType.BOT_COMMAND]
        found = {**message.parse_entities(kinds), **message.parse_caption_entities(kinds)}.values()
        reply = message.reply_to_message
        replies = reply is not None and reply.from_user is not None and reply.from_user.id == self._bot.id
        is_mention = replies or any(each.lower().endswith(name.lower()) for each in found)
        word, _, rest = text.partition(" ")
        if word.lower() == name.lower():
            return rest.strip(), True
        if word.startswith("/") and word.lower().endswith(name.lower()):
            return f"{word[: -len(name)]} {rest}".strip(), True
        return text, is_mention


def _read_wait(error: RetryAfter) -> float:
    after = error.retry_after
    return float(after) if isinstance(after, int) else after.total_seconds()


def _describe(error: TelegramError) -> str:
    """Return an error without the address of the request, which has the token."""
    if isinstance(error, NetworkError) and error.__cause__ is not None:
        return f"the Bot API cannot be reached ({type(error.__cause__).__name__})"
    return f"{type(error).__name__}: the Bot API refused a request"
