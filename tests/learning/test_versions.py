"""Versions of skills: outcomes by model, and the fall-back of a worse version, once and never of a pinned skill."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.learning import versions
from hermes_exec_agent.learning.outcomes import Evidence, judge_task
from hermes_exec_agent.learning.versions import STREAM, fall_back, read_versions, take_notices
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.skills.registry.registry import Registry
from tests.chat.conftest import say, script
from tests.cli.conftest import Cli, cli
from tests.learning.conftest import add_task
from tests.rigs.skill_makers import guide, use_registry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hermes_exec_agent.skills.registry.home import RegistryHome

__all__ = ["cli", "script"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RegistryHome:
    return use_registry(tmp_path, monkeypatch)


def register(home: RegistryHome, folder: Path, *texts: str) -> None:
    for text in texts:
        room = folder / text
        room.mkdir()
        guide(home, room, "deploy", "Deploys the site.", f"Do {text}.")


def record(log: EventLog, version: int, good: int, bad: int, model: str = "m", unknown: int = 0) -> None:
    """Append outcomes of tasks with a version, all at once, as the last judgement would compare them."""
    last = log.last("outcomes")
    results = ["succeeded"] * good + ["failed"] * bad + ["unknown"] * unknown
    log.append_all("outcomes", [
        ("outcome", {
            "task": last + number, "tasks": last + number, "conversation": f"c{last + number}", "request": 2,
            "result": result, "evidence": {"kind": "none" if result == "unknown" else "check"}, "model": model,
            "skills": [{"name": "deploy", "version": version}],
        })
        for number, result in enumerate(results, 1)
    ])  # fmt: skip


def falls(registry: Registry) -> list[dict[str, Any]]:
    return [dict(event.facts) for event in registry.skill("deploy").history if "fell" in event.facts]


def test_the_judgement_that_shows_a_version_to_be_worse_makes_it_fall_back_once(
    home: RegistryHome, log: EventLog, tmp_path: Path
) -> None:
    register(home, tmp_path, "one", "two")
    record(log, 1, 4, 1, unknown=2)
    record(log, 2, 2, 2)
    request = add_task(log, "c", skills=[("deploy", 1), ("deploy", 2)])  # the newer one counts
    assert take_notices(log) == []
    judge_task(log, "c", request, Evidence("person", succeeded=False, detail=""))
    registry = Registry(home)
    assert registry.skill("deploy").current == 1
    why = "2 of 5 tasks succeeded with version 2, 4 of 5 with version 1 (m)"
    assert falls(registry) == [{"fell": 2, "why": why}]
    (line,) = take_notices(log)
    assert line.startswith("skill deploy: version 2 did worse than version 1, which is current again: 2 of 5")
    assert take_notices(log) == []
    counts = {(each.version, each.model): (each.succeeded, each.failed, each.unknown) for each in read_versions(log)}
    assert counts == {(1, "m"): (4, 1, 2), (2, "m"): (2, 3, 0)}
    registry.choose("deploy", 2)  # a person insists
    record(log, 2, 0, 5)
    assert fall_back(log) == 0
    assert Registry(home).skill("deploy").current == 2


def test_counts_that_are_continued_are_those_of_all_events(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_BATCH", 7)
    draw = random.Random(7)

    def create(number: int) -> dict[str, Any]:
        """An outcome of one of 40 tasks: the first one, or later evidence."""
        task, kind = number % 40, draw.choice(["none", "check", "person"])
        result = "unknown" if kind == "none" else draw.choice(["succeeded", "failed"])
        skills = [{"name": f"s{task % 3}", "version": version} for version in range(1, task % 4)]
        record = {"task": task, "tasks": 40, "conversation": f"c{task}", "request": 2, "model": f"m{task % 2}"}
        return {**record, "result": result, "evidence": {"kind": kind}, "skills": skills}

    def count_from_events(name: str) -> list[versions.Row]:
        with closing(sqlite3.connect(log.path)) as base:
            return versions.count_from_events(base, name)

    for step in range(12):
        log.append_all("outcomes", [("outcome", create(step * 10 + number)) for number in range(10)])
        if step % 5 == 4:
            versions.forget_table(log)
        if step % 4 == 3:  # a person deletes the last events, and others take their numbers
            with closing(sqlite3.connect(log.path)) as base, base:
                base.execute("DROP TRIGGER IF EXISTS nothing_goes")
                base.execute("DELETE FROM events WHERE number > ?", (step * 10,))
            EventLog(log.path).append_all("outcomes", [("outcome", create(step + each)) for each in range(13)])
        for name in ("", "s1"):
            assert versions.count_outcomes(log, name) == count_from_events(name) != []
    log.append("outcomes", "outcome", {**create(0), "result": None})  # a record that the table does not take
    log.append("outcomes", "outcome", {**create(1), "evidence": {"kind": "person"}})
    assert versions.count_outcomes(log) == count_from_events("")


@pytest.mark.parametrize(
    ("before", "after", "falls_back"),
    [
        ([(5, 0, "m")], [(3, 2, "m")], True),
        ([(5, 0, "m")], [(61, 39, "m")], False),
        ([(4, 0, "m")], [(0, 9, "m")], False),
        ([(5, 0, "m")], [(0, 4, "m")], False),
        ([(5, 0, "strong")], [(0, 5, "weak")], False),
        ([(5, 0, "a"), (1, 19, "b")], [(3, 2, "a"), (20, 0, "b")], False),
        ([(5, 0, "a"), (5, 0, "b")], [(0, 5, "a"), (4, 1, "b")], True),
        ([(5, 0, "a"), (5, 0, "b")], [(5, 0, "a"), (0, 4, "b")], False),
    ],
)
def test_versions_are_compared_by_rate_with_enough_evidence_and_the_same_model(
    home: RegistryHome, log: EventLog, tmp_path: Path, before: list[Any], after: list[Any], *, falls_back: bool
) -> None:
    register(home, tmp_path, "one", "two")
    for version, rows in ((1, before), (2, after)):
        for good, bad, model in rows:
            record(log, version, good, bad, model)
    assert fall_back(log) == int(falls_back)
    assert Registry(home).skill("deploy").current == (1 if falls_back else 2)


def test_pinned_archived_and_quarantined_skills_stay_and_a_later_version_is_compared_with_its_own_basis(
    home: RegistryHome, log: EventLog, tmp_path: Path
) -> None:
    register(home, tmp_path, "one", "two")
    registry = Registry(home)
    record(log, 1, 5, 0)
    record(log, 2, 0, 5)
    for action, undo in (
        (lambda: registry.pin("deploy"), lambda: registry.mark("unpinned", "deploy")),
        (lambda: registry.mark("archived", "deploy"), lambda: registry.mark("restored", "deploy")),
        (lambda: registry.quarantine("deploy", 1, "changed"), lambda: registry.release("deploy", 1)),
    ):
        action()
        assert fall_back(log) == 0
        assert (falls(Registry(home)), take_notices(log)) == ([], [])
        undo()
    assert fall_back(log) == 1
    register(home, tmp_path, "three")  # version 3 is based on version 1
    record(log, 3, 1, 4)
    assert fall_back(log) == 1
    skill = Registry(home).skill("deploy")
    assert (skill.current, [each["fell"] for each in falls(Registry(home))]) == (1, [2, 3])
    assert len(take_notices(log)) == 2


FALL = """
import os, sys
from pathlib import Path
from hermes_exec_agent.learning import versions
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.skills.registry.registry import Registry

def wait_before(kind, name):
    call = getattr(kind, name)
    def call_later(*args, **named):
        print("ready", flush=True)
        sys.stdin.readline()
        return call(*args, **named)
    setattr(kind, name, call_later)

if sys.argv[2] == "killed":  # between the registry and the event log
    versions._record_falls = lambda *_: os._exit(9)
else:
    wait_before(Registry, "choose")
    wait_before(EventLog, "append")
with EventLog(Path(sys.argv[1])) as log:
    versions.fall_back(log)
    print(*versions.take_notices(log), sep="\\n")
"""


def start(log: EventLog, how: str = "") -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", FALL, str(log.path), how]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env={**os.environ}, stdin=pipe, stdout=pipe, text=True)


def release(programs: list[subprocess.Popen[str]]) -> None:
    """Let all programs make the next change at once, when the last one is about to make it."""
    for each in programs:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in programs:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()


@pytest.mark.parametrize("how", ["", "killed"])
def test_programs_at_once_and_one_that_is_killed_let_a_version_fall_once_and_say_so_once(
    home: RegistryHome, log: EventLog, tmp_path: Path, how: str
) -> None:
    register(home, tmp_path, "one", "two")
    record(log, 1, 5, 0)
    record(log, 2, 0, 5)
    if how:
        assert start(log, how).communicate()[0] == ""
        assert falls(Registry(home)) != []
    programs = [start(log) for _ in range(3)]
    for _ in ("record it", "notify") if how else ("choose", "record it", "notify"):
        release(programs)
    lines = [each.communicate()[0].strip() for each in programs]
    assert [each.returncode for each in programs] == [0] * 3
    assert len([line for line in lines if line]) == 1
    assert len(falls(Registry(home))) == 1
    assert [event.data["what"] for event in log.events(STREAM)] == ["fell", "notified"]


def test_the_next_chat_says_so_in_one_line_and_the_commands_show_the_counts(
    cli: Cli, script: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", cli.env["XDG_STATE_HOME"])
    monkeypatch.setenv("XDG_CONFIG_HOME", cli.env["XDG_CONFIG_HOME"])
    from hermes_exec_agent.skills.registry.home import default_home

    register(default_home(), tmp_path, "one", "two")
    with EventLog.of_user() as log:
        record(log, 1, 5, 0)
        record(log, 2, 1, 3)
        add_task(log, "c", skills=[("deploy", 2)])
    assert cli("learn", "outcome", "c", "bad").returncode == 0
    path = script(say("Hello."))
    done = cli("chat", "-q", "hi", "--replay", path, "--json")  # a program reads it: the line waits for a person
    assert "did worse" not in done.stderr.decode()
    shown = [cli("chat", "-q", "hi", "--replay", path).stderr.decode().count("did worse") for _ in range(2)]
    assert shown == [1, 0]
    assert cli.json("learn", "versions", "deploy", "--json") == [
        {"name": "deploy", "version": 1, "model": "m", "succeeded": 5, "failed": 0, "unknown": 0},
        {"name": "deploy", "version": 2, "model": "m", "succeeded": 1, "failed": 4, "unknown": 0},
    ]
    assert "deploy  2        m      1          4" in cli("learn", "versions").stdout.decode()
    assert "5 of 5 succeeded" in cli("skill", "show", "deploy").stdout.decode()
    shown_facts = cli.json("skill", "show", "deploy", "--version", "2", "--json")
    assert shown_facts["outcomes"][0]["failed"] == 4
    assert "1 of 5 tasks succeeded with version 2" in cli("skill", "history", "deploy").stdout.decode()
