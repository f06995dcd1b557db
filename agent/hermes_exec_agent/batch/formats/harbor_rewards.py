"""The rewards that the tests of a Harbor task wrote, and the one of several steps."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Literal, cast

from hermes_exec_agent.batch.formats.grading import CheckFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LONGEST = 64 << 10
"""Bytes of a reward file."""


def parse_rewards(text: bytes, *, is_json: bool) -> dict[str, float]:
    """Return the rewards in a file by name; that of a plain number is ``reward``.

    Raises:
        CheckFault: they are not finite numbers.
    """
    if len(text) > LONGEST:
        raise CheckFault(f"the reward has more than {LONGEST} bytes")
    try:
        found: object = json.loads(text) if is_json else float(text)
    except (ValueError, RecursionError):
        raise CheckFault(f"the reward is not {'JSON' if is_json else 'a number'}") from None
    table = cast("dict[str, object]", found) if isinstance(found, dict) else {"reward": found}
    rewards: dict[str, float] = {}
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
            raise CheckFault(f"the reward {name[:60]!r} is not a finite number")
        rewards[name] = float(value)
    return rewards


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can have
        return False


def choose_reward(rewards: Mapping[str, float]) -> float:
    """Return the one that counts: it is named ``reward``, or is the only one.

    Raises:
        CheckFault: several have other names.
    """
    if "reward" in rewards:
        return rewards["reward"]
    if len(rewards) != 1:
        raise CheckFault(f"reward.json has {len(rewards)} rewards, and none is named 'reward'")
    return next(iter(rewards.values()))


def merge_rewards(steps: Sequence[Mapping[str, float]], strategy: Literal["mean", "final"]) -> dict[str, float]:
    """Return the rewards of a task from those of its steps; a name that a step lacks counts as 0 in the mean."""
    if strategy == "final":
        return dict(steps[-1])
    names = sorted({name for rewards in steps for name in rewards})
    return {name: sum(rewards.get(name, 0.0) for rewards in steps) / len(steps) for name in names}


def find_shortfall(rewards: Mapping[str, float], least: Mapping[str, float]) -> str:
    """Return which reward is less than a step requires; empty if none is."""
    for name, limit in least.items():
        if rewards.get(name, -math.inf) < limit:
            return f"{name} {rewards.get(name, 'missing')} is less than {limit:g}"
    return ""
