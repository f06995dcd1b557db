"""The outcome of each task: derived from its turn, once, also after kills; evidence comes from a person alone."""

from __future__ import annotations

import ast
import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec_agent
from hermes_exec.errors import UsageError
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.learning import outcomes
from hermes_exec_agent.learning.outcomes import (
    STREAM,
    Evidence,
    count_tasks,
    derive_missing,
    judge_task,
    read_outcomes,
)
from hermes_exec_agent.learning.versions import forget_table
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.envelope import find_failure
from tests.learning.conftest import add_task

if TYPE_CHECKING:
    from tests.runtime.conftest import Talk

PACKAGE = Path(hermes_exec_agent.__file__).parent
KILLED = """
import asyncio, sys
from pathlib import Path
import hermes_exec
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.runtime import Conversation
from hermes_exec_agent.models import Models, ScriptedModel, ask, say
from hermes_exec_agent.tools.tool import Context
from tests.runtime.conftest import Nobody, shell

async def main():
    calls = [ask(("terminal", {"command": command})) for command in ("true", "sleep 600")]
    model = ScriptedModel([say("yes"), *calls])
    async with await hermes_exec.open("local") as terminal:
        log, context = EventLog(Path(sys.argv[1])), Context(terminal, "local", Nobody(), "c")
        conversation = Conversation(models=Models(model), tools=[shell()], context=context, log=log)
        await conversation.begin()
        await conversation.ask("one")
        asking = asyncio.create_task(conversation.ask("two"))
        while sum(event.kind == "call" for event in log.events("c")) < 2:
            await asyncio.sleep(0.01)
        print("running", flush=True)
        await asking

asyncio.run(main())
"""


def test_each_turn_has_one_record_of_what_it_took(talk: Talk, log: EventLog) -> None:
    fails = ask(("terminal", {"command": "echo 'make: no rule'; echo more; exit 2"}))

    async def whole() -> str:
        async with talk([fails, say("Done."), say("Hello.")]) as conversation:
            await conversation.ask("build it")
            await conversation.ask("hello")
            with pytest.raises(ModelError):
                await conversation.ask("the script is at its end")
            return conversation.id

    id = asyncio.run(whole())
    third, second, first = read_outcomes(log)
    assert [each.data["tasks"] for each in log.events(STREAM)] == [1, 2, 3]
    assert (first["conversation"], first["request"], first["task"]) == (id, 2, 1)
    assert (first["result"], first["evidence"]["kind"], first["ended"]) == ("unknown", "none", "answered")
    assert (first["kind"], first["calls"], first["failed"]) == ("terminal", 1, 1)
    assert first["failures"] == [{"tool": "terminal", "line": "exit code 2: make: no rule"}]
    assert (first["model"], first["target"]) == ("scripted", "local")
    assert first["tokens"] > 0
    assert (second["kind"], second["calls"], second["ended"]) == ("answer", 0, "answered")
    assert third["ended"] == "failed"
    assert log.conversations()[0].events == log.last(id)  # the stream is no conversation
    assert derive_missing(log) == 3
    assert log.last(STREAM) == 3


def test_only_events_since_the_first_task_without_an_outcome_are_searched_again(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "_STEP", 1)

    def read() -> int:
        with closing(sqlite3.connect(log.path)) as base:
            return outcomes.read_position(base)

    add_task(log, "a")
    held = log.acquire_turn("b")
    add_task(log, "b", turn=held)
    add_task(log, "c")
    assert derive_missing(log) == 2
    before = read()
    log.release_turn(held)
    add_task(log, "d")
    assert derive_missing(log) == derive_missing(log) == 4
    assert [each["conversation"] for each in read_outcomes(log)] == ["d", "b", "c", "a"]
    assert 0 < before < read()
    with closing(sqlite3.connect(log.path)) as base, base:  # a person deletes the last events, also those of the task d
        base.execute("DROP TRIGGER IF EXISTS nothing_goes")
        base.execute("DELETE FROM events WHERE conversation = 'd' OR conversation = 'outcomes' AND number > 3")
    assert read() == 0
    add_task(log, "e")
    assert derive_missing(log) == derive_missing(log) == 5
    assert [each["conversation"] for each in read_outcomes(log)] == ["e", "b", "c", "a"]
    forget_table(log)
    assert read() == 0
    assert derive_missing(log) == 5


def test_a_turn_that_a_kill_cut_off_is_derived_once_and_no_turn_that_runs(log: EventLog) -> None:
    program = subprocess.Popen([sys.executable, "-c", KILLED, str(log.path)], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "running\n"
    assert derive_missing(log) == 1
    program.kill()
    program.wait()
    program.stdout.close()
    threads = [threading.Thread(target=derive_missing, args=(EventLog(log.path),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    killed, first = read_outcomes(log)
    assert (first["ended"], killed["ended"], killed["task"], killed["calls"]) == ("answered", "killed", 2, 2)
    assert log.last(STREAM) == count_tasks(log) == 2


def test_the_latest_evidence_counts_and_the_task_stays_one(log: EventLog) -> None:
    number = add_task(log, "c")
    for evidence, expected in (
        (Evidence("check", succeeded=True, detail="make: exit code 0"), "succeeded"),
        (Evidence("person", succeeded=False, detail="no\n# it\x1b[31m is not"), "failed"),
        (Evidence("person", succeeded=True, detail=""), "succeeded"),
    ):
        judge_task(log, "c", number, evidence)
        (record,) = read_outcomes(log)
        assert (record["result"], record["evidence"]["kind"]) == (expected, evidence.kind)
        assert record["evidence"]["detail"].isprintable()
    assert read_outcomes(log)[0]["evidence"]["event"] == log.last("c")
    assert (count_tasks(log), log.last(STREAM)) == (1, 4)
    with pytest.raises(UsageError, match="has no task 999"):
        judge_task(log, "c", 999, Evidence("person", succeeded=True, detail=""))


def test_a_delegated_conversation_is_no_task_and_a_clock_that_goes_back_changes_no_order(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    for number in range(5):
        now -= 1000
        add_task(log, f"c{number}", seed=number)
        add_task(log, f"d{number}", parent=f"c{number}")
        derive_missing(log)
    found = read_outcomes(log)
    assert [each["conversation"] for each in found] == ["c4", "c3", "c2", "c1", "c0"]
    assert all(each["seconds"] >= 0 for each in found)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"ok": True, "output": "x"}, ""),
        ({"ok": True, "output": "\n\n one\ntwo", "exit_code": 3}, "exit code 3: one"),
        ({"ok": True, "exit_code": 0}, ""),
        ({"ok": False}, "failed"),
        ({"error": {"type": "timeout", "message": "after 3 s\nmore"}}, "timeout: after 3 s"),
        ({"error": {"type": "x", "message": "\x1b]0;a\x07\u202eb"}}, "x: ?]0;a??b"),
        (["no", "envelope"], ""),
    ],
)
def test_the_first_line_of_a_failure_is_one_printable_line(content: Any, line: str) -> None:
    assert find_failure(json.dumps(content)) == line
    assert find_failure(json.dumps(content) + "\n[a note]") == line
    assert find_failure("[" * 100_000) == find_failure("no JSON") == ""


def test_no_tool_can_give_evidence(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """No module that a model's calls reach imports the functions, and the shell of an agent is refused."""
    for folder in ("tools", "memory", "skills"):
        for path in (PACKAGE / folder).rglob("*.py"):
            imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
            modules = {each.module or "" for each in imports} - {"hermes_exec_agent.memory.note_writer"}
            assert not [each for each in modules if "learning" in each], path
    number = add_task(log, "c")
    monkeypatch.setenv("HERMES_EXEC_AGENT", "a model")
    with pytest.raises(UsageError, match="shell of an agent"):
        judge_task(log, "c", number, Evidence("person", succeeded=True, detail=""))
    assert derive_missing(log) == 1
    assert read_outcomes(log)[0]["result"] == "unknown"
