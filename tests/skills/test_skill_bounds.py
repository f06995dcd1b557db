"""What a skill asks for and is granted of memory, time, disk and processes, in the gate and in its runs alike."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import Refused
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run import runner
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.check import check
from hermes_exec_policies.gate.grants import Grants, Needs, apply_bounds, resolve_bounds
from hermes_exec_policies.gate.verdict import Level
from hermes_exec_policies.load import load_policy
from tests.rigs.breadth import thorough
from tests.rigs.corpus import BASES, TEST, write_skill
from tests.rigs.skill_makers import PERSON, report_of, tree_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from tests.conftest import Require

pytestmark = pytest.mark.timeout(300)  # the first run of a policy proves it
MIB = 1 << 20
MEMORY, SECONDS, DISK, PROCESSES = "limit-memory-mib", "limit-seconds", "limit-disk-mib", "limit-processes"


def given(needed: Mapping[str, int], granted: Mapping[str, int], policy: str = "skill-validate") -> dict[str, int]:
    found, wrong = resolve_bounds(load_policy(policy), Needs(limits=needed), Grants(limits=granted))
    assert not wrong
    return found


def refused(needed: Mapping[str, int], granted: Mapping[str, int], policy: str = "skill-validate") -> str:
    _, (wrong, *more) = resolve_bounds(load_policy(policy), Needs(limits=needed), Grants(limits=granted))
    assert (wrong.kind, wrong.code, more) == ("functional", "manifest.not-granted", [])
    return wrong.operator


def test_less_is_given_to_whoever_asks_and_more_when_it_is_granted() -> None:
    assert given({}, {}) == {}
    assert given({MEMORY: 128, SECONDS: 30}, {}) == {MEMORY: 128, SECONDS: 30}
    assert given({MEMORY: 1024}, {MEMORY: 1024}) == {MEMORY: 1024}
    assert given({MEMORY: 600}, {MEMORY: 1024}) == {MEMORY: 600}
    assert given({}, {MEMORY: 128, PROCESSES: 16}) == {MEMORY: 128, PROCESSES: 16}
    assert given({}, {MEMORY: 1024}) == {}  # nobody asks for it


def test_more_than_was_granted_is_refused() -> None:
    assert refused({MEMORY: 1024}, {}) == "limit-memory-mib of 1024 is asked for and was not granted"
    assert refused({MEMORY: 256}, {MEMORY: 128}) == "limit-memory-mib of 256 is asked for and was not granted"


def test_more_than_the_policy_allows_cannot_be_granted() -> None:
    said = "limit-memory-mib of 4096 is more than the policy skill-validate allows: 1024"
    assert refused({MEMORY: 4096}, {MEMORY: 4096}) == said
    assert refused({}, {MEMORY: 4096}) == said
    # Of a policy that was chosen for it, its own limits are the most.
    assert refused({}, {SECONDS: 901}, "skill-run").endswith("more than the policy skill-run allows: 900")
    with pytest.raises(ValueError, match="4096 is more than the policy"):
        apply_bounds(load_policy("skill-validate"), {MEMORY: 4096})


def test_files_have_to_fit_into_the_memory() -> None:
    assert refused({DISK: 200}, {DISK: 200, MEMORY: 128}) == (
        "limit-disk-mib of 200 needs a limit-memory-mib of 400: files are kept in memory"
    )
    assert apply_bounds(load_policy("skill-validate"), {MEMORY: 64}).limits.disk == 32 * MIB


def test_bounds_change_those_limits_and_what_would_stand_in_their_way() -> None:
    own = load_policy("skill-validate")
    limits = apply_bounds(own, {MEMORY: 1024, SECONDS: 300, DISK: 128, PROCESSES: 32}).limits
    assert (limits.memory, limits.time, limits.cpu_time) == (1024 * MIB, 300, 300)
    assert (limits.disk, limits.file_size, limits.processes) == (128 * MIB, 128 * MIB, 32)
    less = apply_bounds(own, {SECONDS: 5, DISK: 1}).limits
    assert (less.time, less.cpu_time, less.disk, less.file_size) == (5, 60, MIB, 64 * MIB)
    assert apply_bounds(own, {}) is own


def registered(home: RegistryHome, folder: Path, body: str, limits: Mapping[str, int]) -> None:
    text = f"import time\ndef run(a: int, b: int) -> int:\n    {body}\n    return a + b\n"
    tree = tree_in(folder, {"scripts/main.py": text})
    report = report_of(tree, grants={"limits": limits, "hosts": ()})
    Registry(home).register(tree, report, load_policy("skill-run"), author=PERSON, kernel=os.uname().release)


@pytest.mark.parametrize(
    ("limit", "body", "kind"),
    [
        ({SECONDS: 1}, "time.sleep(3600)", "timeout"),
        ({DISK: 1}, "open('/app/data/x', 'wb').write(bytes(2 << 20))", "OSError"),
    ],
)
@thorough
def test_a_run_has_the_bounds_that_were_signed(
    require: Require, home: RegistryHome, tmp_path: Path, limit: dict[str, int], body: str, kind: str
) -> None:
    require("bwrap", "makes the sandbox")
    registered(home, tmp_path, body, limit)
    outcome = asyncio.run(runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2}))
    assert (outcome.kind, outcome.result) == (kind, None), outcome


def test_bounds_that_the_policy_allows_no_more_are_refused(home: RegistryHome, tmp_path: Path) -> None:
    registered(home, tmp_path, "pass", {MEMORY: 4096})
    with pytest.raises(Refused, match="cannot be applied any more: limit-memory-mib of 4096"):
        asyncio.run(runner.run(Registry(home), "add-numbers", {"a": 1, "b": 2}))


@pytest.mark.slow
@thorough
def test_the_gate_judges_within_the_same_bounds(require: Require, tmp_path: Path) -> None:
    require("bwrap", "makes the sandbox")
    text = BASES["good"].replace("\n    ", "\n    open('/app/data/x', 'wb').write(bytes(2 << 20))\n    ", 1)
    skill = write_skill(tmp_path / "sum-two", {"scripts/main.py": text, "tests/test_main.py": TEST})
    about = (skill / "SKILL.md").read_text()
    (skill / "SKILL.md").write_text(about.replace("\n---\n", '\nmetadata:\n  limit-disk-mib: "1"\n---\n', 1))
    report = asyncio.run(check(skill, cases=[Case([20, 22], 42, Level.PERSON)]))
    assert report.grants["limits"] == {DISK: 1}
    assert (report.outcome, "No space left on device" in str(report.findings)) == ("functional", True), report.findings
