"""Edits of messages that were recorded, and edits that overtook their messages.

A platform may deliver an edit before its message, as after the message could not be accepted at first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from hermes_exec_agent.frontends.gateway.adapter import Incoming
    from hermes_exec_agent.frontends.gateway.records import Address, Kind

SCHEMA = """
CREATE TABLE IF NOT EXISTS early_edits (
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    chat TEXT NOT NULL,
    message TEXT NOT NULL,
    person TEXT NOT NULL,
    text TEXT NOT NULL,
    is_deletion INTEGER NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (platform, account, chat, message)
) STRICT;"""
_KEY = "platform = ? AND account = ? AND chat = ? AND message = ?"
_KEPT_S = 86400.0
_MOST = 1000
"""Early edits that are kept."""
_LONGEST = 100_000
"""Characters of a message that are kept."""


def make_storable(incoming: Incoming) -> Incoming:
    """Return a message as the database takes it: without halves of characters, and with a limited text."""
    chat, message, sender, text = (
        each.encode("utf-8", "replace").decode()
        for each in (incoming.chat, incoming.message, incoming.sender, incoming.text[:_LONGEST])
    )
    return replace(incoming, chat=chat, message=message, sender=sender, text=text)


def is_deletion(incoming: Incoming) -> bool:
    """Whether an edit leaves nothing of a message; one without its text may still have a file."""
    return not incoming.text.strip() and not incoming.files


def edit_message(
    base: sqlite3.Connection, address: Address, incoming: Incoming, classify: Callable[[str], Kind], person: str
) -> None:
    """Change a message that waits, or drop it.

    Args:
        base: the database.
        address: of the chat.
        incoming: the edit; without a sender, it is the platform's.
        classify: returns the kind of a text. A command that waits stays one.
        person: the author of the edit; empty if the sender is not a person.
    """
    row = base.execute(
        f"SELECT * FROM inbox WHERE {_KEY} AND state = 'queued' AND kind IN ('request', 'ordered')",  # noqa: S608  no input in the SQL
        (*address.key, incoming.message),
    ).fetchone()
    if row is None or (incoming.sender and row["person"] != person):
        return
    if is_deletion(incoming):
        base.execute("UPDATE inbox SET state = 'done' WHERE seq = ?", (row["seq"],))
    elif row["kind"] == "request" or classify(incoming.text) == "ordered":
        base.execute("UPDATE inbox SET text = ? WHERE seq = ?", (incoming.text, row["seq"]))


def keep_early_edit(base: sqlite3.Connection, address: Address, incoming: Incoming, person: str, now: float) -> None:
    """Keep an edit of a message that was not recorded yet, for a day."""
    base.execute("DELETE FROM early_edits WHERE NOT (at > ? AND at <= ?)", (now - _KEPT_S, now))
    (count,) = base.execute("SELECT count(*) FROM early_edits").fetchone()
    if count < _MOST:
        base.execute(
            "INSERT OR REPLACE INTO early_edits VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*address.key, incoming.message, person, incoming.text, is_deletion(incoming), now),
        )


def take_early_edit(
    base: sqlite3.Connection, address: Address, incoming: Incoming, person: str
) -> tuple[Incoming, bool]:
    """Return a message as it is by now, and whether it was deleted, if an edit by the same person overtook it."""
    query = f"DELETE FROM early_edits WHERE {_KEY} RETURNING person, text, is_deletion"  # noqa: S608  no input in the SQL
    row = base.execute(query, (*address.key, incoming.message)).fetchone()
    if row is None or row["person"] != person:
        return incoming, False
    return replace(incoming, text=str(row["text"])), bool(row["is_deletion"])
