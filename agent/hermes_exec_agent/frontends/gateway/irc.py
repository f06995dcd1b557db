"""IRC, over TLS: one connection to a server, private messages and channels.

IRC acknowledges nothing, so each piece is followed by a PING: its PONG proves that the server read the piece. Messages
have no ids; the server delivers each line once, and none to an absent client.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import ssl
import time
from functools import partial
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from hermes_exec.config.check import validate_table
from hermes_exec.config.secrets import resolve_secrets
from hermes_exec.config.values import LocalPath, Names, Source
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.adapter import AdapterTraits, NotSent, PlatformDown, Rejected, SendUnknown
from hermes_exec_agent.frontends.gateway.irc_protocol import Line, parse_line, parse_message, register, remove_codes
from hermes_exec_agent.frontends.gateway.rendering import to_plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Choice, Incoming

_LIMIT_S = 30.0
_IDLE_S = 90.0
"""After this silence the connection is tested, and after as much more it counts as lost."""
_REFUSALS = frozenset({"401", "403", "404", "407", "411", "412", "442"})
"""Numeric replies to a message that was not delivered."""


class IrcSettings(BaseModel, frozen=True, extra="forbid", strict=True):
    """One account of an IRC network."""

    host: str
    port: int = Field(default=6697, ge=1, le=65535)
    tls: bool = True
    ca: LocalPath | None = None
    """The certificate of the authority that signs the server's; the system's authorities if left out."""
    nick: str = Field(pattern=r"[A-Za-z\[\]\\`_^{|}][\w\[\]\\`^{|}-]{0,15}")
    password: Source | None = None
    """The source of the server's password, or with ``sasl`` of the account's."""
    sasl: str = Field(default="", pattern=r"[^\s\x00]{0,60}")
    """The account to log in to by SASL PLAIN."""
    channels: Names = ()
    interval_s: float = Field(default=0.6, ge=0)
    """The shortest time between two lines in one chat."""


def create(name: str, table: Mapping[str, object]) -> IrcAdapter:
    """Return the adapter of an account.

    Raises:
        ConfigError: the table is wrong, or its password is missing.
    """
    settings = validate_table(IrcSettings, table, f"[gateway.platforms.{name}]")
    if settings.sasl and (settings.password is None or not settings.tls):
        raise ConfigError(f"[gateway.platforms.{name}] sasl: it needs a password, and TLS")
    sources = {} if settings.password is None else {"password": settings.password}
    return IrcAdapter(settings, resolve_secrets(sources, os.environ).get("password"))


class IrcAdapter:
    """One connection at a time."""

    platform = "irc"

    def __init__(self, settings: IrcSettings, password: Secret | None) -> None:
        self.account = f"{settings.nick.lower()}@{settings.host}:{settings.port}"
        # A server cuts lines after 512 bytes, and adds the mask of the sender when it passes them on.
        self.traits = AdapterTraits(360, "bytes", settings.interval_s, is_one_line=True)
        self._settings = settings
        self._password = password
        self._writer: asyncio.StreamWriter | None = None
        self._is_registered = False
        self._numbers = itertools.count(1)
        self._waiting: dict[str, tuple[str, asyncio.Future[str]]] = {}
        """The chat and the outcome of each piece, by the token of its PING."""

    async def receive(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Connect and register; then read lines until the connection ends."""
        settings, began = self._settings, time.time_ns()
        try:
            async with asyncio.timeout(_LIMIT_S):
                reader, self._writer = await asyncio.open_connection(
                    settings.host, settings.port, ssl=self._create_context(), limit=1 << 16
                )
            async with asyncio.timeout(_LIMIT_S):
                read = partial(self._read, reader)
                await register(settings.nick, settings.sasl, self._password, self._write, read)
            for number in itertools.count():
                line = await self._read(reader)
                if line.command == "001":
                    for channel in settings.channels:
                        await self._write(f"JOIN {channel}")
                    self._is_registered = True
                    ready()
                elif line.command in {"432", "433", "464", "465"}:
                    raise PlatformDown(f"{settings.host} refuses the registration: {remove_codes(line.text)}")
                elif line.command == "PRIVMSG":
                    if (incoming := parse_message(line, settings.nick, f"{began}-{number}")) is not None:
                        await accept(incoming)
                else:
                    await self._handle(line)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise PlatformDown(f"{settings.host}: {_describe(error)}") from error
        finally:
            self._drop()

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = (), *, key: str) -> str:  # noqa: ARG002  no buttons and no keys here
        """Send a line, and wait for the proof that the server read it."""
        if self._writer is None or not self._is_registered:
            raise NotSent("not connected", retry_s=2.0)
        if not chat or re.search(r"[\s,:\x00]", chat):
            raise Rejected("the name of this chat cannot be one of IRC")
        token = f"hx{next(self._numbers)}"
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[token] = chat.lower(), outcome
        line = text.replace("\r", " ").replace("\n", " ").replace("\0", "")
        try:
            async with asyncio.timeout(_LIMIT_S):
                await self._write(f"PRIVMSG {chat} :{line}\r\nPING :{token}")
                refusal = await outcome
        except (OSError, TimeoutError) as error:
            raise SendUnknown(f"{self._settings.host}: {_describe(error)}") from error
        finally:
            self._waiting.pop(token, None)
        if refusal:
            raise Rejected(refusal)
        return token

    def render(self, text: str) -> str:
        """Return Markdown as lines with the codes of IRC."""
        return to_plain(text)

    async def close(self) -> None:
        """Quit."""
        with contextlib.suppress(OSError):
            if self._writer is not None:
                await self._write("QUIT :the gateway ends")
        self._drop()

    def _create_context(self) -> ssl.SSLContext | None:
        if not self._settings.tls:
            return None
        return ssl.create_default_context(cafile=None if self._settings.ca is None else str(self._settings.ca))

    async def _write(self, line: str) -> None:
        if self._writer is None:
            raise ConnectionError("the connection has ended")
        self._writer.write(f"{line}\r\n".encode())
        await self._writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> Line:
        """Return the next line; test the connection after a silence."""
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_S):
                    return parse_line(await reader.readuntil(b"\n"))
            await self._write("PING :idle")
        raise ConnectionError("the server is silent")

    async def _handle(self, line: Line) -> None:
        if line.command == "PING":
            await self._write(f"PONG :{line.text or line.middle}")
        elif line.command == "ERROR":
            raise ConnectionError(remove_codes(line.text))
        elif line.command == "PONG" and (found := self._waiting.get(line.text)) is not None and not found[1].done():
            found[1].set_result("")
        elif line.command in _REFUSALS:  # the server answers in order, so it is about the oldest piece to that chat
            names = line.middle.lower().split(" ")
            for chat, outcome in self._waiting.values():
                if chat in names and not outcome.done():
                    outcome.set_result(remove_codes(line.text) or line.command)
                    break

    def _drop(self) -> None:
        writer, self._writer, self._is_registered = self._writer, None, False
        if writer is not None:
            writer.close()
        for _, outcome in self._waiting.values():
            if not outcome.done():
                outcome.set_exception(ConnectionError("the connection ended"))


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if isinstance(error, ConnectionError) else type(error).__name__
