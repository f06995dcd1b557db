"""Telegram's Bot API, by long polling or by webhook, with python-telegram-bot.

The server keeps an update until a request with a later offset confirms it, or until its own request to the webhook is
answered with 200, so each is recorded before that. The API takes no key that would make sending idempotent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import os
import secrets
from typing import TYPE_CHECKING, Any

from telegram import Update
from telegram.error import TelegramError

from hermes_exec.config.check import validate_table
from hermes_exec.config.secrets import resolve_secrets
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.adapter import AdapterTraits, PlatformDown
from hermes_exec_agent.frontends.gateway.rendering import to_html
from hermes_exec_agent.frontends.gateway.telegram_bot import TelegramSettings, create_bot, describe, translate_error
from hermes_exec_agent.frontends.gateway.telegram_messages import MessageParser, to_markup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

    from aiohttp import web
    from telegram import CallbackQuery, Message

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Choice, Incoming

_log = logging.getLogger("hermes_exec.gateway")
_NOT_MODIFIED = "message is not modified"
_HEADER = "X-Telegram-Bot-Api-Secret-Token"
_LARGEST_FILE = 50 << 20
"""What the Bot API takes from a bot."""
_END_S = 5.0
_UPDATES = ["message", "edited_message", "callback_query"]


def create(name: str, table: Mapping[str, object]) -> TelegramAdapter:
    """Return the adapter of an account.

    Raises:
        ConfigError: the table is wrong, or its token is missing or has another form.
    """
    settings = validate_table(TelegramSettings, table, f"[gateway.platforms.{name}]")
    if settings.webhook and settings.webhook_url is None:
        raise ConfigError(
            f"[gateway.platforms.{name}]: webhook = true needs the address that Telegram reaches",
            remedy='webhook_url = "https://host.example.org"',
        )
    token = resolve_secrets({"token": settings.token}, os.environ)["token"]
    if not token.reveal().partition(":")[0].isdigit():
        raise ConfigError(f"[gateway.platforms.{name}] token: it has another form than NUMBER:SECRET")
    return TelegramAdapter(settings, token)


class TelegramAdapter:
    """One bot."""

    platform = "telegram"

    def __init__(self, settings: TelegramSettings, token: Secret) -> None:
        self.account = token.reveal().partition(":")[0]  # the bot's id, which is not a secret
        self.traits = AdapterTraits(
            4096, "utf16", settings.interval_s, has_buttons=True, largest_file=_LARGEST_FILE, can_edit=True
        )
        self.path = f"/telegram/{self.account}" if settings.webhook else ""
        self._url = f"{(settings.webhook_url or '').rstrip('/')}{self.path}"
        self._secret = secrets.token_urlsafe(32)
        """What Telegram presents with each request; another one after each start."""
        self._poll_s = settings.poll_s
        self._bot, file_url = create_bot(settings, token)
        self._parser = MessageParser(self._bot, file_url)
        self._accept: Callable[[Incoming], Awaitable[None]] | None = None
        self._turn = asyncio.Lock()

    async def receive(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Ask for updates again and again, or let Telegram send them."""
        try:
            await self._bot.initialize()
            if self.path:
                await self._wait_for_requests(accept, ready)
            else:
                await self._bot.delete_webhook()  # the API refuses to be asked while there is one
                ready()
                await self._poll(accept)
        except TelegramError as error:
            raise PlatformDown(describe(error)) from error

    async def _poll(self, accept: Callable[[Incoming], Awaitable[None]]) -> None:
        """Ask for updates; each request confirms the updates that were recorded."""
        offset: int | None = None
        while True:
            updates = await self._bot.get_updates(offset, timeout=int(self._poll_s), allowed_updates=_UPDATES)
            for update in updates:
                await self._pass_on(update, accept)
                offset = update.update_id + 1

    async def _wait_for_requests(
        self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]
    ) -> None:
        """Let Telegram send updates, one at a time, until cancelled. Later ones wait at the server."""
        self._accept = accept
        try:
            await self._bot.set_webhook(
                self._url, secret_token=self._secret, allowed_updates=_UPDATES, max_connections=1
            )
            ready()
            await asyncio.get_running_loop().create_future()
        finally:
            self._accept = None
            with contextlib.suppress(TelegramError, TimeoutError):  # the next start sets it again
                async with asyncio.timeout(_END_S):
                    await self._bot.delete_webhook()

    async def handle(self, request: web.Request) -> web.Response:
        """Take an update, if the request presents the secret."""
        from aiohttp import web

        presented = request.headers.get(_HEADER, "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(presented, self._secret.encode()):
            return web.Response(status=403)
        if self._accept is None:
            return web.Response(status=503)
        body = await request.read()
        try:
            update = Update.de_json(json.loads(body), self._bot)
        except (ValueError, TypeError, KeyError, AttributeError):
            return web.Response(status=400)
        async with self._turn:  # in the order of the requests
            if self._accept is None:
                return web.Response(status=503)
            await self._pass_on(update, self._accept)
        return web.Response()

    async def _pass_on(self, update: Update, accept: Callable[[Incoming], Awaitable[None]]) -> None:
        try:
            incoming = self._parser.parse(update)
        except (ValueError, LookupError, TypeError, AttributeError) as error:  # it would come again and again
            _log.warning("an update of Telegram was not understood: %s", type(error).__name__)
            return
        if incoming is not None:
            await accept(incoming)
        if update.callback_query is not None:
            await self._acknowledge(update.callback_query)

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = (), *, key: str) -> str:  # noqa: ARG002  the API takes no key
        """Send a message."""
        return await self._send(
            self._bot.send_message(
                chat, text, parse_mode="HTML", reply_markup=to_markup(choices), disable_web_page_preview=True
            )
        )

    async def send_file(self, chat: str, name: str, content: bytes, *, key: str) -> str:  # noqa: ARG002  see `send`
        """Send a document."""
        return await self._send(self._bot.send_document(chat, content, filename=name))

    async def _send(self, sending: Coroutine[Any, Any, Message]) -> str:
        """Return the id of the message that was sent."""
        try:
            return str((await sending).message_id)
        except TelegramError as error:
            raise translate_error(error) from error

    async def edit(self, chat: str, receipt: str, text: str, choices: Sequence[Choice] = ()) -> None:
        """Change a message."""
        try:
            await self._bot.edit_message_text(
                text, chat, int(receipt), parse_mode="HTML", reply_markup=to_markup(choices),
                disable_web_page_preview=True,
            )  # fmt: skip
        except TelegramError as error:
            if _NOT_MODIFIED not in str(error).lower():
                raise translate_error(error) from error

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
            _log.info("a button was not acknowledged: %s", describe(error))
