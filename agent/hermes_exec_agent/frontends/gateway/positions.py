"""The newest message of each known chat that the gateway has seen, after which an adapter reads the history.

It also counts messages that were not for the gateway, so that what a stranger wrote to a running gateway before pairing
is never read later. What was written while it was off is read if the stranger is paired before it starts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from hermes_exec_agent.frontends.gateway.adapter import Incoming
    from hermes_exec_agent.frontends.gateway.records import Address

SCHEMA = """
CREATE TABLE IF NOT EXISTS positions (
    platform TEXT NOT NULL,
    account TEXT NOT NULL,
    chat TEXT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (platform, account, chat)
) STRICT;"""
_NUMBER = re.compile(r"[0-9]{1,19}|[0-9]{1,12}\.[0-9]{6}", re.ASCII)
"""An id that has an order: a number, or as Slack's ids a number of seconds with six digits after the point."""
_SAME = "{0}.platform = positions.platform AND {0}.account = positions.account AND {0}.chat = positions.chat"


def move_position(base: sqlite3.Connection, address: Address, incoming: Incoming, *, begins: bool = False) -> None:
    """Move the position of a chat to a message that is newer; ``begins`` makes the chat a known one.

    Ids that are not numbers have no order.
    """
    id = incoming.message
    if _NUMBER.fullmatch(id) is None:
        return
    if begins:
        base.execute("INSERT OR IGNORE INTO positions VALUES (?, ?, ?, ?)", (*address.key, id))
    base.execute(
        "UPDATE positions SET message = ? WHERE platform = ? AND account = ? AND chat = ?"
        " AND CAST(replace(message, '.', '') AS INTEGER) < CAST(? AS INTEGER)",
        (id, *address.key, id.replace(".", "")),
    )


def prune_positions(base: sqlite3.Connection) -> None:
    """Forget chats without messages, codes, groups and persons."""
    known = " AND ".join(
        f"NOT EXISTS (SELECT 1 FROM {table} WHERE {_SAME.format(table)})"  # noqa: S608  names from here
        for table in ("inbox", "codes", "groups", "persons")
    )
    base.execute(f"DELETE FROM positions WHERE {known}")  # noqa: S608  names from here
