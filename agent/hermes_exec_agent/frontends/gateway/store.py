"""The durable state of the gateway: persons, messages that came in, and pieces that go out.

Each method is one transaction, so a kill at any moment leaves a state that the next start continues from. A message
and its answer are never separated: the message becomes ``done`` in the transaction that records the answer.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.gateway.edits import edit_message, keep_early_edit, make_storable, take_early_edit
from hermes_exec_agent.frontends.gateway.outbox import (
    KEY,
    UNPAIRED,
    OutboxStore,
    insert_answer,
    insert_text,
    leave_draft,
)
from hermes_exec_agent.frontends.gateway.positions import move_position
from hermes_exec_agent.frontends.gateway.records import Address, GuestLimit, ReceivedFile, to_message, to_person

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hermes_exec_agent.frontends.gateway.adapter import Incoming
    from hermes_exec_agent.frontends.gateway.records import Kind, Message, PersonRecord, Role

CODE_S = 3600.0
"""How long a pairing code is valid, and how long wrong codes lock pairing."""
_WRONG_CODES = 5
_MOST_CODES = 50
"""Codes of an account that are valid at one time; further strangers get none, so that they cannot fill the disk."""
_VALID = f"until > ? AND until <= ? + {CODE_S}"
"""Whether a code is valid at a time; one from a clock that was ahead is not."""
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_FILES = "SELECT name, kind, size, error FROM files WHERE inbox = ? ORDER BY id"


class Store(OutboxStore):
    """The gateway's database. Threads may share it."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time, guests: GuestLimit | None = None) -> None:
        """``path`` is created if it is missing."""
        super().__init__(path, clock=clock)
        self._guests = guests or GuestLimit()

    # Messages

    def accept(
        self,
        platform: str,
        account: str,
        incoming: Incoming,
        classify: Callable[[str], Kind],
        is_awaited: Callable[[str], bool] = lambda _: False,
        files: Sequence[ReceivedFile] = (),
    ) -> Message | None:
        """Record a message with its files; it lasts when this returns. Return it if it has to be worked on.

        A message that was recorded before, and one in a group that is not for the gateway, change nothing. A stranger
        gets a pairing code once in its time, and nothing of their text is kept. ``is_awaited`` says whether the turn of
        a person waits for a text, which then is not announced as queued.
        """
        incoming = make_storable(incoming)
        address = Address(platform, account, incoming.chat)
        with self.transact() as base:
            if incoming.is_edit:
                self._edit(base, address, incoming, classify)
                return None
            move_position(base, address, incoming)
            if _is_known(base, address, incoming):
                return None
            person = _find_person(base, platform, account, incoming.sender)
            if incoming.is_group and not _is_for_us(base, address, incoming, person):
                return None
            if person is None:
                self._refuse(base, address, incoming)
                return None
            move_position(base, address, incoming, begins=True)
            incoming, is_deleted = take_early_edit(base, address, incoming, person.name)
            if is_deleted:
                self._insert(base, address, incoming, person.name, "refused", state="done")
                return None
            kind = classify(incoming.text)
            seq = self._insert(base, address, incoming, person.name, kind)
            _insert_files(base, seq, files)
            if not incoming.is_group:
                query = "UPDATE persons SET platform = ?, account = ?, chat = ? WHERE name = ?"
                base.execute(query, (*address.key, person.name))
            reply = self._find_early_reply(base, person, kind, seq, incoming)
            if reply is not None and (reply[1] or not is_awaited(person.name)):
                insert_text(base, person.name, address, reply[0], self._clock(), origin=f"{seq}:received")
                if reply[1]:  # it counts for no limit
                    base.execute("UPDATE inbox SET state = 'done', kind = 'refused' WHERE seq = ?", (seq,))
                    return None
            return _to_message(base, base.execute("SELECT * FROM inbox WHERE seq = ?", (seq,)).fetchone())

    def is_wanted(self, platform: str, account: str, incoming: Incoming) -> bool:
        """Whether the files of a message should be read: it is new, and a request of a person that may make one."""
        address = Address(platform, account, incoming.chat)
        with self.transact() as base:
            person = _find_person(base, platform, account, incoming.sender)
            if person is None or _is_known(base, address, incoming):
                return False
            if incoming.is_group and not _is_for_us(base, address, incoming, person):
                return False
            return person.role != "guest" or self._count_used(base, person.name) < self._guests.requests

    def read_files(self, message: Message) -> list[ReceivedFile]:
        """Return the files of a message that is not done, with their content."""
        rows = self._query("SELECT * FROM files WHERE inbox = ? ORDER BY id", message.seq)
        return [ReceivedFile(each["name"], each["kind"], each["size"], each["error"], each["content"]) for each in rows]

    def _count_used(self, base: sqlite3.Connection, person: str) -> int:
        """Return the requests of a person in 24 hours."""
        query = "SELECT count(*) FROM inbox WHERE person = ? AND kind = 'request' AND at > ? AND at <= ?"
        now = self._clock()
        (used,) = base.execute(query, (person, now - 86400, now)).fetchone()
        return int(used)

    def _edit(
        self, base: sqlite3.Connection, address: Address, incoming: Incoming, classify: Callable[[str], Kind]
    ) -> None:
        """Change a message of the same person whose turn has not begun; keep an edit that overtook its message."""
        person = _find_person(base, address.platform, address.account, incoming.sender)
        if _is_known(base, address, incoming):
            edit_message(base, address, incoming, classify, "" if person is None else person.name)
        elif person is not None and (not incoming.is_group or _is_for_us(base, address, incoming, person)):
            keep_early_edit(base, address, incoming, person.name, self._clock())

    def _insert(
        self,
        base: sqlite3.Connection,
        address: Address,
        incoming: Incoming,
        person: str,
        kind: Kind | Literal["refused"],
        *,
        state: str = "queued",
    ) -> int:
        values = (*address.key, incoming.message, person, kind, incoming.text, incoming.is_group, state, self._clock())
        cursor = base.execute(
            "INSERT INTO inbox (platform, account, chat, message, person, kind, text, is_group, state, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        return int(cursor.lastrowid or 0)

    def _find_early_reply(
        self, base: sqlite3.Connection, person: PersonRecord, kind: Kind, seq: int, incoming: Incoming
    ) -> tuple[str, bool] | None:
        """Return a text to answer with at once, and whether that is all."""
        if kind != "request":
            return None
        if not incoming.text.strip() and not incoming.files:
            return "This message has no text and no file.", True
        if person.role == "guest" and self._count_used(base, person.name) > self._guests.requests:
            return f"Your {self._guests.requests} requests of 24 hours are used; this one was dropped.", True
        (waiting,) = base.execute(
            "SELECT count(*) FROM inbox WHERE person = ? AND state != 'done' AND kind = 'request' AND seq < ?",
            (person.name, seq),
        ).fetchone()
        return (f"Queued; {waiting} before it.", False) if waiting else None

    def _refuse(self, base: sqlite3.Connection, address: Address, incoming: Incoming) -> None:
        """Give a stranger a code if they have none; their message leaves no row."""
        now = self._clock()
        base.execute(f"DELETE FROM codes WHERE NOT ({_VALID})", (now, now))  # noqa: S608  no input in the SQL
        known = base.execute(
            "SELECT 1 FROM codes WHERE platform = ? AND account = ? AND sender = ?",
            (address.platform, address.account, incoming.sender),
        ).fetchone()
        query = "SELECT count(*) FROM codes WHERE platform = ? AND account = ?"
        (valid,) = base.execute(query, (address.platform, address.account)).fetchone()
        if known or valid >= _MOST_CODES:
            return
        code = "".join(secrets.choice(_LETTERS) for _ in range(8))
        values = (code, address.platform, address.account, incoming.sender, address.chat, now + CODE_S)
        base.execute("INSERT INTO codes VALUES (?, ?, ?, ?, ?, ?)", values)
        move_position(base, address, incoming, begins=True)
        text = (
            f"This agent does not know you. Its owner lets you in within an hour with\n\n"
            f"`hermes-exec gateway pair {code} --as NAME`"
        )
        insert_text(base, "", address, text, now)

    def next_message(self, person: str) -> Message | None:
        """Return the oldest message of a person that waits for its turn, or whose turn was cut off."""
        rows = self._query(
            "SELECT * FROM inbox WHERE person = ? AND state != 'done' AND kind != 'immediate' ORDER BY seq LIMIT 1",
            person,
        )
        return to_message(rows[0], self._list_files(rows[0]["seq"])) if rows else None

    def _list_files(self, seq: int) -> list[sqlite3.Row]:
        return self._query(_FILES, seq)

    def list_waiting(self) -> list[str]:
        """Return the persons with messages that are not done."""
        return [str(row[0]) for row in self._query("SELECT DISTINCT person FROM inbox WHERE state != 'done'")]

    def list_immediate(self) -> list[Message]:
        """Return the commands that do not wait and are not done."""
        rows = self._query("SELECT * FROM inbox WHERE state != 'done' AND kind = 'immediate' ORDER BY seq")
        return [to_message(row) for row in rows]

    def count_waiting(self, person: str) -> int:
        """Return the number of requests of a person that are not done."""
        query = "SELECT count(*) FROM inbox WHERE person = ? AND state != 'done' AND kind = 'request'"
        return int(self._query(query, person)[0][0])

    def find_positions(self, platform: str, account: str) -> dict[str, str]:
        """Return the newest message of each known chat of an account that was seen, recorded or not."""
        rows = self._query("SELECT * FROM positions WHERE platform = ? AND account = ?", platform, account)
        return {str(row["chat"]): str(row["message"]) for row in rows}

    def begin(self, message: Message, conversation: str, after: int) -> Message | None:
        """Record that a turn begins for a message, and where its record begins; from now on no edit changes it.

        Returns:
            the message as an edit left it, or None if the person deleted it.
        """
        with self.transact() as base:
            row = base.execute(
                "UPDATE inbox SET state = 'running', conversation = ?, after = ? WHERE seq = ? AND state != 'done'"
                " RETURNING *",
                (conversation, after, message.seq),
            ).fetchone()
            if row is None:
                return None
            base.execute("UPDATE persons SET conversation = ? WHERE name = ?", (conversation, message.person))
            return _to_message(base, row)

    def is_done(self, message: Message) -> bool:
        """Whether a message is done, also because its person was removed."""
        return not self._query("SELECT 1 FROM inbox WHERE seq = ? AND state != 'done'", message.seq)

    def finish(self, message: Message, texts: Sequence[str], **changes: str) -> None:
        """Record the answer to a message and new values of the person; the message is done. A second call is ignored.

        ``changes`` are columns of the person: ``conversation``, ``model`` and ``target``.
        """
        now = self._clock()
        with self.transact() as base:
            row = base.execute(
                "UPDATE inbox SET state = 'done' WHERE seq = ? AND state != 'done' RETURNING seq", (message.seq,)
            ).fetchone()
            if row is None:
                return
            if not texts:
                leave_draft(base, message)
            for number, text in enumerate(texts):
                insert_answer(base, message, number, text, now)
            for column in ("conversation", "model", "target"):
                if column in changes:
                    base.execute(
                        f"UPDATE persons SET {column} = ? WHERE name = ?",  # noqa: S608  a name from the tuple above
                        (changes[column], message.person),
                    )

    # Persons

    def pair(self, code: str, name: str, role: Role | None) -> PersonRecord:
        """Tie the account with this code to a person, and welcome them.

        Raises:
            UsageError: the code is wrong or expired, or too many wrong ones were tried; or the person has another role.
        """
        now = self._clock()
        with self.transact() as base:
            base.execute("DELETE FROM wrong_codes WHERE NOT (at > ? AND at <= ?)", (now - CODE_S, now))
            (wrong,) = base.execute("SELECT count(*) FROM wrong_codes").fetchone()
            found = None
            if wrong < _WRONG_CODES:
                query = f"DELETE FROM codes WHERE code = ? AND {_VALID} RETURNING *"  # noqa: S608  no input in the SQL
                found = base.execute(query, (code.strip().upper(), now, now)).fetchone()
                if found is None:
                    base.execute("INSERT INTO wrong_codes VALUES (?)", (now,))
            person = None if found is None else _pair(base, found, name, role, now)
        if wrong >= _WRONG_CODES:
            raise UsageError(f"{_WRONG_CODES} wrong codes were tried, so pairing is locked", remedy="try in an hour")
        if person is None:
            raise UsageError("the code is wrong or has expired", remedy="write to the agent again for a new code")
        return person

    def unpair(self, name: str) -> None:
        """Remove a person with all accounts and groups; messages of theirs that are not done, and to them, are dropped.

        Raises:
            UsageError: there is no such person.
        """
        with self.transact() as base:
            base.execute("DELETE FROM identities WHERE person = ?", (name,))
            base.execute("DELETE FROM groups WHERE person = ?", (name,))
            base.execute("UPDATE inbox SET state = 'done' WHERE person = ? AND state != 'done'", (name,))
            base.execute(
                "UPDATE outbox SET error = ?,"
                " state = CASE WHEN state = 'sending' THEN state WHEN doubt IS NULL THEN 'failed' ELSE 'unknown' END"
                " WHERE person = ? AND state IN ('pending', 'sending')",
                (UNPAIRED, name),
            )
            base.execute("UPDATE outbox SET again = 0 WHERE person = ? AND state = 'unknown'", (name,))
            if not base.execute("DELETE FROM persons WHERE name = ? RETURNING name", (name,)).fetchone():
                raise UsageError(f"there is no person {name!r}", remedy="hermes-exec gateway people")

    def person(self, name: str) -> PersonRecord | None:
        """Return a person, or None."""
        rows = self._query("SELECT * FROM persons WHERE name = ?", name)
        return to_person(rows[0]) if rows else None

    def people(self) -> list[dict[str, Any]]:
        """Return all persons with their accounts."""
        accounts = self._query("SELECT * FROM identities ORDER BY added")
        return [
            {
                "name": row["name"], "role": row["role"], "conversation": row["conversation"], "model": row["model"],
                "target": row["target"],
                "accounts": [
                    {"platform": each["platform"], "account": each["account"], "sender": each["sender"]}
                    for each in accounts if each["person"] == row["name"]
                ],
            }
            for row in self._query("SELECT * FROM persons ORDER BY name")
        ]  # fmt: skip

    def set_group(self, address: Address, person: str, *, on: bool) -> None:
        """Answer in a group from now on, or no longer."""
        with self.transact() as base:
            base.execute(f"DELETE FROM groups WHERE {KEY}", address.group.key)  # noqa: S608  no input in the SQL
            if on:
                base.execute("INSERT INTO groups VALUES (?, ?, ?, ?)", (*address.group.key, person))


def _insert_files(base: sqlite3.Connection, seq: int, files: Sequence[ReceivedFile]) -> None:
    base.executemany(
        "INSERT INTO files (inbox, name, kind, size, error, content) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (seq, _to_storable(each.name), _to_storable(each.kind), each.size, each.error, each.content)
            for each in files
        ],
    )


def _to_storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _is_known(base: sqlite3.Connection, address: Address, incoming: Incoming) -> bool:
    """Whether a message was recorded before."""
    query = f"SELECT 1 FROM inbox WHERE {KEY} AND message = ?"  # noqa: S608  no input in the SQL
    return base.execute(query, (*address.key, incoming.message)).fetchone() is not None


def _to_message(base: sqlite3.Connection, row: sqlite3.Row) -> Message:
    return to_message(row, base.execute(_FILES, (row["seq"],)).fetchall())


def _is_for_us(base: sqlite3.Connection, address: Address, incoming: Incoming, person: PersonRecord | None) -> bool:
    """Whether a message of a group is one that a paired person addressed to the gateway, where it may answer."""
    if person is None or not incoming.is_mention:
        return False
    if person.role == "owner" and incoming.text.split()[:1] == ["/group"]:
        return True
    query = f"SELECT 1 FROM groups WHERE {KEY}"  # noqa: S608  no input in the SQL
    return base.execute(query, address.group.key).fetchone() is not None


def _find_person(base: sqlite3.Connection, platform: str, account: str, sender: str) -> PersonRecord | None:
    row = base.execute(
        "SELECT persons.* FROM persons JOIN identities ON persons.name = identities.person"
        " WHERE identities.platform = ? AND identities.account = ? AND identities.sender = ?",
        (platform, account, sender),
    ).fetchone()
    return None if row is None else to_person(row)


def _pair(base: sqlite3.Connection, code: sqlite3.Row, name: str, role: Role | None, now: float) -> PersonRecord:
    row = base.execute("SELECT role FROM persons WHERE name = ?", (name,)).fetchone()
    if row is not None and role not in {None, row["role"]}:
        raise UsageError(f"{name} has the role {row['role']}", remedy=f"hermes-exec gateway people --remove {name}")
    default: Role = "owner" if name == "owner" else "guest"
    address = Address(code["platform"], code["account"], code["chat"])
    base.execute(
        "INSERT INTO persons (name, role, platform, account, chat, added) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (name) DO NOTHING",
        (name, role or default, *address.key, now),
    )
    base.execute(
        "INSERT INTO identities VALUES (?, ?, ?, ?, ?) ON CONFLICT (platform, account, sender)"
        " DO UPDATE SET person = excluded.person, added = excluded.added",
        (address.platform, address.account, code["sender"], name, now),
    )
    person = to_person(base.execute("SELECT * FROM persons WHERE name = ?", (name,)).fetchone())
    insert_text(base, name, address, f"Paired as {name}, role {person.role}. /help lists the commands.", now)
    return person
