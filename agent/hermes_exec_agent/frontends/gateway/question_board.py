"""The record of open questions, through which the owner may answer in the web view what a turn asks in a messenger.

A row is a copy for other programs: the running turn alone decides whether an answer counts, so that each question is
answered once and in its time, wherever the answer came from. Answers of other programs count for the owner alone, who
is the user of this machine.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.frontends.gateway.records import read_uptime
from hermes_exec_agent.memory.persons import OWNER

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from hermes_exec_agent.frontends.gateway.outbox import OutboxStore
    from hermes_exec_agent.frontends.gateway.records import Message

_KEPT_S = 3600.0
_WAIT_S = 10.0
_LOOK_S = 0.1
_MOST = 100
_LONGEST = 10_000
"""Characters of an answer."""
ELSEWHERE = "elsewhere"
"""The outcome of a question that another program answered."""


class QuestionBoard:
    """The rows of one gateway, which holds the open questions."""

    def __init__(self, store: OutboxStore) -> None:
        self._store = store
        self._open: dict[str, Callable[[str], bool]] = {}

    def reset(self) -> None:
        """Forget all rows, whose turns have ended with the gateway that ran them."""
        with self._store.transact() as base:
            base.execute("DELETE FROM questions")

    def add(
        self,
        message: Message,
        call: tuple[str, str],
        until: float,
        decide: Callable[[str], bool],
        choices: Sequence[str] | None = None,
    ) -> str:
        """Record a question, and return its id.

        Args:
            message: the message whose turn asks.
            call: the tool that asks or may run, and the question or the summary of its call.
            until: the last moment for an answer, in seconds since the machine started.
            decide: takes the answer of another program, and returns whether it counts.
            choices: offered answers to a question with a text as the answer; None if it is answered by yes or no.
        """
        id, now = secrets.token_hex(16), self._store.now()
        with self._store.transact() as base:
            base.execute("DELETE FROM questions WHERE until <= ? AND NOT (asked > ? AND asked <= ?)",
                         (read_uptime(), now - _KEPT_S, now))  # fmt: skip
            base.execute(
                "INSERT INTO questions (id, person, platform, conversation, tool, summary, choices, asked, until)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    id,
                    message.person,
                    message.address.platform,
                    message.conversation,
                    *(_to_storable(each) for each in call),
                    None if choices is None else json.dumps(choices),
                    now,
                    until,
                ),
            )
        self._open[id] = decide
        return id

    def end(self, id: str, outcome: str) -> None:
        """Record how a question ended: ``elsewhere``, in the ``chat``, or ``none`` without an answer."""
        self._open.pop(id, None)
        with self._store.transact() as base:
            base.execute("UPDATE questions SET outcome = ? WHERE id = ? AND outcome = ''", (outcome, id))

    @property
    def has_questions(self) -> bool:
        """Whether a question is open."""
        return bool(self._open)

    def read_answers(self) -> list[tuple[str, str]]:
        """Return the answers that other programs gave to open questions of the owner."""
        with self._store.transact() as base:
            query = "SELECT id, answer FROM questions WHERE answer != '' AND outcome = '' AND person = ?"
            return [(str(row["id"]), str(row["answer"])) for row in base.execute(query, (OWNER,))]

    def pass_on(self, id: str, answer: str) -> None:
        """Give an answer to the turn that asks; one that does not count leaves the row as it is."""
        decide = self._open.get(id)
        if decide is not None and decide(answer):
            self._open.pop(id, None)


def _to_storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def list_questions(store: OutboxStore) -> list[dict[str, Any]]:
    """Return the open questions, and for each whether the owner may answer it elsewhere than in its chat."""
    with store.transact() as base:
        query = "SELECT * FROM questions WHERE outcome = '' AND answer = '' AND until > ? ORDER BY asked LIMIT ?"
        rows = base.execute(query, (read_uptime(), _MOST)).fetchall()
    left = {row["id"]: row["until"] - read_uptime() for row in rows}
    return [
        {
            "id": row["id"], "person": row["person"], "platform": row["platform"], "conversation": row["conversation"],
            "tool": row["tool"], "summary": row["summary"],
            "choices": None if row["choices"] is None else json.loads(row["choices"]), "asked_at": row["asked"],
            "expires_at": time.time() + left[row["id"]], "is_own": row["person"] == OWNER,
        }
        for row in rows
    ]  # fmt: skip


def answer_question(store: OutboxStore, id: str, answer: bool | str, *, wait_s: float = _WAIT_S) -> None:  # noqa: FBT001  the answer is yes or no, or a text
    """Answer a question of the owner once, and wait until the running gateway has taken the answer.

    Raises:
        UsageError: it is closed, is another person's, or has another kind of answer.
        HermesError: the gateway did not take the answer in time, or just now.
    """
    gone = UsageError("this question is closed", remedy="look again")
    with store.transact() as base:
        row = base.execute("SELECT * FROM questions WHERE id = ?", (id,)).fetchone()
        if row is None or row["outcome"] or row["answer"] or row["until"] <= read_uptime():
            raise gone
        if row["person"] != OWNER:
            raise UsageError(f"{row['person']} alone can answer this, in the chat on {row['platform']}")
        base.execute("UPDATE questions SET answer = ? WHERE id = ?", (_check_answer(row, answer), id))
    ends = time.monotonic() + wait_s
    while time.monotonic() < ends:
        time.sleep(_LOOK_S)  # the gateway is another program, and SQLite notifies none
        with store.transact() as base:
            row = base.execute("SELECT outcome FROM questions WHERE id = ?", (id,)).fetchone()
        if row is None or row["outcome"]:
            if row is not None and row["outcome"] == ELSEWHERE:
                return
            raise gone
    with store.transact() as base:  # else it could be taken much later
        base.execute("UPDATE questions SET answer = '' WHERE id = ? AND outcome = ''", (id,))
    raise HermesError("it is not known whether your answer counted: the gateway is slow", remedy="look again")


def _check_answer(row: sqlite3.Row, answer: bool | str) -> str:  # noqa: FBT001  see `answer_question`
    if isinstance(answer, bool) != (row["choices"] is None):
        raise UsageError("this question has another kind of answer", remedy="look again")
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if not answer.strip() or len(answer) > _LONGEST:
        raise UsageError(f"an answer has 1 to {_LONGEST:,} characters")
    return _to_storable(answer.strip())
