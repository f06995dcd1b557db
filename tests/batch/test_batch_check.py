"""Checks that are functions: what they get and return, their failures, and the copy of their file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.batches import BatchPerson, read_state

PAGE = (Path(__file__).parents[2] / "docs/batch.md").read_text()


@pytest.fixture
def person(tmp_path: Path) -> BatchPerson:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "greet", "instruction": "greet", "check_timeout_s": 5}])
    person.write_replies("echo hello > out")
    return person


def run(person: BatchPerson, source: str, *argv: str, code: int = 0) -> dict[str, Any]:
    (person.home / "checks.py").write_text(source)
    done = person.run(
        "run", "tasks.jsonl", "--model", "replay:replies.jsonl", "--into", "r", "--check", "checks.py:check", *argv
    )
    assert done.returncode == code, done.stderr
    return read_result(person)


def read_result(person: BatchPerson) -> dict[str, Any]:
    ((_, state),) = read_state(person.home / "r").results()
    assert state.accepted is not None
    return state.accepted


def test_the_function_of_the_page_reads_the_target_and_the_trajectory(person: BatchPerson) -> None:
    (source,) = re.findall(r"```python\n(async def check.*?)```", PAGE, re.DOTALL)
    result = run(person, source)
    assert (result["state"], result["reward"], result["check"]["parts"]) == ("graded", 1.0, {"short": 1.0})


def test_a_function_gets_the_task_the_end_and_the_messages(person: BatchPerson) -> None:
    result = run(
        person,
        "async def check(terminal, trajectory):\n"
        "    assert trajectory['task']['id'] == 'greet'\n"
        "    assert trajectory['result']['end'] == 'answered' and trajectory['result']['calls'] == 1\n"
        "    assert [each['role'] for each in trajectory['messages']] == ['system', 'user', 'assistant', 'tool',"
        " 'assistant']\n"
        "    done = await terminal.run('cat out', cwd=trajectory['folder'])\n"
        "    return len(done.stdout_text)\n",
    )
    assert (result["state"], result["reward"]) == ("graded", 6.0)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("raise SystemExit(7)", "SystemExit: 7"),
        (
            "import asyncio, sys\n    async def work(): sys.exit(7)\n    await asyncio.gather(work(), work())",
            "RuntimeError: SystemExit: 7",
        ),
        (
            "import asyncio\n    task = asyncio.create_task(asyncio.sleep(9))\n    task.cancel()\n    await task",
            "CancelledError: a task",
        ),
        ("return float('nan')", "nan is not a finite number"),
        ("return {'score': 1}", "the mapping has no 'reward'"),
        ("import asyncio; await asyncio.sleep(60)", "no reward within 5 s"),
        ("await terminal.run('exit 3', check=True)", "CommandFailed: "),
    ],
)
def test_a_function_that_fails_leaves_the_trial_ungraded(person: BatchPerson, body: str, why: str) -> None:
    result = run(person, f"async def check(terminal, trajectory):\n    {body}\n", code=1)
    assert (result["state"], result["reward"], why in result["reason"]) == ("ungraded", None, True), result


def test_a_later_command_checks_by_the_copy_of_the_file(person: BatchPerson) -> None:
    run(person, "async def check(terminal, trajectory):\n    raise ValueError\n", code=1)
    (copy,) = (person.home / "r/scripts").glob("*.py")
    (person.home / "checks.py").unlink()
    done = person.run("resume", "r", "--only", "ungraded")
    assert (done.returncode, read_result(person)["reason"]) == (1, "the check could not run: ValueError:")
    copy.write_text("async def check(terminal, trajectory):\n    return 1\n")
    done = person.run("resume", "r", "--only", "ungraded")
    assert (done.returncode, "it was changed" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("source", "argv", "why"),
    [
        ("def check(terminal, trajectory): return 1", ("--check", "checks.py:check"), "it is not an async function"),
        ("raise SystemExit", ("--check", "checks.py:check"), "it cannot be loaded: SystemExit"),
        ("", ("--check", "json:loads"), "its file is copied"),
        ("", (), "the task greet has no 'check'"),
    ],
)
def test_a_check_that_cannot_work_is_refused_before_the_run(
    person: BatchPerson, source: str, argv: tuple[str, ...], why: str
) -> None:
    (person.home / "checks.py").write_text(source)
    done = person.run("run", "tasks.jsonl", "--model", "replay:replies.jsonl", "--into", "r", *argv)
    assert (done.returncode, why in done.stderr, (person.home / "r").exists()) == (2, True, False), done.stderr
