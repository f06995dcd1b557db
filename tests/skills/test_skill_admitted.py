"""From a folder to a result, through the whole gate."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.skills.registry import bundle
from hermes_exec_agent.skills.registry.admission import AdmissionResult, admit, prove_again, validate_and_register
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run import runner
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level
from tests.rigs.breadth import leave_out
from tests.rigs.skill_makers import PERSON, home_in
from tests.rigs.walks import Walk

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from tests.conftest import Require

leave_out("takes long")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
HEAD = "---\nname: add-numbers\ndescription: Adds two whole numbers. Use it for sums.\n---\n# Sums\n"
MAIN = '''"""Sums."""


def run(a: int, b: int) -> int:
    """Return the sum of two whole numbers."""
    if not isinstance(a, int) or not isinstance(b, int):
        raise TypeError("a and b are whole numbers")
    return a + b
'''
TEST = """import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "scripts"))
import main


def test_sums():
    assert main.run(1, 2) == 3
    assert main.run(-1, 1) == 0
    assert main.run(5, 0) == 5
"""
HELD_OUT = [Case({"a": 20, "b": 22}, 42, Level.PERSON)]


@pytest.fixture(autouse=True)
def sandboxes(require: Require) -> None:
    require("bwrap", "makes the sandbox")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "add-numbers"
    for name, text in {"SKILL.md": HEAD, "scripts/main.py": MAIN, "tests/test_main.py": TEST}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def admitted(home: RegistryHome, source: Path, cases: list[Case]) -> AdmissionResult:
    return asyncio.run(admit(Registry(home), source, author=PERSON, cases=cases))


def test_a_good_skill_is_registered_runs_travels_and_is_proven_anew(
    home: RegistryHome, source: Path, tmp_path: Path
) -> None:
    with Walk() as walk:
        done = admitted(home, source, HELD_OUT)
    assert done.version is not None, done.report.facts()
    assert (done.version.number, done.version.level) == (1, "person")
    gate = walk.files("policies/hermes_exec_policies/gate")
    assert len(gate) <= 12, gate  # as ARCHITECTURE.md says
    assert not [each for each in gate if "/analysis/" in each]  # hostile text is parsed in a child process alone
    registry = Registry(home)
    assert asyncio.run(runner.run(registry, "add-numbers", {"a": 2, "b": 3})).result == 5

    registry.quarantine("add-numbers", 1, "to see it released")
    again = asyncio.run(prove_again(registry, registry.version("add-numbers"), cases=HELD_OUT))
    assert again.version is not None, again.report.facts()
    assert registry.skill("add-numbers").state == "ready"

    bundle.write(registry, done.version, tmp_path / "bundle")
    other = Registry(home_in(tmp_path / "other"))
    with private_folder() as folder:
        _, tree = bundle.read(other, tmp_path / "bundle", folder)
        taken = asyncio.run(validate_and_register(other, tree, author=PERSON))
    assert taken.version is not None, taken.report.facts()
    assert (taken.version.digest, taken.version.level) == (done.version.digest, "self-tested")  # its own gate's word


def test_the_same_bytes_again_lose_no_evidence(home: RegistryHome, source: Path, tmp_path: Path) -> None:
    first = admitted(home, source, HELD_OUT).version
    assert first is not None
    registry = Registry(home)
    bundle.write(registry, first, tmp_path / "bundle")
    with private_folder() as folder:
        _, tree = bundle.read(registry, tmp_path / "bundle", folder)
        again = asyncio.run(validate_and_register(registry, tree, author=PERSON)).version
    assert again is not None
    assert (again.number, again.digest, again.level) == (2, first.digest, "person")
    (source / "scripts" / "main.py").write_text(MAIN + "\n")
    assert [each.level for each in [admitted(home, source, []).version] if each] == ["self-tested"]


def test_a_skill_that_is_wrong_by_a_case_is_not_registered(home: RegistryHome, source: Path) -> None:
    done = admitted(home, source, [Case({"a": 1, "b": 1}, 3, Level.PERSON)])
    assert (done.version, done.report.outcome) == (None, "functional")
    assert Registry(home).skills() == {}


def test_a_hostile_skill_is_not_registered(home: RegistryHome, source: Path) -> None:
    evil = "    exec(bytes.fromhex('696d706f7274206f73'))\n    return a + b"
    (source / "scripts/main.py").write_text(MAIN.replace("    return a + b", evil))
    done = admitted(home, source, HELD_OUT)
    assert (done.version, done.report.accepted) == (None, False)
    assert Registry(home).skills() == {}
