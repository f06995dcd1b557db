"""Groups of scored trials in the form of Atropos: token ids, masks, logprobs and scores.

The server of Atropos takes wrong lengths, NaN and a group that it has already, so everything is checked here. A group
that is not whole, or whose tokens are not those that the model wrote, is dropped with its reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_agent.batch.canonical_json import digest_of
from hermes_exec_agent.batch.trajectories.token_form import TokenForm
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_agent.batch.trajectories.reading import Trajectory

UNSAMPLED = -100
"""The mask of a token that the model did not write."""
NO_LOGPROB = 1.0
"""The logprob of such a token; no logprob is above 0."""
_TOLERANCE = 1e-3
"""What rounding may put a logprob above 0."""
_REASON = 200


class GroupFault(Exception):
    """A group cannot be posted; ``kind`` is the name under which it is counted."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ScoredSequence:
    """The tokens of one trial, with its score."""

    tokens: Sequence[int]
    masks: Sequence[int]
    logprobs: Sequence[float]
    score: float
    key: str
    """Of the trial."""
    parts: Mapping[str, float]
    """The parts of the score."""


@dataclass(frozen=True, slots=True)
class ScoredGroup:
    """A group that can be posted."""

    sequences: Sequence[ScoredSequence]

    @property
    def digest(self) -> str:
        """The digest of its tokens, by which a duplicate is found."""
        return digest_of(sorted([list(each.tokens), list(each.masks)] for each in self.sequences))

    @property
    def has_equal_scores(self) -> bool:
        """Whether all scores are equal, so that no sequence is better than another."""
        return len({each.score for each in self.sequences}) == 1

    def to_wire(self) -> dict[str, Any]:
        """Return the fields of a post, without the id of the environment."""
        return {
            "tokens": [list(each.tokens) for each in self.sequences],
            "masks": [list(each.masks) for each in self.sequences],
            "scores": [each.score for each in self.sequences],
            "inference_logprobs": [list(each.logprobs) for each in self.sequences],
        }


def convert_trajectory(trajectory: Trajectory) -> ScoredSequence:
    """Return the tokens of a trial.

    Raises:
        GroupFault: it has no reward, no tokens, or its prompts do not continue each other.
    """
    result = trajectory.result
    if result["state"] != "graded" or result["reward"] is None:
        raise GroupFault("not graded", flatten(str(result["reason"]), _REASON))
    form = TokenForm()
    rows = list(form(trajectory))
    if not rows:
        raise GroupFault("without tokens", flatten(str(result["reason"]), _REASON))
    if len(rows) > 1 or form.breaks:
        causes = ", ".join(sorted(form.breaks)) or "a delegated conversation"
        raise GroupFault("broken", f"the prompts of {result['key']} do not continue each other: {causes}")
    row = rows[0]
    check = cast("dict[str, Any]", result.get("check") or {})
    pairs = list(zip(row["ids"], row["mask"], strict=True))
    return ScoredSequence(
        tokens=row["ids"],
        masks=[id if is_sampled else UNSAMPLED for id, is_sampled in pairs],
        logprobs=[
            logprob if is_sampled else NO_LOGPROB
            for logprob, is_sampled in zip(row["logprobs"], row["mask"], strict=True)
        ],
        score=float(result["reward"]),
        key=str(result["key"]),
        parts=check.get("parts") or {},
    )


def check_group(sequences: Sequence[ScoredSequence], size: int, max_tokens: int) -> ScoredGroup:
    """Return a group of exactly ``size`` sequences of at most ``max_tokens`` tokens.

    Raises:
        GroupFault: it is not such a group.
    """
    if len(sequences) != size:
        raise GroupFault("not whole", f"{len(sequences)} of {size} trials")
    for each in sequences:
        _check_sequence(each, max_tokens)
    if size > 1 and len({tuple(each.tokens) for each in sequences}) == 1:
        raise GroupFault("identical", "all replies are equal; is the temperature 0, or the seed fixed?")
    return ScoredGroup(sequences)


def _check_sequence(each: ScoredSequence, max_tokens: int) -> None:
    lengths = {len(each.tokens), len(each.masks), len(each.logprobs)}
    if len(lengths) != 1:
        raise GroupFault("wrong lengths", f"{each.key}: tokens, masks and logprobs differ in length: {sorted(lengths)}")
    if len(each.tokens) > max_tokens:
        raise GroupFault("too long", f"{each.key}: {len(each.tokens)} tokens, and the trainer takes {max_tokens}")
    if not math.isfinite(each.score):
        raise GroupFault("not graded", f"{each.key}: the reward is {each.score}")
    sampled = 0
    for id, mask, logprob in zip(each.tokens, each.masks, each.logprobs, strict=True):
        if mask == UNSAMPLED:
            is_right = logprob == NO_LOGPROB
        else:
            sampled += 1
            is_right = mask == id and math.isfinite(logprob) and logprob <= _TOLERANCE
        if id < 0 or not is_right:
            raise GroupFault("wrong masks", f"{each.key}: id {id}, mask {mask}, logprob {logprob}")
    if not sampled:
        raise GroupFault("without tokens", f"{each.key}: the model wrote none")
