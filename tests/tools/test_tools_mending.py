"""A skill that fails in use: mended, gated and run as a new version, or left as it is, and why."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec_agent.models.catalog import Models
from hermes_exec_agent.models.scripted import ScriptedModel
from hermes_exec_agent.skills.registry.home import VARIABLE, RegistryHome, default_home
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import create_tools
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level
from tests.build.conftest import draft
from tests.rigs.breadth import thorough
from tests.rigs.skill_makers import registered
from tests.tools.conftest import Agent, Nobody, Somebody

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Require

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
FAILS = '''def run(a: int, b: int) -> int:
    """Add two numbers."""
    if b < 0:
        raise RuntimeError("not yet")
    return a + b
'''
ADDS = '''def add_numbers(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b
'''
TESTS = """import add_numbers


def test_sums():
    assert add_numbers.add_numbers(1, 2) == 3
    assert add_numbers.add_numbers(1, -2) == -1
"""
HELD = Case({"a": 20, "b": 22}, 42, Level.PERSON)
SKILL = json.dumps({"fault": "skill", "why": "it refuses what is negative"})
CALL = json.dumps({"fault": "call", "why": "b has to be positive"})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, require: Require) -> RegistryHome:
    """A registry of a test's own, with a skill that fails for what is negative."""
    require("bwrap", "makes the sandbox")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "registry"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    registered(default_home(), tmp_path / "made", files={"scripts/main.py": FAILS}, held=[HELD])
    return default_home()


class Called:
    """One call with a script in the model's place, and what came of it."""

    def __init__(self, folder: Path, *replies: str) -> None:
        self.folder = folder
        self.model = ScriptedModel(replies)
        self.lines: list[str] = []
        self.recorded: list[tuple[str, dict[str, Any]]] = []
        self.spent: list[Any] = []
        self.request = ""

    def __call__(
        self, person: Any = None, approvals: Approvals | None = None, *, mends: bool = True, **call: Any
    ) -> dict[str, Any]:
        async def done() -> dict[str, Any]:
            async with hermes_exec.open("local") as terminal:
                context = Context(
                    terminal, terminal.kind, person or Nobody(), "1", model="scripted", data=self.folder / "data",
                    approvals=approvals or Approvals("allow"), tell=self.lines.append, request=self.request,
                    record=lambda kind, data: self.recorded.append((kind, data)), spend=self.spent.append,
                    models=Models(self.model), repair_skills=mends,
                )  # fmt: skip
                agent = Agent(context, create_tools(context))
                try:
                    return await agent("skill_run", name="add-numbers", arguments='{"a": 1, "b": -1}', **call)
                finally:
                    await context.close()

        return asyncio.run(done())


def current(home: RegistryHome) -> int:
    return Registry(home).skill("add-numbers").current


@thorough
def test_a_skill_that_fails_is_mended_and_the_answer_says_which_version_it_is_of(
    tmp_path: Path, home: RegistryHome
) -> None:
    called = Called(tmp_path, SKILL, draft(ADDS, TESTS))
    called.request = "Sums, please: add_numbers(5, -3) -> 2 and other_skill(1, 2) -> 5."
    person = Somebody()
    told = called(person, Approvals("ask"))
    assert told["ok"], told
    assert told["output"] == "0"
    assert told["note"] == ("add-numbers 1 failed (RuntimeError: not yet); it was improved, and this is of version 2")
    assert [tool for tool, _ in person.asked] == ["skill_run", "skill_manage", "skill_manage"]
    assert called.lines[-1] == "[Core] Skill 'add_numbers' successfully registered."
    assert [(data["version"], data["outcome"]) for kind, data in called.recorded if kind == "skill"] == [
        (1, "RuntimeError"), (2, "registered"), (2, "ok"),
    ]  # fmt: skip
    assert len(called.spent) == 2
    version = Registry(home).version("add-numbers")
    evidence = version.evidence["evidence"]
    assert (version.number, version.level) == (2, "person")
    assert (evidence["cases"], evidence["answered"]) == (2, 1)  # what the first held, what the request says; this call
    assert "42" not in json.dumps([each.content for asked in called.model.requests for each in asked.messages])


def test_a_call_that_was_wrong_changes_no_skill(tmp_path: Path, home: RegistryHome) -> None:
    called = Called(tmp_path, CALL)
    told = called()
    assert told["error"]["type"] == "skill_failed"
    assert "the call was wrong, not add-numbers: b has to be positive" in told["note"]
    assert current(home) == 1


def test_a_change_that_does_not_pass_leaves_the_version_that_failed(tmp_path: Path, home: RegistryHome) -> None:
    called = Called(tmp_path, SKILL, "I would rather not.", "I would rather not.")
    told = called(Somebody())
    assert told["error"]["type"] == "skill_failed"
    assert "it was not improved: add-numbers was not registered" in told["note"]
    assert current(home) == 1


def test_what_nobody_agreed_to_is_not_done(tmp_path: Path, home: RegistryHome) -> None:
    called = Called(tmp_path)
    told = called(approvals=Approvals("allow", {"skill_manage": "ask"}))
    assert "it was not improved: skill_manage needs a person's approval" in told["note"]
    assert called.model.requests == []
    denied = Called(tmp_path)
    assert "skill_manage is not allowed" in denied(approvals=Approvals("allow", {"skill_manage": "deny"}))["note"]
    assert denied.model.requests == []
    assert current(home) == 1


def test_it_can_be_turned_off_and_a_version_that_was_asked_for_stays_what_it_is(
    tmp_path: Path, home: RegistryHome
) -> None:
    off, first = Called(tmp_path, SKILL), Called(tmp_path, SKILL)
    for called, told in ((off, off(mends=False)), (first, first(version=1))):
        assert (told["error"]["type"], "note" in told) == ("skill_failed", False)
        assert called.model.requests == []
    Registry(home).pin("add-numbers")
    pinned = Called(tmp_path, SKILL)
    assert pinned()["note"] == "it was not improved: it is pinned"
    assert pinned.model.requests == []


def test_evidence_never_gets_weaker_by_itself(tmp_path: Path, home: RegistryHome) -> None:
    registered(home, tmp_path / "again", files={"scripts/main.py": FAILS + "\n"})
    called = Called(tmp_path, SKILL)
    assert "a change could only be weaker" in called()["note"]
    assert called.model.requests == []
