"""The conformance suite for the adapter, as its author runs it: with the installed packages alone."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.settings import GatewaySettings
from hermes_exec_agent.frontends.gateway.load import create_adapters
from hermes_exec_agent.testing import GatewayConformance

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec_agent.frontends.gateway.adapter import Adapter


class LettersRig:
    """The server."""

    redelivers = True

    def __init__(self) -> None:
        self.port = 0
        self._ids = itertools.count(1)
        self._waiting: dict[str, dict[str, object]] = {}
        self._shown: list[tuple[str, str]] = []
        self._faults: list[str] = []
        self._writer: asyncio.StreamWriter | None = None

    def adapter(self) -> Adapter:
        """Return the adapter that the entry point of the installed distribution creates."""
        (adapter,) = create_adapters(GatewaySettings(platforms={"letters": {"port": self.port}}))
        return adapter

    async def say(self, name: str, text: str, *, group: bool = False, mention: bool = False) -> None:
        """Keep a message until it is acknowledged."""
        id = str(next(self._ids))
        self._waiting[id] = {"id": id, "chat": "group" if group else name, "sender": f"id-{name}", "text": text,
                             "group": group, "mention": mention}  # fmt: skip
        self._write(self._waiting[id])

    def texts(self, name: str) -> list[str]:
        """Return what a chat shows."""
        return [text for chat, text in self._shown if chat == name]

    def group_texts(self) -> list[str]:
        """Return what the group shows."""
        return self.texts("group")

    async def fail(self, kind: str) -> None:
        """Let the next piece fail."""
        self._faults.append(kind)

    async def cut(self) -> None:
        """End the connection."""
        if self._writer is not None:
            self._writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self._writer = writer
        for each in self._waiting.values():
            self._write(each)
        while line := await reader.readline():
            record = json.loads(line)
            if "ack" in record:
                self._waiting.pop(record["ack"], None)
                continue
            fault, key = self._faults.pop() if self._faults else "", record["send"]
            if fault in ("flood", "rejected"):
                self._write({"wait": key, "seconds": 0.3} if fault == "flood" else {"refused": key})
                continue
            self._shown.append((record["chat"], record["text"]))
            if fault != "unknown":
                self._write({"sent": key})
        if self._writer is writer:
            self._writer = None
        writer.close()

    def _write(self, record: dict[str, object]) -> None:
        if self._writer is not None:
            self._writer.write(json.dumps(record).encode() + b"\n")


@asynccontextmanager
async def open_server() -> AsyncGenerator[LettersRig]:
    rig = LettersRig()
    server = await asyncio.start_server(rig.serve, "127.0.0.1", 0)
    rig.port = server.sockets[0].getsockname()[1]
    try:
        yield rig
    finally:
        server.close()


class TestLetters(GatewayConformance):
    @pytest.fixture
    def rig(self) -> Any:
        return open_server
