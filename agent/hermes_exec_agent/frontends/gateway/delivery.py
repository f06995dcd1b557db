"""Send what is in the outbox to one account: in order within a chat, and concurrently between chats.

A piece that a platform took and refused later is failed then, and the person or the owner is notified elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError
from hermes_exec.observe.token_shapes import redact_tokens
from hermes_exec_agent.frontends.gateway.adapter import (
    Editor,
    FileSender,
    Finder,
    LateReporter,
    NotSent,
    Rejected,
    SendUnknown,
)
from hermes_exec_agent.frontends.gateway.cutting import cut_lines, cut_markdown
from hermes_exec_agent.frontends.gateway.outbox import KEY, find_private_chat, insert_text
from hermes_exec_agent.frontends.gateway.records import Address, read_uptime
from hermes_exec_agent.memory.persons import OWNER

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from hermes_exec_agent.frontends.gateway.adapter import Adapter
    from hermes_exec_agent.frontends.gateway.records import Piece
    from hermes_exec_agent.frontends.gateway.store import Store

_log = logging.getLogger("hermes_exec.gateway")
UNKNOWN_NOTE = "(The message before this one may have arrived, or not. /again sends it once more.)"
EDIT_S = 1.0
"""The shortest time between two edits of a piece."""
RETRY_EDIT_S = 3.0
_REPEAT_S = 2.0
MOST_TRIES = 5
"""How often a piece that may have arrived is tried where the platform knows its key, and an edit that failed."""
_RETRY_RECORD_S = 1.0
_MOST_SENDS = 16
"""Chats of an account that are sent to at one time; a platform that is slow takes no more threads."""
_POLL_S = 0.5
"""How often the outbox is read, because other programs put texts there, too."""
_LOOKS = 5
_LOOK_S = 0.2
"""A report may come before the answer to the request that sent the piece."""
_ORIGIN = "refused:"
_QUOTED = 80


class Delivery:
    """Sends the pieces of one account."""

    def __init__(self, store: Store, adapter: Adapter) -> None:
        self._store = store
        self._adapter = adapter
        self._wake = asyncio.Event()
        self._chats: dict[str, asyncio.Task[None]] = {}
        self._edit_s = max(EDIT_S, adapter.traits.interval_s) if adapter.traits.can_edit else 0.0
        self._sending = asyncio.Semaphore(_MOST_SENDS)
        self._tries: dict[int, float] = {}
        """When the first try of each piece began that may have arrived, because the clock may be set back meanwhile."""
        self._failed_edits: Counter[int] = Counter()
        self.sent = 0
        """Pieces that arrived since the start."""
        self._note_text = adapter.render(UNKNOWN_NOTE)
        separator = " " if adapter.traits.is_one_line else "\n\n"
        self._note_text += separator

    def wake(self) -> None:
        """Look for new pieces now."""
        self._wake.set()

    @property
    def is_busy(self) -> bool:
        """Whether a piece is being sent."""
        return bool(self._chats)

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
            async with self._sending:
                piece = await asyncio.to_thread(self._store.claim, address, self._cut)
                if piece is None:
                    return
                if isinstance(piece, float | int):  # a new one may be due before it
                    wait_s = min(max(piece - self._store.now(), 0.01), _POLL_S)
                elif piece.receipt:
                    wait_s = 0.0
                    await self._edit(chat, piece)
                else:
                    wait_s = self._adapter.traits.interval_s
                    await self._send(chat, piece)
            await asyncio.sleep(wait_s)

    async def _send(self, chat: str, piece: Piece) -> None:
        """Send a piece, or find out that it arrived, and record how that ended."""
        settle = partial(self._store.settle, piece)
        is_doubtful = piece.doubt is not None
        began = self._tries.pop(piece.id, read_uptime()) if is_doubtful else read_uptime()
        self._tries[piece.id] = began
        try:
            receipt = await self._find(chat, piece) if is_doubtful else None
            if receipt is None:
                is_doubtful = is_doubtful and self._adapter.traits.repeat != "find"
                receipt = await self._pass_on(chat, piece)
        except NotSent as error:
            await _record(settle, "pending", error=str(error), wait_s=error.retry_s, keeps_doubt=is_doubtful)
        except Rejected as error:
            _log.warning("%s refused a piece: %s", self._adapter.platform, error)
            await _record(settle, "unknown" if is_doubtful else "failed", error=str(error))
            await self._note(str(error))
        except SendUnknown as error:
            await self._settle_doubt(piece, str(error))
        except Exception as error:  # noqa: BLE001  an adapter of another distribution may raise anything, after it sent or before
            _log.exception("%s: a piece may have arrived", self._adapter.platform)
            await self._settle_doubt(piece, type(error).__name__)
        except asyncio.CancelledError:
            repeats = self._adapter.traits.repeat != "never"
            state = "pending" if repeats else "unknown"
            with contextlib.suppress(HermesError):  # then the next start does
                settle(state, error="the gateway ended meanwhile", keeps_doubt=repeats)
            raise
        else:
            self._tries.pop(piece.id, None)
            self.sent += 1
            await _record(settle, "sent", receipt=receipt, wait_s=self._edit_s)

    async def _find(self, chat: str, piece: Piece) -> str | None:
        """Return the receipt of a piece that may have arrived; None if it may be sent with its key.

        Raises:
            NotSent: the platform cannot be asked now, and may be later.
            Rejected: the platform no longer knows the key.
            SendUnknown: the platform does not say whether it is there.
        """
        traits, age_s = self._adapter.traits, self._store.now() - (piece.doubt or 0.0)
        passed_s = max(age_s, read_uptime() - self._tries[piece.id])
        if traits.repeat == "key" and age_s >= 0 and passed_s <= traits.repeat_s:
            return None
        if traits.repeat == "find" and isinstance(self._adapter, Finder):
            return await self._adapter.find(chat, piece.key)
        raise Rejected("an earlier try may have arrived, and it is too late to send it again with its key")

    async def _pass_on(self, chat: str, piece: Piece) -> str:
        if piece.file is None:
            text = self._note_text + piece.text if piece.follows_unknown else piece.text
            return await self._adapter.send(chat, text, piece.choices, key=piece.key)
        largest = self._adapter.traits.largest_file
        if not isinstance(self._adapter, FileSender) or len(piece.file) > largest:
            raise Rejected(f"{self._adapter.platform} takes no such file; its limit is {largest:,} bytes")
        return await self._adapter.send_file(chat, piece.text, piece.file, key=piece.key)

    async def _settle_doubt(self, piece: Piece, error: str) -> None:
        """Record that a piece may have arrived, or let it be repeated where the platform allows that."""
        _log.warning("%s: a piece may have arrived: %s", self._adapter.platform, error)
        await self._note(error)
        if self._adapter.traits.repeat != "never" and piece.attempts < MOST_TRIES:
            await _record(self._store.settle, piece, "pending", error=error, wait_s=_REPEAT_S, keeps_doubt=True)
        else:
            await _record(self._store.settle, piece, "unknown", error=error)

    async def _note(self, error: str) -> None:
        with contextlib.suppress(HermesError):
            await asyncio.to_thread(self._store.note_error, self._adapter.platform, self._adapter.account, error)

    async def _edit(self, chat: str, piece: Piece) -> None:
        """Let a piece show its latest text. Trying that again is safe, so no edit is in doubt."""
        settle = partial(self._store.settle_edit, piece)
        text = self._note_text + piece.text if piece.follows_unknown else piece.text
        if not isinstance(self._adapter, Editor):  # another version of it, after an update
            await _record(self._store.replace_piece, piece)
            return
        try:
            await self._adapter.edit(chat, piece.receipt, text, piece.choices)
        except NotSent as error:
            await _record(settle, is_done=False, wait_s=max(error.retry_s, self._edit_s))
        except Rejected as error:
            _log.warning("%s refused an edit: %s", self._adapter.platform, error)
            await _record(self._store.replace_piece, piece)
        except Exception as error:  # noqa: BLE001  see `_send`
            _log.warning("%s: an edit failed: %s", self._adapter.platform, type(error).__name__)
            self._failed_edits[piece.id] += 1
            if self._failed_edits[piece.id] < MOST_TRIES:
                await _record(settle, is_done=False, wait_s=RETRY_EDIT_S)
            else:  # later pieces of the chat wait for it
                del self._failed_edits[piece.id]
                await _record(self._store.give_up_edit, piece, type(error).__name__)
        else:
            del self._failed_edits[piece.id]
            await _record(settle, is_done=True, wait_s=self._edit_s)

    def _cut(self, text: str) -> list[str]:
        """Return the rendered pieces of a text. Each has room for the note about the piece before it."""
        traits = self._adapter.traits

        def measure(rendered: str) -> int:
            return len(rendered.encode() if traits.unit == "bytes" else rendered.encode("utf-16-le")) // (
                1 if traits.unit == "bytes" else 2
            )

        room = traits.longest - measure(self._note_text)
        if traits.is_one_line:
            return cut_lines(self._adapter.render(text), room)
        return [
            self._adapter.render(piece)
            for piece in cut_markdown(text, lambda piece: measure(self._adapter.render(piece)) <= room)
        ]


async def _record(settle: Callable[..., None], *args: Any, **options: Any) -> None:
    """Record how sending ended, until the store takes it: else the piece would be "sending" until the next start."""
    while True:
        try:
            return await asyncio.to_thread(settle, *args, **options)
        except HermesError as error:
            _log.error("what became of a piece is recorded later: %s", error)
            await asyncio.sleep(_RETRY_RECORD_S)


def connect_reports(store: Store, adapter: Adapter, notify: Callable[[], None]) -> None:
    """Let an adapter that can do so record refusals; ``notify`` is called after a notice was put into the outbox."""
    if isinstance(adapter, LateReporter):
        adapter.set_report(partial(_report, store, adapter, notify))


async def _report(
    store: Store, adapter: Adapter, notify: Callable[[], None], receipt: str, error: str = "", *, replacement: str = ""
) -> bool:
    for look in range(_LOOKS):
        if await asyncio.to_thread(record_report, store, adapter, receipt, error, replacement):
            notify()
            return True
        if look < _LOOKS - 1:
            await asyncio.sleep(_LOOK_S)
    return False


def record_report(store: Store, adapter: Adapter, receipt: str, error: str, replacement: str = "") -> bool:
    """Record a report of a piece that was sent; return whether there is one with this receipt."""
    with store.transact() as base:
        row = base.execute(
            "SELECT * FROM outbox WHERE platform = ? AND account = ? AND receipt = ? AND state = 'sent'",
            (adapter.platform, adapter.account, receipt),
        ).fetchone()
        if row is None or not receipt:
            return False
        if replacement:
            base.execute("UPDATE outbox SET receipt = ? WHERE id = ?", (replacement, row["id"]))
            return True
        base.execute(
            "UPDATE outbox SET state = 'failed', error = ?, changed = ? WHERE id = ?",
            (redact_tokens(error), store.now(), row["id"]),
        )
        _notify_elsewhere(base, row, error, store.now())
        return True


def _notify_elsewhere(base: sqlite3.Connection, row: sqlite3.Row, error: str, now: float) -> None:
    """Notify the person in another chat of theirs, else the owner; a notice that is refused has none of its own."""
    origin = str(row["origin"] or "")
    failed = Address(row["platform"], row["account"], row["chat"])
    if origin.startswith(_ORIGIN) or not row["person"]:
        return
    for person in dict.fromkeys((str(row["person"]), OWNER)):
        if (address := find_private_chat(base, person, f"NOT ({KEY})", failed.key)) is None:
            continue
        text = " ".join(str(row["text"]).split())
        quoted = text if len(text) <= _QUOTED else f"{text[: _QUOTED - 1]}…"
        whose = "to you" if person == row["person"] else f"to {row['person']}"
        about = f": {quoted}" if person == row["person"] else ""
        notice = f"A message {whose} on {failed.platform} was not delivered ({error}){about}"
        insert_text(base, person, address, notice, now, origin=f"{_ORIGIN}{row['id']}")
        return
    _log.warning("no other chat is known in which %s or the owner could be notified", row["person"])
