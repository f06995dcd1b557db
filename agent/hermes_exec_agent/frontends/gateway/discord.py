"""Discord, by its gateway and REST API with discord.py.

The library keeps the connection and resumes its session. Nothing acknowledges a message, so what was written in a chat
since the newest message that the gateway has seen is read from its history first. Each piece has an enforced nonce: the
API takes a second piece with the same one as the first.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import re
from typing import TYPE_CHECKING, Any

import aiohttp
import discord
from pydantic import BaseModel, Field

from hermes_exec.config.check import validate_table
from hermes_exec.config.secrets import resolve_secrets
from hermes_exec.config.values import Source
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.adapter import AdapterTraits, Incoming, NotSent, PlatformDown, Rejected
from hermes_exec_agent.frontends.gateway.discord_client import Client
from hermes_exec_agent.frontends.gateway.discord_messages import (
    create_buttons,
    describe,
    parse_message,
    read_account,
    translate_error,
)
from hermes_exec_agent.frontends.gateway.marks import to_discord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Choice

_log = logging.getLogger("hermes_exec.gateway")
_MOST_MISSED = 1000  # messages of a chat that are read from its history
_KEY_S = 120.0  # the API remembers nonces for "a few minutes"
_ERRORS = (discord.DiscordException, aiohttp.ClientError, OSError, LookupError, TypeError, ValueError)
"""What the library raises; the last three for an answer in another form. `TimeoutError` is an `OSError`."""


class DiscordSettings(BaseModel, frozen=True, extra="forbid", strict=True):
    """One bot."""

    token: Source
    """The source of the bot's token."""
    interval_s: float = Field(default=1.0, ge=0)
    """The shortest time between two messages in one chat."""
    limit_s: float = Field(default=60.0, gt=0)
    """Seconds to wait for an answer to a message, with the waits of rate limits of up to 30 seconds."""
    resume_s: float = Field(default=60.0, gt=0)
    """Seconds in which a lost connection is resumed; later the platform counts as down."""


def create(name: str, table: Mapping[str, object]) -> DiscordAdapter:
    """Return the adapter of an account.

    Raises:
        ConfigError: the table is wrong, or its token is missing or has another form.
    """
    settings = validate_table(DiscordSettings, table, f"[gateway.platforms.{name}]")
    token = resolve_secrets({"token": settings.token}, os.environ)["token"]
    if not read_account(token):
        raise ConfigError(f"[gateway.platforms.{name}] token: it has another form than ID.TIME.SECRET")
    return DiscordAdapter(settings, token)


class DiscordAdapter:
    """One bot."""

    platform = "discord"

    def __init__(self, settings: DiscordSettings, token: Secret) -> None:
        self.account = read_account(token)
        self.traits = AdapterTraits(
            2000, "utf16", settings.interval_s, has_buttons=True, largest_file=10 << 20, can_edit=True,
            repeat="key", repeat_s=_KEY_S,
        )  # fmt: skip
        self._settings = settings
        self._token = token
        self._running: tuple[Client, asyncio.Task[None]] | None = None
        self._can_send = False
        self._find: Callable[[], Awaitable[Mapping[str, str]]] | None = None

    def set_positions(self, find: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        """Take the function that returns the newest message of each chat that was seen."""
        self._find = find

    async def receive(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Log in, and pass on what the library reports, until the connection ends for good."""
        await self.close()
        client = Client(accept)
        connecting = asyncio.create_task(client.start(self._token.reveal()))
        connecting.add_done_callback(lambda _: client.reports.put_nowait("ended"))
        self._running = client, connecting
        try:
            await self._pass_on(client, connecting, ready)
        except asyncio.CancelledError:
            client.is_ending = True
            raise  # the last answers are sent with this client, until it is closed
        except BaseException as error:
            await self.close()
            if isinstance(error, _ERRORS):
                raise PlatformDown(describe(error)) from error
            raise

    async def _pass_on(self, client: Client, connecting: asyncio.Task[None], ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        deadline: float | None = loop.time() + self._settings.resume_s
        while True:
            async with asyncio.timeout_at(deadline):
                report = await client.reports.get()
            if isinstance(report, Incoming):
                await client.accept(report)
            elif isinstance(report, BaseException):
                raise report
            elif report == "ended":
                await connecting
                raise PlatformDown("Discord ended the connection")
            elif report == "lost":
                deadline = deadline or loop.time() + self._settings.resume_s
            else:  # "connected" is a new session, and "resumed" the one before
                deadline, self._can_send = None, True
                if report == "connected":
                    await self._read_missed(client)
                ready()

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = (), *, key: str) -> str:
        """Send a message."""
        return await self._post(chat, key, content=text, view=create_buttons(choices))

    async def send_file(self, chat: str, name: str, content: bytes, *, key: str) -> str:
        """Send a file."""
        file = discord.File(io.BytesIO(content), re.sub(r"[^\w .()+-]", "_", name)[-100:] or "file")
        return await self._post(chat, key, file=file)

    async def edit(self, chat: str, receipt: str, text: str, choices: Sequence[Choice] = ()) -> None:
        """Change a message."""
        channel = self._find_channel(chat)
        try:
            async with asyncio.timeout(self._settings.limit_s):
                await channel.get_partial_message(int(receipt)).edit(content=text, view=create_buttons(choices))
        except _ERRORS as error:
            raise translate_error(error) from error

    def render(self, text: str) -> str:
        """Return Markdown in the form of Discord."""
        return to_discord(text)

    async def close(self) -> None:
        """Close the connections."""
        running, self._running, self._can_send = self._running, None, False
        if running is not None:
            client, connecting = running
            await client.close()
            await asyncio.wait({connecting}, timeout=2.0)  # by itself, so that the library ends its threads
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)

    def _find_channel(self, chat: str) -> discord.PartialMessageable:
        if self._running is None or not self._can_send or self._running[0].is_closed():
            raise NotSent("not connected", retry_s=2.0)
        if not (chat.isascii() and chat.isdigit()):
            raise Rejected("the name of this chat cannot be one of Discord")
        return self._running[0].get_partial_messageable(int(chat))

    async def _post(self, chat: str, key: str, **parts: Any) -> str:
        channel = self._find_channel(chat)
        text, view = str(parts.get("content", "")), parts.pop("view", None)
        parts |= {"view": view} if view is not None else {}
        try:
            async with asyncio.timeout(self._settings.limit_s):  # the library enforces each nonce
                sent = await channel.send(nonce=key, suppress_embeds=True, **parts)
                if sent.content.strip() != text.strip():  # it is the piece of an earlier try, which had another text
                    await channel.get_partial_message(sent.id).edit(content=text, view=view)
        except _ERRORS as error:
            raise translate_error(error) from error
        return str(sent.id)

    async def _read_missed(self, client: Client) -> None:
        """Pass on what was written in known chats since the newest message that was seen."""
        positions: Mapping[str, str] = {} if self._find is None else await self._find()
        for chat, last in positions.items():
            try:
                channel = await client.fetch_channel(int(chat))
                if not isinstance(channel, discord.abc.Messageable):
                    continue
                after = discord.Object(int(last))
                async for message in channel.history(limit=_MOST_MISSED, after=after, oldest_first=True):
                    if (incoming := parse_message(message, client.account)) is not None:
                        await client.accept(incoming)
            except (discord.Forbidden, discord.NotFound, discord.InvalidData):
                _log.info("discord: chat %s can no longer be read", chat)
