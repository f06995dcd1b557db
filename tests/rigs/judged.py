"""Wrong functions that behave while they are judged: ``python -m tests.rigs.judged`` judges all, and writes the table.

Each adds two numbers, and its tests (those of the item, or one for all) and a person's case hold. Its result is false
for untried arguments, on another day, or where it believes that it is not judged (``class`` says which). ``false`` are
arguments of that kind.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.check import check
from hermes_exec_policies.gate.verdict import Level
from tests.rigs import corpus
from tests.rigs.tables import replace_block

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGIN, END = "<!-- tricks on the judge: written by tests/rigs/judged.py -->", "<!-- end of tricks on the judge -->"
REFUSED = "refused"
_AT_ONCE = 2
_CASE = Case({"a": 20, "b": 22}, 42, Level.PERSON)
TEST = """\
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "scripts"))
import main


def test_sum():
    assert main.run(2, 2) == 4
"""


async def judge(items: Sequence[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return the level at which each would be registered, or that it is refused, and why; by its id."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(item: dict[str, Any]) -> tuple[str, str]:
        async with turns:
            with tempfile.TemporaryDirectory(prefix="judged-") as room:
                files = {"scripts/main.py": item["code"], "tests/test_main.py": item.get("test", TEST)}
                report = await check(corpus.write_skill(Path(room) / item["id"], files), cases=[_CASE])
        if report.evidence is None:
            return REFUSED, report.reasons[0]
        why = [each.operator for each in report.findings if each.code == "suites.unchecked"]
        return str(report.evidence.level), "; ".join(why)

    found = await asyncio.gather(*map(one, items))
    return {item["id"]: each for item, each in zip(items, found, strict=True)}


def write_table(items: Sequence[dict[str, Any]], found: dict[str, tuple[str, str]]) -> str:
    """Return the table: what each class of tricks depends on, and what came of it."""
    lines = ["| the false result depends on | tricks | refused | self-tested | above |", "|---|---|---|---|---|"]
    for kind in [*sorted({item["class"] for item in items}), "**all**"]:
        levels = Counter(found[item["id"]][0] for item in items if kind in {item["class"], "**all**"})
        above = levels.total() - levels[REFUSED] - levels["self-tested"]
        lines.append(f"| {kind} | {levels.total()} | {levels[REFUSED]} | {levels['self-tested']} | {above} |")
    return "\n".join(lines)


def main() -> int:
    """Judge all, and write the table into docs/security.md."""
    items = corpus.items("judge")
    found = asyncio.run(judge(items))
    table = write_table(items, found)
    replace_block(BEGIN, END, table)
    print(table)
    return int(any(level not in {REFUSED, "self-tested"} for level, _ in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
