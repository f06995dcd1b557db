"""An adapter of another distribution: a platform whose server speaks lines of JSON.

The server sends ``{"id", "chat", "sender", "text", "group", "mention"}`` for each message until it is acknowledged by
``{"ack": id}``, and answers ``{"send": key, "chat", "text"}`` with ``{"sent": key}``, ``{"refused": key}`` or
``{"wait": key, "seconds"}``.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.adapter import (
    AdapterTraits,
    Incoming,
    NotSent,
    PlatformDown,
    Rejected,
    SendUnknown,
)
from hermes_exec_agent.frontends.gateway.rendering import to_plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec_agent.frontends.gateway.adapter import Choice

_LIMIT_S = 5.0


class LettersAdapter:
    """One account."""

    platform = "letters"
    traits = AdapterTraits(longest=500, unit="bytes", interval_s=0.0)

    def __init__(self, account: str, port: int) -> None:
        self.account = account
        self._port = port
        self._writer: asyncio.StreamWriter | None = None
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}

    async def receive(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Pass on each message, and acknowledge it after that."""
        try:
            reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            raise PlatformDown("the server cannot be reached") from error
        messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        accepting = asyncio.create_task(self._accept(messages, accept))
        ready()
        try:
            while line := await reader.readline():
                record = json.loads(line)
                key = record.get("sent") or record.get("refused") or record.get("wait")
                if key is None:
                    messages.put_nowait(record)
                elif key in self._answers and not self._answers[key].done():
                    self._answers[key].set_result(record)
                if accepting.done():
                    accepting.result()
            raise PlatformDown("the server ended the connection")
        except OSError as error:
            raise PlatformDown("the connection ended") from error
        finally:
            accepting.cancel()
            await self.close()

    async def _accept(
        self, messages: asyncio.Queue[dict[str, Any]], accept: Callable[[Incoming], Awaitable[None]]
    ) -> None:
        while True:
            each = await messages.get()
            text, is_group, is_mention = each["text"], each["group"], each["mention"]
            await accept(Incoming(each["chat"], each["id"], each["sender"], text, is_group, is_mention))
            await self._write({"ack": each["id"]})

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = (), *, key: str) -> str:
        """Send a piece; without its answer it is in doubt."""
        if self._writer is None:
            raise NotSent("not connected", retry_s=1.0)
        answer = self._answers[key] = asyncio.get_running_loop().create_future()
        try:
            await self._write({"send": key, "chat": chat, "text": text})
            async with asyncio.timeout(_LIMIT_S):
                record = await answer
        except (OSError, TimeoutError) as error:
            raise SendUnknown("no answer came") from error
        finally:
            del self._answers[key]
        if "wait" in record:
            raise NotSent("too fast", retry_s=record["seconds"])
        if "refused" in record:
            raise Rejected("no such chat")
        return key

    async def _write(self, record: Mapping[str, object]) -> None:
        if self._writer is None:
            raise OSError("not connected")
        self._writer.write(json.dumps(record).encode() + b"\n")
        await self._writer.drain()

    def render(self, text: str) -> str:
        """Return text without marks."""
        return to_plain(text)

    async def close(self) -> None:
        """End the connection."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(OSError("the connection ended"))


def create(name: str, table: Mapping[str, object]) -> LettersAdapter:
    """Return the adapter of a table."""
    port = table.get("port")
    if not isinstance(port, int):
        raise ConfigError(f"[gateway.platforms.{name}]: port is a number", remedy="port = 7070")
    return LettersAdapter(name, port)
