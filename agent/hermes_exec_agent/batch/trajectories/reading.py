"""The conversations of trials, read from the logs of the shards.

A model reads a conversation in segments: each compaction begins the next one, with messages in place of those before.
Those that a segment took over from the one before are marked, so that no trainer learns them twice.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from hermes_exec_agent.batch.model_choice import is_scripted
from hermes_exec_agent.batch.run_folder import PREPAID
from hermes_exec_agent.models.protocol import read_thought
from hermes_exec_agent.runtime.events.log import EventLog
from hermes_exec_agent.runtime.history import MessageHistory
from hermes_exec_agent.runtime.tool_schemas import read_schemas

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.run_state import RunState
    from hermes_exec_agent.batch.trials import Trial
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.runtime.events.event import Event

Row = TypeVar("Row")
_DAMAGE = (LookupError, TypeError, AttributeError, ValueError, RecursionError)
"""What reading a record of another form than ours may raise."""
_REDACTED = re.compile(r"\[secret [A-Za-z_][A-Za-z0-9_]*\]")
"""What the log has in place of a secret."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which trials are exported."""

    min_reward: float | None = None
    ends: frozenset[str] = frozenset()
    """See `Trajectory.end`; all of trials with one of ``states`` if empty."""
    models: frozenset[str] = frozenset()
    """All if empty."""
    scripted: bool = False
    """Whether trials with scripted replies are exported."""
    states: frozenset[str] = frozenset({"graded"})
    """States of attempts; see `attempt.State`."""

    def find_exclusion(self, result: dict[str, Any]) -> str:
        """Return why a result is left out, or an empty text."""
        if is_scripted(str(result["model"])) and not self.scripted:
            return "scripted"
        if not result["conversation"]:
            return "without a conversation"
        if self.models and result["model"] not in self.models:
            return "of another model"
        if find_end(result) not in self.ends if self.ends else result["state"] not in self.states:
            return "with another end"
        if self.min_reward is not None and (result["reward"] is None or result["reward"] < self.min_reward):
            return "with a lower reward"
        return ""


def find_end(result: dict[str, Any]) -> str:
    """Return how a trial's agent ended; the state of the attempt if its check did not run after it."""
    return str(result["outcome"] if result["state"] in ("graded", "ungraded") else result["state"])


@dataclass(frozen=True, slots=True)
class SegmentMessage:
    """A message of a segment."""

    message: Message
    event: Event | None
    """That it came from; None for one that the program wrote, or that was taken over."""
    copied: bool
    """Whether the segment took it over from the one before."""


@dataclass(frozen=True, slots=True)
class RecordedConversation:
    """One conversation, as its log has it."""

    id: str
    events: Sequence[Event]
    schemas: Sequence[dict[str, Any]]
    """The tools of its model."""
    children: Sequence[RecordedConversation] = ()
    """The conversations that it delegated tasks to."""

    @property
    def request(self) -> str:
        """The first request."""
        return next((str(each.data["content"]) for each in self.events if each.kind == "user"), "")

    @property
    def is_redacted(self) -> bool:
        """Whether a secret was removed from its text, so that no model has read or written it like this."""
        texts = (text for each in self.events for text in _list_read_texts(each))
        return any(map(_REDACTED.search, texts))

    def list_segments(self) -> list[list[SegmentMessage]]:
        """Return the messages as the model read them, with its last reply, one list for each segment."""
        history = MessageHistory()
        segments: list[list[SegmentMessage]] = []
        shown: list[SegmentMessage] = []
        for event in self.events:
            history.add(event)
            messages = history.messages
            if event.kind == "compacted":
                segments.append(_trim(shown))
                shown = [SegmentMessage(each, None, copied=True) for each in messages]
                continue
            del shown[len(messages) :]
            for place, message in enumerate(messages):
                if place >= len(shown):
                    is_reply = event.kind == "assistant" and message.role == "assistant"
                    shown.append(SegmentMessage(message, event if is_reply else None, copied=False))
                elif shown[place].message is not message:  # a notice was added to it
                    shown[place] = SegmentMessage(message, shown[place].event, shown[place].copied)
        segments.append(_trim(shown))
        return [each for each in segments if each]


def _trim(messages: list[SegmentMessage]) -> list[SegmentMessage]:
    """Return the messages up to the last reply of the model."""
    end = max((place for place, each in enumerate(messages, 1) if each.event is not None), default=0)
    calls = messages[end - 1].message.tool_calls if end else ()
    while end < len(messages) and calls and messages[end].message.role == "tool":
        end += 1
    return messages[:end]


def _list_read_texts(event: Event) -> Iterator[str]:
    """Yield the texts of an event that a model read or wrote."""
    data = event.data
    yield str(data.get("system") or "")
    yield str(data.get("content") or "")
    yield from (str(each.get("content") or "") for each in data.get("parts") or ())
    yield from (str(call["arguments"]) for call in data.get("tool_calls") or ())
    yield read_thought(data.get("extras"))
    yield from (str(each.get("content") or "") for each in data.get("messages") or ())


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A trial's accepted attempt, with its conversation."""

    trial: Trial
    result: dict[str, Any]
    conversation: RecordedConversation

    @property
    def end(self) -> str:
        """How it ended; see `find_end`."""
        return find_end(self.result)

    def describe(self) -> dict[str, Any]:
        """Return the columns that each row has."""
        names = ("key", "task", "target", "model", "sample", "reward")
        policy = {"policy": self.result["policy"]} if self.result.get("policy") else {}
        return {**{name: self.result[name] for name in names}, "end": self.end, **policy}


def _list_conversations(result: dict[str, Any]) -> list[str]:
    """Return the ids of a trial's conversations: one for each step of a task with steps."""
    check = cast("dict[str, Any]", result["check"] or {})
    steps = [str(each["conversation"]) for each in check.get("steps", ()) if each["conversation"]]
    return steps or [str(result["conversation"])]


@dataclass(slots=True)
class TrajectoryReader:
    """Reads the trajectories of a run, in the order of its trials; ``left_out`` counts the others by reason."""

    run: RunFolder
    state: RunState
    selection: Selection
    clean: Callable[[str], str]
    """Removes secrets that are known now."""
    left_out: Counter[str] = field(default_factory=Counter[str])
    _stack: ExitStack = field(default_factory=ExitStack)
    _logs: dict[str, tuple[EventLog, dict[str, list[str]]]] = field(
        default_factory=dict[str, tuple[EventLog, dict[str, list[str]]]]
    )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def read(self) -> Iterator[Trajectory]:
        """Yield the selected trajectories.

        Raises:
            HermesError: a log cannot be read.
        """
        for trial, state in self.state.results():
            if state.accepted is None:
                self.left_out["without a result"] += 1
            elif reason := self.selection.find_exclusion(state.accepted):
                self.left_out[reason] += 1
            else:
                yield from self.read_trial(trial, state.accepted)

    def convert(self, trajectory: Trajectory, form: Callable[[Trajectory], Iterable[Row]]) -> list[Row]:
        """Return the rows of a trajectory in a form; none of one that is damaged."""
        with self._leave_out_damaged(trajectory.result):
            return list(form(trajectory))
        return []

    def read_trial(self, trial: Trial, result: dict[str, Any]) -> list[Trajectory]:
        """Return the trajectories of a result, one for each step; those that are left out are counted.

        Raises:
            HermesError: its log cannot be read.
        """
        with self._leave_out_damaged(result):
            found = [self._read(trial, result, id) for id in _list_conversations(result)]
            return [each for each in found if each is not None]
        return []

    @contextmanager
    def _leave_out_damaged(self, result: dict[str, Any]) -> Generator[None]:
        """Leave out a trial whose record is damaged, if its log was in the reach of an agent."""
        try:
            yield
        except _DAMAGE:
            if not (self.run.shard(str(result["shard"])) / PREPAID).exists():
                raise
            self.left_out["with a damaged record"] += 1

    def _read(self, trial: Trial, result: dict[str, Any], id: str) -> Trajectory | None:
        log, children = self._open_log(str(result["shard"]))
        conversation = read_conversation(log, children, id)
        if not conversation.events:
            self.left_out["without a record"] += 1
            return None
        if self._has_secret(conversation):
            self.left_out["with a secret"] += 1
            return None
        return Trajectory(trial, result, conversation)

    def _has_secret(self, conversation: RecordedConversation) -> bool:
        if conversation.is_redacted or any(map(self._has_secret, conversation.children)):
            return True
        texts = (text for event in conversation.events for text in _list_read_texts(event))
        return any(self.clean(text) != text for text in texts)

    def _open_log(self, shard: str) -> tuple[EventLog, dict[str, list[str]]]:
        if shard not in self._logs:
            log = self._stack.enter_context(EventLog(self.run.shard(shard) / "conversations.sqlite"))
            self._logs[shard] = log, log.children()
        return self._logs[shard]


def read_conversation(log: EventLog, children: Mapping[str, Sequence[str]], id: str) -> RecordedConversation:
    """Return a conversation of a log, with those that it delegated tasks to; see `EventLog.children`."""
    events = log.events(id)
    digest = next((str(each.data["schemas"]) for each in reversed(events) if each.data.get("schemas")), "")
    below = tuple(read_conversation(log, children, each) for each in children.get(id, ()))
    return RecordedConversation(id, events, read_schemas(log, digest), below)
