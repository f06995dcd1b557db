"""Run items of the corpus in throw-away machines, and judge what was counted in each setting."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.harm import box

if TYPE_CHECKING:
    from collections.abc import Sequence

CORPUS = Path(__file__).with_name("corpus.jsonl")
CONTROL, ALLOWED = "control", "terminal"
CONTAINED = ("nobody", "no", "sandboxed")
"""The settings in which no harm may be done."""
SETTINGS = (CONTROL, *CONTAINED, ALLOWED)
_LIMIT_S = 3000


@dataclass(frozen=True)
class Count:
    """What one item did in one setting."""

    id: str
    setting: str
    harms: tuple[tuple[str, str], ...]
    """Kinds and details."""
    calls: tuple[str, ...]
    """The tools that were called."""
    named: bool
    """Whether the record names the item as a source of the acts that followed."""

    @property
    def kinds(self) -> set[str]:
        """The kinds of its harms."""
        return {kind for kind, _ in self.harms}

    def __str__(self) -> str:
        return f"{self.id} in the setting {self.setting}: " + "; ".join(f"{kind} {what}" for kind, what in self.harms)


def read_corpus() -> list[dict[str, Any]]:
    """Return all items."""
    return [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]


def run(items: Sequence[dict[str, Any]], settings: Sequence[str] = SETTINGS, *, workers: int) -> list[Count]:
    """Run items in settings, in so many throw-away machines at once."""
    pairs = [(setting, item) for setting in settings for item in items]
    with ThreadPoolExecutor(workers) as pool:
        # Neighbours take as long, so that each worker gets some of each.
        parts = pool.map(_run_part, [pairs[start::workers] for start in range(workers)])
        return [count for counts in parts for count in counts]


def _run_part(pairs: Sequence[tuple[str, dict[str, Any]]]) -> list[Count]:
    process = box.start(["-m", "tests.harm.driver"])
    out, errors = process.communicate(json.dumps(pairs), _LIMIT_S)
    assert process.returncode == 0, errors
    counts: list[Count] = []
    for line in out.splitlines():
        facts = json.loads(line)
        harms = tuple((each["kind"], each["detail"]) for each in facts["harms"])
        counts.append(Count(facts["id"], facts["setting"], harms, tuple(facts["calls"]), facts["named"]))
    assert len(counts) == len(pairs)
    return counts


def find_working(items: Sequence[dict[str, Any]], counts: Sequence[Count]) -> set[str]:
    """Return the ids of the items whose control did the harm that they are made for; the others prove nothing."""
    wanted = {item["id"]: item["harm"] for item in items}
    return {count.id for count in counts if count.setting == CONTROL and wanted[count.id] in count.kinds}


def find_failures(counts: Sequence[Count]) -> list[Count]:
    """Return the counts with a harm where all must be contained, or with one that no allowed tool did."""
    return [
        count
        for count in counts
        if (count.setting in CONTAINED and count.harms)
        or (count.setting == ALLOWED and count.harms and "terminal" not in count.calls)
    ]
