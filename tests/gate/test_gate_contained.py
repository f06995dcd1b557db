"""Hostile items have no effect outside of their sandbox, whatever their text says; honest ones pass."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.check import check
from hermes_exec_policies.gate.verdict import Kind
from hermes_exec_policies.start_program import LOCAL
from tests.rigs import contained, controls, corpus, hostile, matrix
from tests.rigs.breadth import choose, thorough

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conftest import Require

    Maker = Callable[[dict[str, Any], Path], Path]

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
ACTS = controls.counted_acts()
HELD = {"blocked", "limit", "private", "unheld"}
HONEST = [
    (make, item)
    for make, kinds in ((corpus.benign, ("everyday", "plain", "honest", "benign")), (corpus.skill, ("skills",)))
    for kind in kinds
    for item in corpus.items(kind)
    if not item.get("needs")
]
CORRECTED = [(corpus.correct, item) for _, item in HONEST if "corrected" in item]


@thorough
def test_an_act_that_no_rule_refuses_is_contained_by_the_sandbox(require: Require) -> None:
    require("bwrap", "makes the sandbox")
    unrefused = [item for item in ACTS if item["class"] != "resource" and not contained.refused_by_text(item)]
    acts = choose("contained", unrefused, 8)
    done = asyncio.run(hostile.run_all(matrix.starter(LOCAL), acts))
    assert {act.id: act.outcome for act in done if act.outcome not in HELD} == {}
    assert len(done) == len(acts)


def refusals(items: Sequence[tuple[Maker, dict[str, Any]]], parent: Path) -> dict[str, list[str]]:
    """What the whole gate says of the items that it refuses."""

    async def one(make: Maker, item: dict[str, Any]) -> tuple[str, list[str]]:
        cases = [Case.parse(json.dumps(item["case"]))] if "case" in item else []
        async with turns:
            report = await check(make(item, parent), cases=cases)
        return item["id"], [each.model for each in report.findings if each.kind is not Kind.ADVICE]

    async def everything() -> dict[str, list[str]]:
        return dict(await asyncio.gather(*(one(make, item) for make, item in items)))

    turns = asyncio.Semaphore(2)
    return {name: said for name, said in asyncio.run(everything()).items() if said}


@thorough
def test_small_honest_functions_pass_the_whole_gate(require: Require, tmp_path: Path) -> None:
    require("bwrap", "makes the sandbox")
    passing = [(corpus.benign, each) for each in corpus.items("plain") if "corrected" not in each]  # 38 of 40
    sample = [*choose("plain", passing, 3)[:3], *choose("corrected", CORRECTED, 1)[:1]]
    assert refusals(sample, tmp_path) == {}


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_at_least_97_percent_of_honest_functions_pass_at_once_and_the_rest_after_one_correction(
    require: Require, tmp_path: Path
) -> None:
    require("bwrap", "makes the sandbox")
    refused = refusals(HONEST, tmp_path)
    print(f"honest functions: {len(HONEST) - len(refused)} of {len(HONEST)} pass at the first try")
    assert len(refused) <= len(HONEST) * 0.03, refused
    assert refused.keys() <= {item["id"] for _, item in CORRECTED}, refused
    assert refusals(CORRECTED, tmp_path) == {}


def test_only_acts_whose_control_works_are_counted() -> None:
    acts = hostile.acts(controls.CORPUS)
    working = controls.read_controls()
    print(f"controls: {len(ACTS)} of {len(ACTS)}")
    assert working.keys() <= {item["id"] for item in acts}
    assert {item["id"] for item in ACTS} == working.keys()
    assert all(working.values())
    assert len(ACTS) >= 0.9 * len(acts)


@pytest.mark.soak
def test_every_counted_act_works_without_a_sandbox_in_a_throw_away_machine() -> None:
    found = controls.run(ACTS)
    print(f"controls: {sum(map(bool, found.values()))} of {len(ACTS)}")
    assert [item["id"] for item in ACTS if not found.get(item["id"])] == []
