"""Conversations and questions about them: the set that ships, and LoCoMo's if a person fetched it.

A question's evidence are events, by conversation and number. LoCoMo's dialogues are ten logs of their own, in which
each session is a conversation and each turn an event; questions without an answer in the dialogue are left out.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hermes_exec_agent.runtime.events import EventLog
    from hermes_exec_agent.runtime.events.event import Kind

SHIPPED = Path(__file__).parent / "recall"
LOCOMO = "HERMES_EXEC_LOCOMO"
"""The variable that names a folder with LoCoMo's ``locomo10.zip`` or ``locomo10.json``, fetched by hand: they are in
``data/`` of the repository snap-research/locomo."""
_NOTE = 1_200
"""Characters of a note."""

Key: TypeAlias = "tuple[str, int]"
"""An event: its conversation and number."""


@dataclass(frozen=True)
class Turn:
    """An event of a recorded conversation."""

    key: Key
    at: float
    kind: str
    data: dict[str, Any]

    @property
    def text(self) -> str:
        """Its words, with the arguments of calls, as the log indexes them; empty for other kinds of events."""
        if self.kind not in ("user", "assistant", "result"):
            return ""
        calls = (f"{call['name']} {call['arguments']}" for call in self.data.get("tool_calls") or ())
        return "\n".join([self.data["content"], *calls]).strip()


@dataclass(frozen=True)
class Question:
    """A question, and the events that show its answer."""

    text: str
    kind: str
    gold: frozenset[Key]
    since: float | None = None
    until: float | None = None

    @property
    def sessions(self) -> frozenset[str]:
        """The conversations of the evidence."""
        return frozenset(conversation for conversation, _ in self.gold)


@dataclass(frozen=True)
class Corpus:
    """One log's conversations and the questions about them."""

    turns: list[Turn]
    questions: list[Question]
    notes: dict[str, str]
    """A note for each conversation."""


def read_shipped() -> list[Corpus]:
    """Return the set that ships."""
    turns = [
        Turn((row["conversation"], row["number"]), row["at"], row["kind"], row["data"])
        for row in map(json.loads, (SHIPPED / "conversations.jsonl").read_text(encoding="utf-8").splitlines())
    ]
    questions = [
        Question(
            row["question"],
            row["kind"],
            frozenset((each["conversation"], number) for each in row["evidence"] for number in each["numbers"]),
            *(_to_seconds(row[name]) if name in row else None for name in ("since", "until")),
        )
        for row in map(json.loads, (SHIPPED / "questions.jsonl").read_text(encoding="utf-8").splitlines())
    ]
    return [Corpus(turns, questions, _write_notes(turns))]


def _to_seconds(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def _write_notes(turns: Iterable[Turn]) -> dict[str, str]:
    """Return a note without a model for each conversation: its requests, and its last answer."""
    spoken: dict[str, list[Turn]] = defaultdict(list)
    for turn in turns:
        if turn.kind in ("user", "assistant") and turn.data["content"]:
            spoken[turn.key[0]].append(turn)
    return {
        conversation: "\n".join(
            [*(turn.data["content"] for turn in each if turn.kind == "user"), each[-1].data["content"]]
        )[:_NOTE]
        for conversation, each in spoken.items()
    }


def read_locomo() -> list[Corpus] | str:
    """Return LoCoMo's dialogues, or why they are missing."""
    folder = os.environ.get(LOCOMO)
    if not folder:
        return f"LoCoMo: skipped, as {LOCOMO} names no folder with locomo10.zip or locomo10.json"
    for name in ("locomo10.zip", "locomo10.json"):
        if (path := Path(folder, name)).is_file():
            return [_read_dialogue(each) for each in _read_dialogues(path)]
    return f"LoCoMo: skipped, as {folder} has neither locomo10.zip nor locomo10.json"


def _read_dialogues(path: Path) -> Iterator[dict[str, Any]]:
    if path.suffix == ".json":
        for dialogue in json.loads(path.read_text(encoding="utf-8")):
            yield {**dialogue.get("conversation", {}), **dialogue}
        return
    with zipfile.ZipFile(path) as packed:
        for name in sorted(packed.namelist()):
            if name.endswith(".json") and "MACOSX" not in name:
                yield json.loads(packed.read(name))


def _read_dialogue(dialogue: dict[str, Any]) -> Corpus:
    names = sorted((name for name in dialogue if re.fullmatch(r"session_\d+", name)), key=lambda name: int(name[8:]))
    turns: list[Turn] = []
    keys: dict[str, Key] = {}
    for name in names:
        at = datetime.strptime(dialogue[f"{name}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for number, each in enumerate(dialogue[name], 1):
            keys[each["dia_id"]] = (name, number)
            text = f"{each['speaker']}: {each['text']}"
            turns.append(Turn((name, number), at.timestamp() + number, "user", {"content": text}))
    questions: list[Question] = []
    for row in dialogue["qa"]:
        evidence = re.findall(r"D\d+:\d+", " ".join(row.get("evidence") or ()))
        gold = frozenset(keys[each] for each in evidence if each in keys)
        if gold and row["category"] != _ADVERSARIAL:
            questions.append(Question(row["question"], str(row["category"]), gold))
    notes = {name: dialogue[f"{name}_summary"] for name in names if dialogue.get(f"{name}_summary")}
    return Corpus(turns, questions, notes)


_ADVERSARIAL = 5
"""LoCoMo's category of questions without an answer."""


def record(log: EventLog, turns: Iterable[Turn]) -> None:
    """Append the events in the order of their times, as if they happened then."""
    for turn in sorted(turns, key=lambda turn: turn.at):
        with mock.patch("time.time", return_value=turn.at):
            log.append(turn.key[0], cast("Kind", turn.kind), turn.data)
