"""The outbox: each message about a slot, with a state of its own, which is tried until it is delivered or given up.

A message is written in the transaction that records what it reports, so that no kill comes between the two.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hermes_exec_agent.quoting import flatten
from hermes_exec_agent.scheduler.holder import is_gone

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from hermes_exec_agent.scheduler.storage import CronStore

DeliveryState = Literal["pending", "sending", "delivered", "failed", "suppressed", "unknown"]
"""It waits; a ticker sends it; it arrived; it was given up; it is left out; it may have arrived, and stays so."""
_PAUSES_S = (60.0, 300.0, 900.0, 3600.0, 3600.0, 4 * 3600.0, 4 * 3600.0, 12 * 3600.0)
"""After each failure; after the last one the delivery is given up."""
_ERROR = 300
SEND_LIMIT_S = 120.0
"""Seconds after which an attempt has failed."""
_LEASE_S = 3 * SEND_LIMIT_S


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message to one address."""

    id: int
    slot: int
    """The row of the slot."""
    address: str
    """Where it goes, such as ``file:/path``."""
    subject: str
    body: str
    key: str
    """Unique, so that the receiver can recognize a message that was sent before."""
    attempts: int
    """With this one."""
    was_cut_off: bool = False
    """Whether the attempt before was ended by a kill, so that the message may have arrived."""


def add_messages(
    base: sqlite3.Connection,
    slot: int,
    addresses: Iterable[str],
    subject: str,
    body: str,
    now: float,
    *,
    is_suppressed: bool = False,
) -> None:
    """Write a message for each address; part of the transaction that records what it reports."""
    for address in addresses:
        base.execute(
            "INSERT INTO deliveries (slot, address, state, subject, body, key, due, ended)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (slot, address, "suppressed" if is_suppressed else "pending", subject, body, secrets.token_hex(8), now,
             now if is_suppressed else None),
        )  # fmt: skip


def take_delivery(store: CronStore, holder: str, now: float) -> Delivery | None:
    """Take one message that is due; None if there is none."""
    with store.snapshot() as base:
        if base is None or _find_due(base, now) is None:
            return None
    with store.transaction() as base:
        row = _find_due(base, now)
        if row is None:
            return None
        base.execute(
            "UPDATE deliveries SET state = 'sending', attempts = attempts + 1, owner = ?, lease = ? WHERE id = ?",
            (holder, now + _LEASE_S, row["id"]),
        )
        return Delivery(
            row["id"], row["slot"], row["address"], row["subject"], row["body"], row["key"], row["attempts"] + 1,
            was_cut_off=row["state"] == "sending",
        )  # fmt: skip


def _find_due(base: sqlite3.Connection, now: float) -> sqlite3.Row | None:
    """Return a message that is due, or that a killed ticker was sending."""
    rows: list[sqlite3.Row] = base.execute("SELECT * FROM deliveries WHERE state = 'sending' ORDER BY id").fetchall()
    rows = [row for row in rows if is_gone(row["owner"], row["lease"], now)]
    rows += base.execute(
        "SELECT * FROM deliveries WHERE state = 'pending' AND due <= ? ORDER BY due, id LIMIT 1", (now,)
    ).fetchall()
    return rows[0] if rows else None


def settle_delivery(
    store: CronStore, delivery: Delivery, holder: str, now: float, error: str = "", *, is_unknown: bool = False
) -> DeliveryState:
    """Record how a delivery ended; after an error it is due again later, until it is given up.

    ``is_unknown``: the message may have arrived in spite of the error, so that it is not sent again.
    """
    if is_unknown:
        state: DeliveryState = "unknown"
    elif not error:
        state = "delivered"
    else:
        state = "pending" if delivery.attempts <= len(_PAUSES_S) else "failed"
    due = now + _PAUSES_S[delivery.attempts - 1] if state == "pending" else now
    with store.transaction() as base:
        base.execute(
            "UPDATE deliveries SET state = ?, due = ?, error = ?, ended = ? WHERE id = ? AND owner = ?"
            " AND state = 'sending'",
            (state, due, flatten(error, _ERROR), None if state == "pending" else now, delivery.id, holder),
        )
    return state
