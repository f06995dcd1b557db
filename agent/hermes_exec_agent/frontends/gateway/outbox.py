"""The outbox: pieces that go out, and the states of platforms.

A piece is ``pending``, ``sending``, and then ``sent``, ``failed`` or ``unknown``. A *draft* is the piece of an answer
that is still being written: it is sent like any, and edited until the answer replaces it. Both have the same
``origin``, so that an answer which is finished after a kill edits the piece of its draft.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from hermes_exec.errors import UsageError
from hermes_exec.observe.token_shapes import redact_tokens
from hermes_exec_agent.frontends.gateway.adapter import Choice
from hermes_exec_agent.frontends.gateway.database import connect, translate_errors
from hermes_exec_agent.frontends.gateway.grouped_commits import GroupedCommits
from hermes_exec_agent.frontends.gateway.positions import prune_positions
from hermes_exec_agent.frontends.gateway.records import Address, Piece

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Generator, Sequence
    from pathlib import Path

    from hermes_exec_agent.frontends.gateway.records import Message

UNPAIRED = "unpaired"
"""The error of pieces whose person was removed; one that is being sent meanwhile is not sent again."""
DRAFT_END = " …"
"""The end of an answer that is still being written."""
KEY = "platform = ? AND account = ? AND chat = ?"
_ENDED = "the gateway ended meanwhile"
_KEPT_S = 30 * 86400.0
_OPEN = "(state = 'pending' OR (state = 'sent' AND shown < revision AND is_draft = 0))"
"""What has to be sent, or edited to its last text."""
_DRAFT = "(state = 'sent' AND shown < revision AND is_draft = 1)"
"""A draft to edit."""


class OutboxStore:
    """The outbox of the gateway's database. Threads may share it."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """``path`` is created if it is missing."""
        self.path = path
        self._clock = clock
        with translate_errors(path):
            self._commits = GroupedCommits(connect(path))

    def close(self) -> None:
        """Close the file."""
        self._commits.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now(self) -> float:
        """Return the time by the clock of the records."""
        return self._clock()

    @contextmanager
    def transact(self) -> Generator[sqlite3.Connection]:
        """Yield the database in a transaction; it is undone if the block raises, and else on the disk at the end."""
        with translate_errors(self.path), self._commits.transact() as base:
            yield base

    def _query(self, query: str, *values: object) -> list[sqlite3.Row]:
        with translate_errors(self.path), self._commits.read() as base:
            return base.execute(query, values).fetchall()

    # Put

    def put(self, person: str, address: Address, text: str) -> int:
        """Put a text into the outbox, and return its number.

        Raises:
            UsageError: the person was removed, or has another chat now.
        """
        with self.transact() as base:
            query = f"SELECT 1 FROM persons WHERE name = ? AND {KEY}"  # noqa: S608  no input in the SQL
            if base.execute(query, (person, *address.key)).fetchone() is None:
                raise UsageError(f"{person} has no such chat now", remedy="hermes-exec gateway people")
            return insert_text(base, person, address, text, self._clock())

    def put_once(self, origin: str, person: str, address: Address, text: str) -> None:
        """Put a text into the outbox, unless one with this ``origin`` was put within 30 days.

        Raises:
            HermesError: the file cannot be written.
        """
        with self.transact() as base:
            if base.execute("SELECT 1 FROM outbox WHERE origin = ?", (origin,)).fetchone() is None:
                insert_text(base, person, address, text, self._clock(), origin=origin)

    def find_chat(self, person: str, platform: str) -> Address | None:
        """Return the private chat that a person used last on a platform, within 30 days; None if there is none."""
        with self.transact() as base:
            return find_private_chat(base, person, "platform = ?", (platform,))

    def put_during(self, message: Message, text: str, choices: Sequence[Choice] = ()) -> None:
        """Put a text of the turn of a message into the outbox, unless that is done, as after its person was removed."""
        with self.transact() as base:
            if _is_open(base, message):
                insert_text(base, message.person, message.address, text, self._clock(), choices=choices)

    def put_file(self, message: Message, name: str, content: bytes) -> None:
        """Put a file of the turn of a message into the outbox, unless that is done."""
        with self.transact() as base:
            if _is_open(base, message):
                id = insert_text(base, message.person, message.address, name, self._clock())
                base.execute("UPDATE outbox SET is_cut = 1, is_file = 1 WHERE id = ?", (id,))
                base.execute(
                    "INSERT INTO files (outbox, name, size, content) VALUES (?, ?, ?, ?)",
                    (id, name, len(content), content),
                )

    def put_draft(self, message: Message, text: str) -> None:
        """Show the answer of a message as far as it is written; `finish` or `end_draft` completes it."""
        with self.transact() as base:
            if not _is_open(base, message):
                return
            draft = _find_draft(base, message)
            if draft is None:
                id = insert_text(base, message.person, message.address, text, self._clock(), origin=f"{message.seq}:0")
                base.execute("UPDATE outbox SET is_draft = 1 WHERE id = ?", (id,))
            elif draft["state"] in {"pending", "sending", "sent"} and draft["text"] != text:
                _change(base, draft, text, is_draft=True)

    def end_draft(self, message: Message, text: str) -> None:
        """Complete the draft of a message, if it has one; another draft, or the answer, becomes a piece of its own."""
        with self.transact() as base:
            if (draft := _find_draft(base, message)) is not None:
                base.execute("UPDATE outbox SET origin = NULL WHERE id = ?", (draft["id"],))
                _change(base, draft, text or draft["text"], is_draft=False)

    # Send

    def pending_chats(self, platform: str, account: str) -> list[str]:
        """Return the chats with pieces to send or to edit."""
        rows = self._query(
            f"SELECT DISTINCT chat FROM outbox WHERE ({_OPEN} OR {_DRAFT}) AND platform = ? AND account = ?",  # noqa: S608  no input in the SQL
            platform,
            account,
        )
        return [str(row[0]) for row in rows]

    def claim(self, address: Address, cut: Callable[[str], Sequence[str]]) -> Piece | float | None:
        """Return the next piece of a chat, one to send being marked so; or the time at which it is due; or None.

        A text that was not cut yet is cut into pieces first, while others may use the store.
        """
        row = self._find_next(address)
        if row is None or isinstance(row, float | int):
            return row
        text = str(row["text"])
        pieces = [text] if row["is_cut"] else list(cut(text + DRAFT_END if row["is_draft"] else text)) or [""]
        with self.transact() as base:
            same = "SELECT 1 FROM outbox WHERE id = ? AND state = ? AND revision = ? AND is_draft = ? AND is_cut = ?"
            if base.execute(same, tuple(row[each] for each in _SAME)).fetchone() is None:
                return self._clock()  # it was changed or withdrawn meanwhile
            if not (row["is_cut"] or row["is_draft"]):
                _cut(base, row, pieces)
            return self._begin(base, row, address, pieces[0])

    def _find_next(self, address: Address) -> sqlite3.Row | float | None:
        """Return the first piece that is due; a draft lets later pieces pass while it is not."""
        dues: list[float] = []
        with self.transact() as base:
            for kind in (_OPEN, _DRAFT):
                query = f"SELECT * FROM outbox WHERE {kind} AND {KEY} ORDER BY batch, part LIMIT 1"  # noqa: S608  no input in the SQL
                row: sqlite3.Row | None = base.execute(query, address.key).fetchone()
                if row is None:
                    continue
                due = _find_due(base, row, self._clock())
                if due is None:
                    return row
                dues.append(due)
        return min(dues, default=None)

    def _begin(self, base: sqlite3.Connection, row: sqlite3.Row, address: Address, text: str) -> Piece:
        """Mark a piece as being sent, if it is not one to edit, and return it."""
        id, is_edit = row["id"], row["state"] == "sent"
        base.execute("UPDATE outbox SET attempts = attempts + 1 WHERE id = ?", (id,))
        if not is_edit:
            base.execute(
                "UPDATE outbox SET state = 'sending', shown = revision, changed = ? WHERE id = ?", (self._clock(), id)
            )
        if not row["is_file"] and not is_edit:
            base.execute(
                f"UPDATE outbox SET announced = ? WHERE state = 'unknown' AND {KEY} AND announced IS NULL",  # noqa: S608  no input in the SQL
                (id, *address.key),
            )
        follows = base.execute("SELECT 1 FROM outbox WHERE announced = ?", (id,)).fetchone() is not None
        (last,) = base.execute("SELECT max(part) FROM outbox WHERE batch = ?", (row["batch"],)).fetchone()
        choices: list[tuple[str, str]] = json.loads(row["choices"]) if row["part"] == last else []
        found = base.execute("SELECT content FROM files WHERE outbox = ?", (id,)).fetchone() if row["is_file"] else None
        return Piece(
            int(id), str(row["key"]), text, tuple(Choice(label, word) for label, word in choices), follows,
            str(row["receipt"]) if is_edit else "", int(row["revision"]), int(row["attempts"]) + 1, row["doubt"],
            None if found is None else bytes(found["content"]),
        )  # fmt: skip

    def settle(
        self,
        piece: Piece,
        state: str,
        *,
        receipt: str = "",
        error: str = "",
        wait_s: float = 0.0,
        keeps_doubt: bool = False,
    ) -> None:
        """Record how sending ended.

        Args:
            piece: what was sent.
            state: ``sent``, ``failed``, ``unknown``, or ``pending`` to try again.
            receipt: of a sent piece.
            error: of another one.
            wait_s: the time until the piece may be sent again or edited.
            keeps_doubt: whether this try, or an earlier one, may have arrived, although the piece is ``pending``.
        """
        now = self._clock()
        with self.transact() as base:
            row = base.execute("SELECT * FROM outbox WHERE id = ? AND state = 'sending'", (piece.id,)).fetchone()
            if row is None:
                return
            doubt = (row["changed"] if row["doubt"] is None else row["doubt"]) if keeps_doubt else None
            if state == "pending" and row["error"] == UNPAIRED:
                state = "failed" if doubt is None else "unknown"
            base.execute(
                "UPDATE outbox SET state = ?, receipt = ?, error = ?, due = ?, doubt = ?, changed = ? WHERE id = ?",
                (state, receipt, redact_tokens(error), now + wait_s if wait_s else 0.0, doubt, now, piece.id),
            )
            if state == "sent" and piece.doubt is not None and row["revision"]:  # the earlier try had another text
                base.execute("UPDATE outbox SET shown = -1 WHERE id = ?", (piece.id,))
            if state == "failed":  # with the note about an earlier piece, if it had one
                base.execute("UPDATE outbox SET announced = NULL WHERE announced = ?", (piece.id,))
            if state in {"failed", "unknown"}:
                _release_answer(base, row, now)

    def settle_edit(self, piece: Piece, *, is_done: bool, wait_s: float = 0.0) -> None:
        """Record that a piece shows its text; or try again later."""
        now = self._clock()
        with self.transact() as base:
            base.execute(
                "UPDATE outbox SET shown = CASE WHEN ? THEN ? ELSE shown END, due = ?, changed = ? WHERE id = ?",
                (is_done, piece.revision, now + wait_s, now, piece.id),
            )

    def replace_piece(self, piece: Piece) -> None:
        """Send the text of a piece that cannot be edited as another one, with another key; a draft is left as it is."""
        with self.transact() as base:
            base.execute("UPDATE outbox SET shown = ? WHERE id = ?", (piece.revision, piece.id))
            base.execute(
                "UPDATE outbox SET state = 'pending', key = lower(hex(randomblob(12))) WHERE id = ? AND is_draft = 0",
                (piece.id,),
            )

    def give_up_edit(self, piece: Piece, error: str) -> None:
        """Record that a piece may show its last text, or an earlier one; a draft is edited again when it changes."""
        now = self._clock()
        with self.transact() as base:
            base.execute(
                "UPDATE outbox SET shown = revision, state = CASE is_draft WHEN 1 THEN state ELSE 'unknown' END,"
                " error = ?, changed = ? WHERE id = ? AND state = 'sent' AND revision = ?",
                (error, now, piece.id, piece.revision),
            )

    def recover(self, repeatable: Collection[tuple[str, str]] = ()) -> int:
        """Mark the pieces that an earlier run was sending as unknown, and return the number of all of them.

        Those of accounts in ``repeatable`` (platform, account) are pending, in doubt.
        """
        now = self._clock()
        with self.transact() as base:
            rows = base.execute("SELECT * FROM outbox WHERE state = 'sending'").fetchall()
            for row in rows:
                if (row["platform"], row["account"]) in repeatable and row["error"] != UNPAIRED:
                    base.execute(
                        "UPDATE outbox SET state = 'pending', doubt = coalesce(doubt, changed), due = 0 WHERE id = ?",
                        (row["id"],),
                    )
                    continue
                base.execute(
                    "UPDATE outbox SET state = 'unknown', error = ?, changed = ? WHERE id = ?", (_ENDED, now, row["id"])
                )
                _release_answer(base, row, now)
        return len(rows)

    def prune(self) -> None:
        """Forget messages and pieces that are done for 30 days."""
        oldest = self._clock() - _KEPT_S
        with self.transact() as base:
            base.execute("DELETE FROM inbox WHERE state = 'done' AND at < ?", (oldest,))
            base.execute("DELETE FROM outbox WHERE state IN ('sent', 'failed', 'unknown') AND changed < ?", (oldest,))
            prune_positions(base)

    def send_again(self, message: Message) -> int:
        """Answer ``/again``: put the unknown pieces of the person into the outbox once more; return their number."""
        now = self._clock()
        with self.transact() as base:
            rows = base.execute(
                "SELECT * FROM outbox WHERE state = 'unknown' AND again IS NULL AND person = ? ORDER BY batch, part",
                (message.person,),
            ).fetchall()
            for row in rows:
                address = Address(row["platform"], row["account"], row["chat"])
                id = insert_text(base, message.person, address, str(row["text"]), now, choices=None)
                base.execute(
                    "UPDATE outbox SET is_cut = ?, is_file = ?, choices = ? WHERE id = ?",
                    (row["is_cut"], row["is_file"], row["choices"], id),
                )
                base.execute("UPDATE files SET outbox = ? WHERE outbox = ?", (id, row["id"]))
                base.execute("UPDATE outbox SET again = ? WHERE id = ?", (id, row["id"]))
            if not rows:
                insert_text(base, message.person, message.address, "No message to you is in doubt.", now)
            base.execute("UPDATE inbox SET state = 'done' WHERE seq = ?", (message.seq,))
            return len(rows)

    # Look

    def outbox(self, state: str = "", limit: int = 50) -> list[dict[str, Any]]:
        """Return the newest pieces, in one state or in all; those for strangers without text, which has a code."""
        rows = self._query("SELECT * FROM outbox WHERE ? IN ('', state) ORDER BY id DESC LIMIT ?", state, limit)
        columns = (
            "id", "person", "platform", "account", "chat", "state", "error", "attempts", "at", "changed", "text",
            "is_file",
        )  # fmt: skip
        pieces = [{column: row[column] for column in columns} | {"is_file": bool(row["is_file"])} for row in rows]
        return [each if each["person"] else {**each, "text": ""} for each in pieces]

    def count_states(self) -> dict[str, int]:
        """Return the number of pieces in each state."""
        return {str(row[0]): int(row[1]) for row in self._query("SELECT state, count(*) FROM outbox GROUP BY state")}

    def set_platform(self, platform: str, account: str, state: str, error: str = "") -> None:
        """Record the state of an account; an error is also kept as its last one."""
        now, error = self._clock(), redact_tokens(error)
        with self.transact() as base:
            base.execute(
                "INSERT INTO platforms (platform, account, state, error, since) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (platform, account)"
                " DO UPDATE SET state = excluded.state, error = excluded.error, since = excluded.since",
                (platform, account, state, error, now),
            )
            if error:
                base.execute(
                    "UPDATE platforms SET last_error = ?, last_error_at = ? WHERE platform = ? AND account = ?",
                    (error, now, platform, account),
                )

    def note_error(self, platform: str, account: str, error: str) -> None:
        """Record the last error of an account that stays connected."""
        with self.transact() as base:
            base.execute(
                "UPDATE platforms SET last_error = ?, last_error_at = ? WHERE platform = ? AND account = ?",
                (redact_tokens(error), self._clock(), platform, account),
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
                "last_error": row["last_error"],
                "last_error_s": max(now - row["last_error_at"], 0.0) if row["last_error"] else None,
            }
            for row in rows
        ]  # fmt: skip


_SAME = ("id", "state", "revision", "is_draft", "is_cut")


def find_private_chat(base: sqlite3.Connection, person: str, where: str, values: Sequence[str]) -> Address | None:
    """Return the private chat that a person used last, of those that a condition selects; None if there is none.

    What was written before the person was paired is of another one who had the name, and a chat is the person's as
    long as they have an account there.
    """
    row = base.execute(
        f"SELECT platform, account, chat FROM inbox WHERE person = ? AND NOT is_group AND {where}"  # noqa: S608  no input in the SQL
        " AND at >= (SELECT added FROM persons WHERE name = inbox.person)"
        " AND EXISTS (SELECT 1 FROM identities AS own WHERE own.person = inbox.person"
        " AND own.platform = inbox.platform AND own.account = inbox.account) ORDER BY seq DESC LIMIT 1",
        (person, *values),
    ).fetchone()
    return None if row is None else Address(*row)


def insert_text(
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
        "INSERT INTO outbox (batch, key, origin, person, platform, account, chat, text, choices, at, changed)"
        " VALUES ((SELECT coalesce(max(batch), 0) + 1 FROM outbox), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (_new_key(), origin, person, *address.key, text.encode("utf-8", "replace").decode(), encoded, now, now),
    )
    return int(cursor.lastrowid or 0)


def insert_answer(base: sqlite3.Connection, message: Message, number: int, text: str, now: float) -> None:
    """Insert an answer; the first one replaces the message's draft."""
    draft = None if number else _find_draft(base, message)
    if draft is not None and draft["state"] in {"pending", "sending", "sent"}:
        _change(base, draft, text, is_draft=False)
        return
    if draft is not None:  # it may have arrived, or was refused
        base.execute("UPDATE outbox SET origin = NULL, is_draft = 0, again = 0 WHERE id = ?", (draft["id"],))
    insert_text(base, message.person, message.address, text, now, origin=f"{message.seq}:{number}")


def leave_draft(base: sqlite3.Connection, message: Message) -> None:
    """Let the draft of a message without an answer stay as it is."""
    if (draft := _find_draft(base, message)) is not None:
        _change(base, draft, str(draft["text"]), is_draft=False)


def _new_key() -> str:
    return secrets.token_hex(12)


def _is_open(base: sqlite3.Connection, message: Message) -> bool:
    return base.execute("SELECT 1 FROM inbox WHERE seq = ? AND state != 'done'", (message.seq,)).fetchone() is not None


def _find_draft(base: sqlite3.Connection, message: Message) -> sqlite3.Row | None:
    row: sqlite3.Row | None = base.execute(
        "SELECT * FROM outbox WHERE origin = ? AND is_draft = 1", (f"{message.seq}:0",)
    ).fetchone()
    return row


def _change(base: sqlite3.Connection, row: sqlite3.Row, text: str, *, is_draft: bool) -> None:
    base.execute(
        "UPDATE outbox SET text = ?, is_draft = ?, revision = revision + 1 WHERE id = ?",
        (text.encode("utf-8", "replace").decode(), is_draft, row["id"]),
    )


def _release_answer(base: sqlite3.Connection, row: sqlite3.Row, now: float) -> None:
    """Insert an answer of its own for a piece that was sent as a draft, is not known to be there, and is finished."""
    if row["is_draft"] or row["shown"] >= row["revision"]:
        return
    base.execute("UPDATE outbox SET origin = NULL, again = 0 WHERE id = ?", (row["id"],))
    address = Address(row["platform"], row["account"], row["chat"])
    insert_text(base, str(row["person"]), address, str(row["text"]), now, origin=row["origin"])


def _find_due(base: sqlite3.Connection, row: sqlite3.Row, now: float) -> float | None:
    """Return when a piece is due if it has to wait; never longer than was stated, also if the clock went back."""
    if row["due"] <= now:
        return None
    if row["changed"] <= now:
        return float(row["due"])
    due = now + float(row["due"] - row["changed"])
    base.execute("UPDATE outbox SET due = ?, changed = ? WHERE id = ?", (due, now, row["id"]))
    return due


def _cut(base: sqlite3.Connection, row: sqlite3.Row, pieces: Sequence[str]) -> None:
    """Replace a text by its pieces."""
    first, *rest = pieces
    base.execute("UPDATE outbox SET text = ?, is_cut = 1 WHERE id = ?", (first, row["id"]))
    columns = "batch, person, platform, account, chat, choices, at, changed"
    for number, piece in enumerate(rest, 1):
        base.execute(
            f"INSERT INTO outbox (part, text, is_cut, key, {columns})"  # noqa: S608  names from above
            f" SELECT ?, ?, 1, ?, {columns} FROM outbox WHERE id = ?",
            (number, piece, _new_key(), row["id"]),
        )
