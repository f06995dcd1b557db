"""The durable state of the gateway: persons, messages that came in, and pieces that go out.

Each method is one transaction, so a kill at any moment leaves a state that the next start continues from. A message
and its answer are never separated: the message becomes ``done`` in the transaction that records the answer.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.gateway.adapter import Choice
from hermes_exec_agent.frontends.gateway.database import connect, translate_errors
from hermes_exec_agent.frontends.gateway.records import Address, GuestLimit, Piece, to_message, to_person

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from hermes_exec_agent.frontends.gateway.adapter import Incoming
    from hermes_exec_agent.frontends.gateway.records import Kind, Message, PersonRecord, Role

CODE_S = 3600.0
"""How long a pairing code is valid, and how long wrong codes lock pairing."""
_WRONG_CODES = 5
_MOST_CODES = 50
"""Codes that are valid at one time; further strangers get none, so that they cannot fill the disk."""
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
_LONGEST = 100_000
"""Characters of a message that are kept."""
_KEY = "platform = ? AND account = ? AND chat = ?"
_UNPAIRED = "unpaired"
"""The error of pieces whose person was removed; one that is being sent meanwhile is not sent again."""
_KEPT_S = 30 * 86400.0


class Store:
    """The gateway's database. Threads may share it."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time, guests: GuestLimit | None = None) -> None:
        """``path`` is created if it is missing."""
        self.path = path
        self._clock = clock
        self._guests = guests or GuestLimit()
        self._lock = threading.Lock()
        with translate_errors(path):
            self._base = connect(path)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._base.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transact(self) -> Generator[sqlite3.Connection]:
        with self._lock, translate_errors(self.path):
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
                self._base.execute("COMMIT")
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise

    def _query(self, query: str, *values: object) -> list[sqlite3.Row]:
        with self._lock, translate_errors(self.path):
            return self._base.execute(query, values).fetchall()

    # Messages

    def accept(
        self,
        platform: str,
        account: str,
        incoming: Incoming,
        classify: Callable[[str], Kind],
        is_awaited: Callable[[str], bool] = lambda _: False,
    ) -> Message | None:
        """Record a message; it lasts when this returns. Return it if it has to be worked on.

        A message that was recorded before, and one in a group that is not for the gateway, change nothing. A stranger
        gets a pairing code once in its time, and nothing of their text is kept. ``is_awaited`` says whether the turn of
        a person waits for a text, which then is not announced as queued.
        """
        address = Address(platform, account, incoming.chat)
        with self._transact() as base:
            if incoming.is_edit:
                _edit(base, address, incoming)
                return None
            same = (*address.key, incoming.message)
            if base.execute(f"SELECT 1 FROM inbox WHERE {_KEY} AND message = ?", same).fetchone():  # noqa: S608  no input in the SQL
                return None
            person = _find_person(base, platform, account, incoming.sender)
            if incoming.is_group and not _is_for_us(base, address, incoming, person):
                return None
            if person is None:
                self._refuse(base, address, incoming)
                return None
            kind = classify(incoming.text)
            seq = self._insert(base, address, incoming, person.name, kind)
            if not incoming.is_group:
                base.execute(
                    "UPDATE persons SET platform = ?, account = ?, chat = ? WHERE name = ?",
                    (*address.key, person.name),
                )
            reply = self._find_early_reply(base, person, kind, seq, incoming)
            if reply is not None and (reply[1] or not is_awaited(person.name)):
                text, is_done = reply
                _put(base, person.name, address, text, self._clock(), origin=f"{seq}:received")
                if is_done:
                    base.execute("UPDATE inbox SET state = 'done' WHERE seq = ?", (seq,))
                    return None
            return to_message(base.execute("SELECT * FROM inbox WHERE seq = ?", (seq,)).fetchone())

    def _insert(self, base: sqlite3.Connection, address: Address, incoming: Incoming, person: str, kind: Kind) -> int:
        text = incoming.text[:_LONGEST]
        values = (*address.key, incoming.message, person, kind, text, incoming.is_group, self._clock())
        cursor = base.execute(
            "INSERT INTO inbox (platform, account, chat, message, person, kind, text, is_group, state, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'queued', ?)",
            values,
        )
        return int(cursor.lastrowid or 0)

    def _find_early_reply(
        self, base: sqlite3.Connection, person: PersonRecord, kind: Kind, seq: int, incoming: Incoming
    ) -> tuple[str, bool] | None:
        """Return a text to answer with at once, and whether that is all."""
        if kind != "request":
            return None
        if not incoming.text.strip():
            return "This message has no text. Files, images and voice notes are not read.", True
        if person.role == "guest":
            since = self._clock() - 86400
            (used,) = base.execute(
                "SELECT count(*) FROM inbox WHERE person = ? AND kind = 'request' AND at > ?", (person.name, since)
            ).fetchone()
            if used > self._guests.requests:
                return f"Your {self._guests.requests} requests of 24 hours are used; this one was dropped.", True
        (waiting,) = base.execute(
            "SELECT count(*) FROM inbox WHERE person = ? AND state != 'done' AND kind = 'request' AND seq < ?",
            (person.name, seq),
        ).fetchone()
        return (f"Queued; {waiting} before it.", False) if waiting else None

    def _refuse(self, base: sqlite3.Connection, address: Address, incoming: Incoming) -> None:
        """Give a stranger a code if they have none; their message leaves no row."""
        now = self._clock()
        base.execute("DELETE FROM codes WHERE until <= ?", (now,))
        known = base.execute(
            "SELECT 1 FROM codes WHERE platform = ? AND account = ? AND sender = ?",
            (address.platform, address.account, incoming.sender),
        ).fetchone()
        (valid,) = base.execute("SELECT count(*) FROM codes").fetchone()
        if known or valid >= _MOST_CODES:
            return
        code = "".join(secrets.choice(_LETTERS) for _ in range(8))
        values = (code, address.platform, address.account, incoming.sender, address.chat, now + CODE_S)
        base.execute("INSERT INTO codes VALUES (?, ?, ?, ?, ?, ?)", values)
        text = (
            f"This agent does not know you. Its owner lets you in within an hour with\n\n"
            f"`hermes-exec gateway pair {code} --as NAME`"
        )
        _put(base, "", address, text, now)

    def next_message(self, person: str) -> Message | None:
        """Return the oldest message of a person that waits for its turn, or whose turn was cut off."""
        rows = self._query(
            "SELECT * FROM inbox WHERE person = ? AND state != 'done' AND kind != 'immediate' ORDER BY seq LIMIT 1",
            person,
        )
        return to_message(rows[0]) if rows else None

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

    def begin(self, message: Message, conversation: str, after: int) -> Message | None:
        """Record that a turn begins for a message, and where its record begins; from now on no edit changes it.

        Returns:
            the message as an edit left it, or None if the person deleted it.
        """
        with self._transact() as base:
            row = base.execute(
                "UPDATE inbox SET state = 'running', conversation = ?, after = ? WHERE seq = ? AND state != 'done'"
                " RETURNING *",
                (conversation, after, message.seq),
            ).fetchone()
            if row is None:
                return None
            base.execute("UPDATE persons SET conversation = ? WHERE name = ?", (conversation, message.person))
            return to_message(row)

    def is_done(self, message: Message) -> bool:
        """Whether a message is done, also because its person was removed."""
        return not self._query("SELECT 1 FROM inbox WHERE seq = ? AND state != 'done'", message.seq)

    def finish(self, message: Message, texts: Sequence[str], **changes: str) -> None:
        """Record the answer to a message and new values of the person; the message is done. A second call is ignored.

        ``changes`` are columns of the person: ``conversation``, ``model`` and ``target``.
        """
        now = self._clock()
        with self._transact() as base:
            row = base.execute(
                "UPDATE inbox SET state = 'done' WHERE seq = ? AND state != 'done' RETURNING seq", (message.seq,)
            ).fetchone()
            if row is None:
                return
            for number, text in enumerate(texts):
                _put(base, message.person, message.address, text, now, origin=f"{message.seq}:{number}")
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
        with self._transact() as base:
            base.execute("DELETE FROM wrong_codes WHERE at <= ?", (now - CODE_S,))
            (wrong,) = base.execute("SELECT count(*) FROM wrong_codes").fetchone()
            found = None
            if wrong < _WRONG_CODES:
                query = "DELETE FROM codes WHERE code = ? AND until > ? RETURNING *"
                found = base.execute(query, (code.strip().upper(), now)).fetchone()
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
        with self._transact() as base:
            base.execute("DELETE FROM identities WHERE person = ?", (name,))
            base.execute("DELETE FROM groups WHERE person = ?", (name,))
            base.execute("UPDATE inbox SET state = 'done' WHERE person = ? AND state != 'done'", (name,))
            base.execute(
                "UPDATE outbox SET state = CASE state WHEN 'pending' THEN 'failed' ELSE state END, error = ?"
                " WHERE person = ? AND state IN ('pending', 'sending')",
                (_UNPAIRED, name),
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
        with self._transact() as base:
            base.execute(f"DELETE FROM groups WHERE {_KEY}", address.group.key)  # noqa: S608  no input in the SQL
            if on:
                base.execute("INSERT INTO groups VALUES (?, ?, ?, ?)", (*address.group.key, person))

    # Pieces

    def put(self, person: str, address: Address, text: str) -> int:
        """Put a text into the outbox, and return its number.

        Raises:
            UsageError: the person was removed, or has another chat now.
        """
        with self._transact() as base:
            query = f"SELECT 1 FROM persons WHERE name = ? AND {_KEY}"  # noqa: S608  no input in the SQL
            if base.execute(query, (person, *address.key)).fetchone() is None:
                raise UsageError(f"{person} has no such chat now", remedy="hermes-exec gateway people")
            return _put(base, person, address, text, self._clock())

    def put_during(self, message: Message, text: str, choices: Sequence[Choice] = ()) -> None:
        """Put a text of the turn of a message into the outbox, unless that is done, as after its person was removed."""
        with self._transact() as base:
            if base.execute("SELECT 1 FROM inbox WHERE seq = ? AND state != 'done'", (message.seq,)).fetchone():
                _put(base, message.person, message.address, text, self._clock(), choices=choices)

    def pending_chats(self, platform: str, account: str) -> list[str]:
        """Return the chats with pieces to send."""
        rows = self._query(
            "SELECT DISTINCT chat FROM outbox WHERE state = 'pending' AND platform = ? AND account = ?",
            platform,
            account,
        )
        return [str(row[0]) for row in rows]

    def claim(self, address: Address, cut: Callable[[str], Sequence[str]]) -> Piece | float | None:
        """Mark the next piece of a chat as being sent, and return it; or the time at which it is due; or None.

        A text that was not cut yet is cut into pieces first, while others may use the store.
        """
        query = f"SELECT * FROM outbox WHERE state = 'pending' AND {_KEY} ORDER BY batch, part LIMIT 1"  # noqa: S608  no input in the SQL
        rows = self._query(query, *address.key)
        if not rows:
            return None
        pieces: Sequence[str] = () if rows[0]["is_cut"] else cut(str(rows[0]["text"]))
        with self._transact() as base:
            row = base.execute(query, address.key).fetchone()
            if row is None:
                return None
            if (due := _find_due(base, row, self._clock())) is not None:
                return due
            if row["id"] != rows[0]["id"]:  # the first one was withdrawn meanwhile
                return self._clock()
            text = str(row["text"]) if row["is_cut"] else _cut(base, row, pieces)
            base.execute(
                "UPDATE outbox SET state = 'sending', attempts = attempts + 1, changed = ? WHERE id = ?",
                (self._clock(), row["id"]),
            )
            told = base.execute(
                f"UPDATE outbox SET announced = ? WHERE state = 'unknown' AND {_KEY}"  # noqa: S608  no input in the SQL
                " AND (announced IS NULL OR announced = ?) RETURNING id",
                (row["id"], *address.key, row["id"]),
            ).fetchall()
            (last,) = base.execute("SELECT max(part) FROM outbox WHERE batch = ?", (row["batch"],)).fetchone()
            choices: list[tuple[str, str]] = json.loads(row["choices"]) if row["part"] == last else []
            buttons = tuple(Choice(label, word) for label, word in choices)
            return Piece(int(row["id"]), str(row["key"]), text, buttons, bool(told))

    def settle(self, piece: Piece, state: str, *, receipt: str = "", error: str = "", retry_s: float = 0.0) -> None:
        """Record how sending ended: ``sent``, ``failed``, ``unknown``, or ``pending`` again after ``retry_s``."""
        now = self._clock()
        with self._transact() as base:
            base.execute(
                "UPDATE outbox SET state = CASE WHEN ? = 'pending' AND error = ? THEN 'failed' ELSE ? END,"
                " receipt = ?, error = ?, due = ?, changed = ? WHERE id = ? AND state = 'sending'",
                (state, _UNPAIRED, state, receipt, error, now + retry_s if state == "pending" else 0.0, now, piece.id),
            )
            if state == "failed":  # with the note about an earlier piece, if it had one
                base.execute("UPDATE outbox SET announced = NULL WHERE announced = ?", (piece.id,))

    def recover(self) -> int:
        """Mark the pieces that an earlier run was sending as unknown, and return their number."""
        now = self._clock()
        with self._transact() as base:
            return len(
                base.execute(
                    "UPDATE outbox SET state = 'unknown', error = 'the gateway ended meanwhile', changed = ?"
                    " WHERE state = 'sending' RETURNING id",
                    (now,),
                ).fetchall()
            )

    def prune(self) -> None:
        """Forget messages and pieces that are done for 30 days."""
        oldest = self._clock() - _KEPT_S
        with self._transact() as base:
            base.execute("DELETE FROM inbox WHERE state = 'done' AND at < ?", (oldest,))
            base.execute("DELETE FROM outbox WHERE state IN ('sent', 'failed', 'unknown') AND changed < ?", (oldest,))

    def send_again(self, message: Message) -> int:
        """Answer ``/again``: put the unknown pieces of the person into the outbox once more; return their number."""
        now = self._clock()
        with self._transact() as base:
            rows = base.execute(
                "SELECT * FROM outbox WHERE state = 'unknown' AND again IS NULL AND person = ? ORDER BY batch, part",
                (message.person,),
            ).fetchall()
            for row in rows:
                address = Address(row["platform"], row["account"], row["chat"])
                id = _put(base, message.person, address, str(row["text"]), now, choices=None)
                base.execute("UPDATE outbox SET is_cut = 1, choices = ? WHERE id = ?", (row["choices"], id))
                base.execute("UPDATE outbox SET again = ? WHERE id = ?", (id, row["id"]))
            if not rows:
                _put(base, message.person, message.address, "No message to you is in doubt.", now)
            base.execute("UPDATE inbox SET state = 'done' WHERE seq = ?", (message.seq,))
            return len(rows)

    def outbox(self, state: str = "", limit: int = 50) -> list[dict[str, Any]]:
        """Return the newest pieces, in one state or in all; those for strangers without text, which has a code."""
        rows = self._query("SELECT * FROM outbox WHERE ? IN ('', state) ORDER BY id DESC LIMIT ?", state, limit)
        columns = ("id", "person", "platform", "account", "chat", "state", "error", "attempts", "at", "changed", "text")
        pieces = [{column: row[column] for column in columns} for row in rows]
        return [each if each["person"] else {**each, "text": ""} for each in pieces]

    def count_states(self) -> dict[str, int]:
        """Return the number of pieces in each state."""
        return {str(row[0]): int(row[1]) for row in self._query("SELECT state, count(*) FROM outbox GROUP BY state")}

    # Platforms

    def set_platform(self, platform: str, account: str, state: str, error: str = "") -> None:
        """Record the state of an account."""
        with self._transact() as base:
            base.execute(
                "INSERT INTO platforms VALUES (?, ?, ?, ?, ?) ON CONFLICT (platform, account)"
                " DO UPDATE SET state = excluded.state, error = excluded.error, since = excluded.since",
                (platform, account, state, error, self._clock()),
            )

    def platforms(self) -> list[dict[str, Any]]:
        """Return each account with its state, its last error, and the age of its oldest piece that waits."""
        rows = self._query(
            "SELECT *, (SELECT min(at) FROM outbox WHERE state = 'pending' AND outbox.platform = platforms.platform"
            " AND outbox.account = platforms.account) AS oldest FROM platforms ORDER BY platform, account"
        )
        now = self._clock()
        return [
            {
                "platform": row["platform"], "account": row["account"], "state": row["state"], "error": row["error"],
                "since": row["since"], "lag_s": 0.0 if row["oldest"] is None else max(now - row["oldest"], 0.0),
            }
            for row in rows
        ]  # fmt: skip


def _edit(base: sqlite3.Connection, address: Address, incoming: Incoming) -> None:
    """Change a message whose turn has not begun; one that is empty now is dropped."""
    base.execute(
        f"UPDATE inbox SET text = ?, state = ? WHERE {_KEY} AND message = ?"  # noqa: S608  no input in the SQL
        " AND state = 'queued' AND kind = 'request'",
        (incoming.text[:_LONGEST], "queued" if incoming.text.strip() else "done", *address.key, incoming.message),
    )


def _is_for_us(base: sqlite3.Connection, address: Address, incoming: Incoming, person: PersonRecord | None) -> bool:
    """Whether a message of a group is one that a paired person addressed to the gateway, where it may answer."""
    if person is None or not incoming.is_mention:
        return False
    if person.role == "owner" and incoming.text.split()[:1] == ["/group"]:
        return True
    query = f"SELECT 1 FROM groups WHERE {_KEY}"  # noqa: S608  no input in the SQL
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
    _put(base, name, address, f"Paired as {name}, role {person.role}. /help lists the commands.", now)
    return person


def _put(
    base: sqlite3.Connection,
    person: str,
    address: Address,
    text: str,
    now: float,
    *,
    origin: str | None = None,
    choices: Sequence[Choice] | None = (),
) -> int:
    """Insert a text that was not cut yet. The same ``origin`` is inserted once."""
    encoded = json.dumps([[each.label, each.text] for each in choices or ()], ensure_ascii=False)
    cursor = base.execute(
        "INSERT INTO outbox (batch, origin, person, platform, account, chat, text, choices, at, changed)"
        " VALUES ((SELECT coalesce(max(batch), 0) + 1 FROM outbox), ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (origin, person, *address.key, text.encode("utf-8", "replace").decode(), encoded, now, now),
    )
    return int(cursor.lastrowid or 0)


def _find_due(base: sqlite3.Connection, row: sqlite3.Row, now: float) -> float | None:
    """Return when a piece is due if it has to wait; never longer than was stated, also if the clock went back."""
    if row["due"] <= now:
        return None
    if row["changed"] <= now:
        return float(row["due"])
    due = now + float(row["due"] - row["changed"])
    base.execute("UPDATE outbox SET due = ?, changed = ? WHERE id = ?", (due, now, row["id"]))
    return due


def _cut(base: sqlite3.Connection, row: sqlite3.Row, pieces: Sequence[str]) -> str:
    """Replace a text by its pieces; return the first."""
    first, *rest = pieces or [""]
    base.execute("UPDATE outbox SET text = ?, is_cut = 1 WHERE id = ?", (first, row["id"]))
    columns = "batch, person, platform, account, chat, choices, at, changed"
    for number, piece in enumerate(rest, 1):
        base.execute(
            f"INSERT INTO outbox (part, text, is_cut, {columns}) SELECT ?, ?, 1, {columns} FROM outbox WHERE id = ?",  # noqa: S608  names from above
            (number, piece, row["id"]),
        )
    return first
