"""Pieces that a platform took and refused later: they are failed, and the person or the owner is notified elsewhere."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from hermes_exec.observe.token_shapes import redact_tokens
from hermes_exec_agent.frontends.gateway.adapter import LateReporter
from hermes_exec_agent.frontends.gateway.outbox import KEY, find_private_chat, insert_text
from hermes_exec_agent.frontends.gateway.records import Address
from hermes_exec_agent.memory.persons import OWNER

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from hermes_exec_agent.frontends.gateway.adapter import Adapter
    from hermes_exec_agent.frontends.gateway.store import Store

_log = logging.getLogger("hermes_exec.gateway")
_LOOKS = 5
_LOOK_S = 0.2
"""A report may come before the answer to the request that sent the piece."""
_ORIGIN = "refused:"
_QUOTED = 80


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
