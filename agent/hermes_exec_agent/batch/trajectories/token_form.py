"""Trajectories as token ids, for trainers.

A row holds a maximal run of calls, each of which has a prompt that begins with the ids of the prompt and the completion
before it. What comes between is not sampled. Where the ids differ, a new row begins, and the break is counted by its
cause: a trainer must not learn that a model wrote tokens that it did not write.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.runtime.token_record import DamagedTokens, TokenReader, count_shared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hermes_exec_agent.batch.trajectories.reading import RecordedConversation, Trajectory
    from hermes_exec_agent.models.call_trace import TokenIds

_FEW = 8
"""Ids that differ if the same text was split into other tokens."""
_COMPARED = 4096


@dataclass(slots=True)
class _Row:
    """The calls of one row."""

    ids: list[int] = field(default_factory=list[int])
    mask: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    calls: int = 0

    def extends(self, prompt: Sequence[int]) -> bool:
        """Whether a prompt begins with the ids of the row."""
        return len(prompt) >= len(self.ids) and count_shared(self.ids, list(prompt)) == len(self.ids)

    def add(self, tokens: TokenIds) -> None:
        new = tokens.prompt[len(self.ids) :]
        self.ids += [*new, *tokens.completion]
        self.mask += [0] * len(new) + [1] * len(tokens.completion)
        self.logprobs += [0.0] * len(new) + list(tokens.logprobs)
        self.calls += 1


@dataclass(slots=True)
class TokenForm:
    """Creates the rows of trajectories; ``breaks`` counts the rows that begin after a break, by cause."""

    breaks: Counter[str] = field(default_factory=Counter[str])

    def __call__(self, trajectory: Trajectory) -> Iterator[dict[str, Any]]:
        """Yield the rows of a trajectory and of its delegated conversations."""
        rows = [row for each in _list_conversations(trajectory.conversation) for row in self._list_rows(each)]
        for number, row in enumerate(rows, 1):
            yield {
                "ids": row.ids,
                "mask": row.mask,
                "logprobs": row.logprobs,
                "calls": row.calls,
                **trajectory.describe(),
                "row": number,
            }

    def _list_rows(self, conversation: RecordedConversation) -> list[_Row]:
        reader = TokenReader()
        rows: list[_Row] = []
        cause = ""
        for event in conversation.events:
            if event.kind == "compacted":
                cause = "compaction"
            record = event.data.get("tokens")
            if event.kind != "assistant" or not record:
                continue
            try:
                tokens = reader.unpack(record)
            except DamagedTokens:
                self.breaks["damaged"] += 1
                return rows
            if tokens is None:
                cause = "secret"
                continue
            if not rows or cause == "secret" or not rows[-1].extends(tokens.prompt):
                if rows:
                    self.breaks[cause or find_cause(rows[-1].ids, tokens.prompt)] += 1
                rows.append(_Row())
            rows[-1].add(tokens)
            cause = ""
        return rows


def _list_conversations(conversation: RecordedConversation) -> Iterator[RecordedConversation]:
    yield conversation
    for child in conversation.children:
        yield from _list_conversations(child)


def find_cause(before: Sequence[int], prompt: Sequence[int]) -> str:
    """Return why a prompt does not begin with the ids before it.

    A few other ids are the same text in other tokens; more are what a chat template left out or added.
    """
    start = count_shared(list(before), list(prompt))
    one, other = list(before[start : start + _COMPARED]), list(prompt[start : start + _COMPARED])
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    end = next(((block.a, block.b) for block in blocks if block.size), (len(one), len(other)))
    return "retokenisation" if max(end) <= _FEW else "template"
