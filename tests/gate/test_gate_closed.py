"""With any one layer gone nothing is accepted, and watching a sandbox changes nothing that it is proven by."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import ConfigError, HermesError, PlaceUnavailable, Unsupported
from hermes_exec_agent.skills.registry.admission import admit
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_backends.sandbox import host
from hermes_exec_policies.canaries.prove import prove
from hermes_exec_policies.gate import launch
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.check import check
from hermes_exec_policies.gate.verdict import Level, Report
from hermes_exec_policies.load import load_policy
from tests.rigs.breadth import leave_out
from tests.rigs.corpus import BASES, TEST, write_skill
from tests.rigs.skill_makers import PERSON, home_in, registered

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from tests.conftest import Require

leave_out("takes long")

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
CASE = Case([20, 22], 42, Level.PERSON)


@pytest.fixture
def skill(tmp_path: Path, require: Require, monkeypatch: pytest.MonkeyPatch) -> Path:
    require("bwrap", "makes the sandbox")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return write_skill(tmp_path / "sum-two", {"scripts/main.py": BASES["good"], "tests/test_main.py": TEST})


def judged(skill: Path, policy: str = "skill-validate") -> Report:
    return asyncio.run(check(skill, cases=[CASE], policy=policy))


@pytest.fixture
def forgetful() -> Generator[None]:
    """What is known of this machine is found out anew, before and after."""
    host.this_machine.cache_clear()
    yield
    host.this_machine.cache_clear()


@pytest.mark.usefixtures("forgetful")
def test_without_an_engine(skill: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises((PlaceUnavailable, Unsupported), match="bwrap|bubblewrap"):
        judged(skill)


def test_without_a_policy(skill: Path) -> None:
    with pytest.raises(ConfigError):
        judged(skill, "skill-absent")


def test_without_a_security_module(skill: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = dataclasses.replace(host.this_machine(), landlock_abi=0, profiles=())
    monkeypatch.setattr(launch, "this_machine", lambda: bare)
    with pytest.raises(Unsupported, match="lsm"):
        judged(skill)


def test_with_a_scanner_that_crashes(skill: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "bandit.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path / "broken")  # pyright: ignore[reportUnknownMemberType]  its types are partial
    report = judged(skill)
    assert not report.accepted
    assert {each.code for each in report.findings if each.kind != "advice"} == {"audit.unreadable"}


def test_without_a_filter_nothing_can_be_seen_so_nothing_is_judged(skill: Path) -> None:
    unfiltered = load_policy("skill-validate", {"syscalls": {"filtered": False}})
    with pytest.raises(Exception, match=r"filter|syscalls"):
        asyncio.run(check(skill, cases=[CASE], policy=unfiltered))


def test_what_is_refused_is_refused_in_the_same_way_while_somebody_watches(skill: Path) -> None:
    assert skill.is_dir()
    assert asyncio.run(prove(load_policy("skill-validate"), again=True, watched=True)).holds


def test_with_a_registry_that_cannot_be_read(skill: Path, tmp_path: Path) -> None:
    home = home_in(tmp_path / "registry")
    registered(home, tmp_path)
    kept = sorted(home.content.iterdir())
    home.log.write_bytes(b"no database" * 999)
    with pytest.raises(HermesError):
        asyncio.run(admit(Registry(home), skill, author=PERSON, cases=[CASE]))
    assert sorted(home.content.iterdir()) == kept
    assert home.log.read_bytes() == b"no database" * 999
