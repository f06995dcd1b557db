"""What a skill at work is refused is seen from outside, whatever it makes of it."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import Refused
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.skills.run import runner as running
from hermes_exec_agent.skills.run.warm import WarmRunner
from hermes_exec_policies.load import load_policy
from tests.rigs.skill_makers import PERSON, registered, report_of, tree_in

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome
    from hermes_exec_agent.skills.run.outcome import SkillOutcome
    from tests.conftest import Require

pytestmark = pytest.mark.timeout(300)  # the first run of a policy proves it
MAIN = "scripts/main.py"
SILENT = """
import socket
def run(a: int, b: int) -> int:
    for _ in range(a):
        try:
            socket.socket(socket.AF_INET)
        except OSError:
            pass
    return a + b
"""
LINE = "Sandbox Jailbreak: it makes a socket of another family than unix: socket of family 2"


@pytest.fixture(autouse=True)
def sandboxes(require: Require) -> None:
    require("bwrap", "makes the sandbox")


def run(home: RegistryHome, a: int) -> SkillOutcome:
    return asyncio.run(running.run(Registry(home), "add-numbers", {"a": a, "b": 2}))


def test_a_refusal_that_it_keeps_silent_about_ends_in_the_log_and_in_quarantine(
    home: RegistryHome, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registered(home, tmp_path, files={MAIN: SILENT})
    assert run(home, a=0).result == 2
    outcome = run(home, a=1)
    assert (outcome.result, outcome.kind, outcome.denied, outcome.quarantined) == (None, "security", LINE, True)
    assert "socket" not in outcome.error  # which a model reads
    assert [record.getMessage() for record in caplog.records] == [f"add-numbers 1: {LINE}"]
    with pytest.raises(Refused, match="in quarantine: Sandbox Jailbreak"):
        run(home, a=0)


def test_what_was_seen_is_told_also_where_nothing_can_be_recorded(home: RegistryHome, tmp_path: Path) -> None:
    registered(home, tmp_path, files={MAIN: SILENT})
    (home.folder / "lock").unlink()
    (home.folder / "lock").mkdir()  # as on a disk that is read-only
    outcome = run(home, a=1)
    assert (outcome.result, outcome.denied, outcome.quarantined) == (None, LINE, False)


def test_it_is_seen_in_a_sandbox_that_was_kept_ready(home: RegistryHome, tmp_path: Path) -> None:
    registered(home, tmp_path, files={MAIN: SILENT})

    async def main() -> tuple[SkillOutcome, str]:
        async with WarmRunner(Registry(home), ready=1) as runner:
            await runner.prepare("add-numbers")
            outcome = await runner.run("add-numbers", {"a": 1, "b": 2})
            return outcome, runner.registry.skill("add-numbers").state

    outcome, state = asyncio.run(main())
    assert (outcome.result, outcome.denied, state) == (None, LINE, "quarantined")


def test_what_its_modules_do_by_themselves_is_not_held_against_it(home: RegistryHome, tmp_path: Path) -> None:
    tree = tree_in(tmp_path, {MAIN: SILENT})
    report = report_of(tree)
    assert report.evidence is not None
    usual = (("suites.denied-network", LINE, 1),)
    known = dataclasses.replace(report, evidence=dataclasses.replace(report.evidence, usual=usual))
    Registry(home).register(tree, known, load_policy("skill-run"), author=PERSON, kernel=os.uname().release)
    assert run(home, a=1).result == 3
    assert run(home, a=2).kind == "security"  # more often than they do


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("raise OSError(1, 'Operation not permitted')", r"it is not permitted\)$"),
        ("open('/usr/x', 'w')", r"'/usr/x' \(.*; a run writes below /app/data alone\)$"),
    ],
)
def test_what_it_says_itself_is_told_and_keeps_nothing_back(
    home: RegistryHome, tmp_path: Path, body: str, line: str
) -> None:
    import re

    registered(home, tmp_path, files={MAIN: f"def run(a: int, b: int) -> None:\n    {body}\n"})
    outcome = run(home, a=1)
    assert re.search(line, outcome.denied), outcome
    assert (outcome.quarantined, Registry(home).skill("add-numbers").state) == (False, "ready")
