"""Audits: counted once each by several programs that are killed, right in their numbers, safe in their texts."""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import HermesError
from hermes_exec_agent.learning.audit import (
    STREAM,
    TASKS,
    OutcomeTables,
    add_paragraph,
    create_report,
    read_audit,
    read_audits,
    reports_folder,
    run_audits,
)
from hermes_exec_agent.learning.audit_report import format_markdown
from hermes_exec_agent.learning.outcomes import Evidence, derive_missing, judge_task, read_outcomes
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_agent.tools.skill_index import read_entries
from tests.learning.conftest import add_task, result
from tests.rigs.breadth import examples
from tests.rigs.skill_makers import home_in, registered

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.runtime.events import EventLog

HOSTILE = "\n# Heading\n- [click](http://evil.test) `code` <img src=x> |\x1b[31m\u202e ![i](http://evil.test/i)"
PROGRAM = """
import os, random, signal, sys, time
from pathlib import Path
from hermes_exec_agent.learning.audit import run_audits, wait_for_audits
from hermes_exec_agent.learning.outcomes import record_task
from hermes_exec_agent.runtime.events import EventLog
from tests.learning.conftest import add_task

def work(name, count):
    log = EventLog(Path(sys.argv[1]))
    for number in range(count):
        turn = log.acquire_turn(name)
        request = add_task(log, name, seed=number, turn=turn)
        record_task(log, name, request, model="m", target="local")
        log.release_turn(turn)
    wait_for_audits(60)

if sys.argv[2] == "kills":
    draw = random.Random(19)
    for number in range(int(sys.argv[3])):
        child = os.fork()
        if not child:
            work(f"p{number}", 100_000)
        time.sleep(draw.random() * 0.5)  # the moment is random, nothing is awaited
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
else:
    work(sys.argv[2], int(sys.argv[3]))
"""


def start_program(log: EventLog, name: str, count: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", PROGRAM, str(log.path), name, str(count)]
    environ = {**os.environ, "XDG_CONFIG_HOME": str(log.path.parent), "HERMES_EXEC_SKILLS": str(log.path.parent / "s")}
    return subprocess.Popen(argv, text=True, env=environ)


def check_audits(log: EventLog, tasks: int) -> None:
    """Each group of tasks has one audit, each task one number, and each report its two files."""
    assert sorted(each["task"] for each in read_outcomes(log)) == list(range(1, tasks + 1))
    audits = read_audits(log)
    assert [each.data["number"] for each in log.events(STREAM)] == list(range(1, tasks // TASKS + 1))
    for number, audit in audits.items():
        report = audit["report"]
        assert (report["first"], report["last"]) == (TASKS * (number - 1) + 1, TASKS * number)
        assert report["these"]["tasks"] == TASKS
        paths = [reports_folder(log) / f"{number}.{ending}" for ending in ("md", "json")]
        assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600, 0o600]
        assert json.loads(paths[1].read_text()) == audit
        assert paths[0].read_text() == format_markdown(audit)


@pytest.mark.parametrize("tasks", [40, pytest.param(200, id="full", marks=pytest.mark.soak)])
def test_two_programs_at_once_audit_each_group_of_tasks_once(log: EventLog, tasks: int) -> None:
    programs = [start_program(log, name, tasks) for name in ("a", "b")]
    assert [program.wait() for program in programs] == [0, 0]
    run_audits(log)
    check_audits(log, 2 * tasks)
    assert run_audits(log) == []


@pytest.mark.parametrize("kills", [examples(20), pytest.param(200, id="full", marks=pytest.mark.soak)])
def test_kills_at_random_moments_lose_and_double_nothing(log: EventLog, kills: int) -> None:
    assert start_program(log, "kills", kills).wait() == 0
    asked = sum(event.kind == "user" for name in range(kills) for event in log.events(f"p{name}"))
    run_audits(log)
    check_audits(log, asked)


def test_the_numbers_are_those_of_a_plain_count(log: EventLog) -> None:
    draw = random.Random(7)
    for number in range(40):
        request = add_task(log, f"c{number}", seed=number)
        if (kind := draw.choice(["good", "bad", ""])) != "":
            judge_task(log, f"c{number}", request, Evidence("person", kind == "good", ""))
    assert run_audits(log) == [1, 2]
    report = read_audit(log)["report"]
    every = [each for each in read_outcomes(log) if each["task"] <= 30]
    these = [each for each in every if each["task"] > 15]
    for part, tasks in (("these", these), ("all", every)):
        results = Counter(each["result"] for each in tasks)
        found = report[part]
        assert {name: found[name] for name in ("succeeded", "failed", "unknown")} == {
            name: results[name] for name in ("succeeded", "failed", "unknown")
        }
        known = results["succeeded"] + results["failed"]
        assert found["rate"] == round(results["succeeded"] / known, 3)
        assert found["calls"] == sum(each["calls"] for each in tasks)
        assert found["cost"] == pytest.approx(sum(each["cost"] or 0 for each in tasks))
    now, ever = (
        Counter((each["tool"], each["line"]) for task in tasks for each in task["failures"]) for tasks in (these, every)
    )
    repeated = {key: (count, ever[key]) for key, count in now.items() if ever[key] > 1}
    assert repeated
    assert {(x["tool"], x["line"]): (x["times"], x["times_in_all"]) for x in report["failures"]} == repeated
    kinds = Counter(each["kind"] for each in these)
    assert {each["kind"]: each["tasks"] for each in report["kinds"]} == kinds


def test_skills_that_got_worse_or_were_not_loaded_or_not_used_are_named(log: EventLog, tmp_path: Path) -> None:
    home = home_in(tmp_path)
    registered(home, tmp_path / "one")
    registered(home, tmp_path / "two", "sort-words")
    request = "Please add numbers of this list"
    for number in range(10):
        good = number < 4 or number == 6
        task = add_task(log, f"c{number}", skills=[("add-numbers", 1 if number < 4 else 2)])
        judge_task(log, f"c{number}", task, Evidence("check", good, ""))
    for number in range(4):
        add_task(log, f"d{number}", request)
    last = derive_missing(log)
    with OutcomeTables(log.path) as tables:
        report = create_report(tables, 11, last, read_entries(Registry(home)))
    (worse,) = report["skills"]["worse"]
    assert (worse["name"], worse["before"], worse["version"]) == ("add-numbers", 1, 2)
    assert (worse["succeeded_before"], worse["tasks_before"], worse["succeeded"], worse["tasks"]) == (4, 4, 1, 6)
    assert report["skills"]["unloaded"] == [{"name": "add-numbers", "times": 4, "tasks": [11, 12, 13, 14]}]
    assert report["skills"]["unused"]["listed"] == [
        {"name": "sort-words", "latest": 0},
        {"name": "add-numbers", "latest": 10},
    ]
    assert any("skill rollback add-numbers 1" in line for line in report["advice"])
    assert any("fitted 4 requests" in line for line in report["advice"])


def test_hostile_text_stays_quoted_on_one_line(log: EventLog) -> None:
    for _ in range(3):
        add_task(log, "c")
        envelope: dict[str, Any] = {"ok": False, "error": {"type": HOSTILE.strip(), "message": HOSTILE}}
        bad = [result(HOSTILE, envelope), result("terminal", {"exit_code": 1, "output": HOSTILE})]
        log.append_all("c", [("user", {"content": HOSTILE}), ("call", {"id": "1", "name": HOSTILE}), *bad])
    (number,) = run_audits(log, early=True)
    add_paragraph(log, number, HOSTILE, HOSTILE * 1000)
    audit = read_audit(log)
    text = format_markdown(audit)
    assert audit["report"]["failures"][0]["times"] == 3
    assert all(line.isprintable() for line in text.splitlines())
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert [line.split("`")[0].strip() for line in heads] == [
        "# Audit 1", "## Repeated failures", "## Kinds of tasks", "## Skills", "## Advice", "## Written by the model",
    ]  # fmt: skip
    for line in text.splitlines():
        outside = "" if line.startswith("    ") else "".join(line.split("`")[::2])
        assert not {"evil", "<", "[", "!"} & {word for word in ("evil", "<", "[", "!") if word in outside}, line
    with pytest.raises(HermesError, match="wrote no text"):
        add_paragraph(log, number, "m", " \n\t")
    assert read_audit(log) == audit


def test_an_audit_on_a_full_disk_is_completed_later(log: EventLog) -> None:
    for number in range(TASKS):
        add_task(log, f"c{number}", seed=number)
    limited = """
import resource, signal, sys
from pathlib import Path
from hermes_exec.errors import HermesError
from hermes_exec_agent.learning.audit import run_audits
from hermes_exec_agent.runtime.events import EventLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    run_audits(EventLog(Path(sys.argv[1])))
except HermesError as error:
    print(error)
"""
    folder = reports_folder(log)
    for size in (0, 64):  # the log cannot be written; then it can, and no report
        room = size or 1
        if size:
            derive_missing(log)
            blocked = folder
            blocked.write_text("")
            room = 1 << 30
        done = subprocess.run(
            [sys.executable, "-c", limited, str(log.path), str(room)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == 1, done.stdout
    folder.unlink()
    assert run_audits(log) == []
    check_audits(log, TASKS)
