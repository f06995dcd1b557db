"""Conversations and questions about them: the set that ships, and LoCoMo's if a person fetched it.

A question's evidence are events, by conversation and number. LoCoMo's dialogues are ten logs of their own, in which
each session is a conversation and each turn an event; questions without an answer in the dialogue are left out.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from unittest import mock

from hermes_exec_agent.memory.note_writer import write_program_note
from hermes_exec_agent.memory.notes import Note, Sentence, record_note
from hermes_exec_agent.runtime.events import EventLog

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from hermes_exec_agent.runtime.events.event import Kind

SHIPPED = Path(__file__).parent / "recall"
LOCOMO = "HERMES_EXEC_LOCOMO"
"""The variable that names a folder with LoCoMo's ``locomo10.zip`` or ``locomo10.json``, fetched by hand: they are in
``data/`` of the repository snap-research/locomo."""

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
    summaries: dict[str, str]
    """Of each conversation; the program writes notes where there are none."""


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
    return [Corpus(turns, questions, {})]


def _to_seconds(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


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
    summaries = {name: str(dialogue.get(f"{name}_summary", "")) for name in names}
    return Corpus(turns, questions, {name: text for name, text in summaries.items() if text})


_ADVERSARIAL = 5
"""LoCoMo's category of questions without an answer."""


@contextmanager
def open_log(corpus: Corpus) -> Generator[EventLog]:
    """Yield a log with the conversations, each event at its time, and with a note of each."""
    with tempfile.TemporaryDirectory() as folder, EventLog(Path(folder, "log.sqlite")) as log:
        for turn in sorted(corpus.turns, key=lambda turn: turn.at):
            with mock.patch("time.time", return_value=turn.at):
                log.append(turn.key[0], cast("Kind", turn.kind), turn.data)
        for conversation in dict.fromkeys(turn.key[0] for turn in corpus.turns):
            if text := corpus.summaries.get(conversation):
                events = log.events(conversation)
                sentences = (Sentence("done", text, (events[-1].number,)),)
                record_note(log, Note(conversation, events[-1].number, events[0].at, events[-1].at, sentences, "model"))
            else:
                write_program_note(log, conversation)
        yield log
