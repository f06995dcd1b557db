"""Send what is in the outbox to one account: in order within a chat, and concurrently between chats."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError
from hermes_exec_agent.frontends.gateway.adapter import NotSent, Rejected, SendUnknown
from hermes_exec_agent.frontends.gateway.cutting import cut_lines, cut_markdown
from hermes_exec_agent.frontends.gateway.records import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_agent.frontends.gateway.adapter import Adapter
    from hermes_exec_agent.frontends.gateway.records import Piece
    from hermes_exec_agent.frontends.gateway.store import Store

_log = logging.getLogger("hermes_exec.gateway")
UNKNOWN_NOTE = "(The message before this one may have arrived, or not. /again sends it once more.)"
_POLL_S = 0.5
"""How often the outbox is read, because other programs put texts there, too."""


class Delivery:
    """Sends the pieces of one account."""

    def __init__(self, store: Store, adapter: Adapter, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._adapter = adapter
        self._clock = clock
        self._wake = asyncio.Event()
        self._chats: dict[str, asyncio.Task[None]] = {}
        self._note = adapter.render(UNKNOWN_NOTE)
        separator = " " if adapter.traits.is_one_line else "\n\n"
        self._note += separator

    def wake(self) -> None:
        """Look for new pieces now."""
        self._wake.set()

    async def run(self) -> None:
        """Send until cancelled. A piece whose sending is cut off is unknown."""
        try:
            while True:
                self._wake.clear()
                try:
                    chats = await asyncio.to_thread(
                        self._store.pending_chats, self._adapter.platform, self._adapter.account
                    )
                except HermesError as error:
                    _log.error("the outbox cannot be read: %s", error)
                    chats = []
                for chat in chats:
                    if chat not in self._chats:
                        self._chats[chat] = asyncio.create_task(self._drain(chat))
                        self._chats[chat].add_done_callback(partial(self._forget, chat))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await self._wake.wait()
        finally:
            for task in self._chats.values():
                task.cancel()
            await asyncio.gather(*self._chats.values(), return_exceptions=True)

    def _forget(self, chat: str, task: asyncio.Task[None]) -> None:
        del self._chats[chat]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("sending stopped, and is tried again: %s: %s", type(error).__name__, error)

    async def _drain(self, chat: str) -> None:
        """Send the pieces of a chat until none is left."""
        address = Address(self._adapter.platform, self._adapter.account, chat)
        while True:
            piece = await asyncio.to_thread(self._store.claim, address, self._cut)
            if piece is None:
                return
            if isinstance(piece, float | int):
                await asyncio.sleep(max(piece - self._clock(), 0.01))
                continue
            await self._send(chat, piece)
            await asyncio.sleep(self._adapter.traits.interval_s)

    async def _send(self, chat: str, piece: Piece) -> None:
        text = self._note + piece.text if piece.follows_unknown else piece.text
        try:
            receipt = await self._adapter.send(chat, text, piece.choices, key=piece.key)
        except NotSent as error:
            await asyncio.to_thread(self._store.settle, piece, "pending", error=str(error), retry_s=error.retry_s)
        except Rejected as error:
            _log.warning("%s refused a piece: %s", self._adapter.platform, error)
            await asyncio.to_thread(self._store.settle, piece, "failed", error=str(error))
        except SendUnknown as error:
            _log.warning("%s: a piece may have arrived: %s", self._adapter.platform, error)
            await asyncio.to_thread(self._store.settle, piece, "unknown", error=str(error))
        except Exception as error:  # noqa: BLE001  an adapter of another distribution may raise anything, after it sent or before
            _log.exception("%s: a piece may have arrived", self._adapter.platform)
            await asyncio.to_thread(self._store.settle, piece, "unknown", error=type(error).__name__)
        except asyncio.CancelledError:
            self._store.settle(piece, "unknown", error="the gateway ended meanwhile")
            raise
        else:
            await asyncio.to_thread(self._store.settle, piece, "sent", receipt=receipt)

    def _cut(self, text: str) -> list[str]:
        """Return the rendered pieces of a text. Each has room for the note about the piece before it."""
        traits = self._adapter.traits

        def measure(rendered: str) -> int:
            return len(rendered.encode() if traits.unit == "bytes" else rendered.encode("utf-16-le")) // (
                1 if traits.unit == "bytes" else 2
            )

        room = traits.longest - measure(self._note)
        if traits.is_one_line:
            return cut_lines(self._adapter.render(text), room)
        return [
            self._adapter.render(piece)
            for piece in cut_markdown(text, lambda piece: measure(self._adapter.render(piece)) <= room)
        ]
