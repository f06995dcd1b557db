"""Every fault of tasks is reported with file, line and field, before anything starts."""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.batch.settings import RunSettings
from hermes_exec_agent.batch.tasks import MAX_LINE, Task, TaskFaults, load_tasks
from hermes_exec_agent.batch.trials import list_trials
from tests.rigs.distributions import Site, site

__all__ = ["site"]

if TYPE_CHECKING:
    from pathlib import Path

GOOD = {"id": "good", "instruction": "do", "check": "true"}


def faults(path: Path, *lines: bytes | dict[str, Any]) -> list[str]:
    path.write_bytes(
        b"".join((each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n" for each in lines)
    )
    with pytest.raises(TaskFaults) as caught:
        load_tasks(str(path))
    return [line.replace(f"{path}:", "") for line in caught.value.what.splitlines()]


def test_all_faults_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/out").symlink_to("/etc")
    (tmp_path / "away").symlink_to(tmp_path.parent)
    found = faults(
        tmp_path / "tasks.jsonl",
        GOOD,
        GOOD | {"instruction": "another"},
        GOOD | {"id": "2", "chek": "true"},
        GOOD | {"id": "3", "files": "../x"},
        GOOD | {"id": "4", "files": "/etc"},
        GOOD | {"id": "5", "files": "away"},
        GOOD | {"id": "6", "files": "linked"},
        GOOD | {"id": "7", "files": "none"},
        b'{"id": "8", "instruction": "\xff", "check": "true"}',
        b'{"id": "9", "id": "9", "instruction": "do", "check": "true"}',
        b"[1]",
        b"{",
        b'{"id": "10", "instruction": "do", "check": "true", "check_timeout_s": NaN}',
        {"id": "11", "instruction": 7},
        {"id": "../12", "instruction": "do", "check": "true"},
        GOOD | {"id": "13", "files": "inside"},
        b"[" * 100_000,
        GOOD | {"id": "14", "env": {"A=B": "c"}},
    )
    assert found[0] == "2: 'id' 'good' is also that of line 1"
    assert found[1] == "3: unknown key 'chek'; the nearest known one is 'check'"
    assert [each.split(":")[0] for each in found] == [
        "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "17", "18",
    ]  # fmt: skip
    for position, part in enumerate(["'..'", "'..'", "leads out", "leads out of it: out", "cannot be read"], 2):
        assert "'files'" in found[position]
        assert part in found[position]
    assert "not valid UTF-8" in found[7]
    assert "twice" in found[8]
    assert "NaN" in found[11]
    assert "'instruction'" in found[12]


def test_a_line_of_any_length_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    with path.open("wb") as file:
        file.write(b'{"id": "')
        file.truncate(1 << 30)  # a hole: a line of 1 GiB that takes no space
        file.seek(0, 2)
        file.write(b"\n" + json.dumps(GOOD).encode())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TaskFaults) as caught:
        load_tasks(str(path))
    assert caught.value.what == f"{path}:1: the line is longer than {MAX_LINE} bytes"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10


def test_keys_tell_equal_instructions_apart() -> None:
    tasks = [Task(id=name, instruction="same", check="true") for name in ("a", "b")]
    settings = RunSettings(on=("local", "docker:x"), models=("m", "n"), samples=3)
    trials = list_trials(tasks, settings)
    assert len({trial.key for trial in trials}) == len(trials) == 24
    assert [trial.sample for trial in trials[:9]] == [1] * 8 + [2]
    again = list_trials(tasks, settings.model_copy(update={"concurrency": 99}))
    assert [trial.key for trial in again] == [trial.key for trial in trials]


def test_a_line_that_is_cut_is_reported_with_its_column(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"id": "a"\n')
    with pytest.raises(TaskFaults, match="tasks.jsonl:1: not JSON: .* at column 11"):
        load_tasks(str(tmp_path / "tasks.jsonl"))


def test_tasks_come_from_entry_points(site: Site) -> None:
    code = "def tasks():\n    yield {'id': 'a', 'instruction': 'do', 'check': 'true'}\n\ndef wrong():\n    return [3]\n"
    points = {"hermes_exec.tasks": {"some": "some_tasks:tasks", "wrong": "some_tasks:wrong"}}
    site.install("some-tasks", points, code, "some_tasks")
    assert [task.id for task in load_tasks("some")[0]] == ["a"]
    with pytest.raises(TaskFaults, match="wrong:1: it should be a JSON object"):
        load_tasks("wrong")
    with pytest.raises(UsageError, match="the entry points of hermes_exec.tasks are some, wrong"):
        load_tasks("sme.jsonl")
