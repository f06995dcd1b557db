"""The log of a shard: what is synchronised together, what a kill tears, and events that no shard writes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.batch.run_folder import RunChanged, RunFolder
from hermes_exec_agent.batch.run_state import RunState
from hermes_exec_agent.batch.settings import RunSettings
from hermes_exec_agent.batch.shard_log import NAME, LogTail, ShardLog
from hermes_exec_agent.batch.tasks import Task

if TYPE_CHECKING:
    from pathlib import Path


def test_calls_that_wait_share_writes_that_begin_after_their_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        size = os.fstat(handle).st_size
        real(handle)
        written.append(size)

    monkeypatch.setattr(os, "fsync", fsync)
    chance = random.Random(5)

    async def append(log: ShardLog, number: int) -> None:
        await asyncio.sleep(chance.random() / 50)
        log.write("n", number=number)
        size = (tmp_path / NAME).stat().st_size
        await log.sync()
        assert max(written) >= size

    async def scenario() -> None:
        with ShardLog(tmp_path) as log:
            await asyncio.gather(*(append(log, number) for number in range(500)))

    asyncio.run(scenario())
    assert len(written) < 400
    assert sorted(event["number"] for event in LogTail(tmp_path).read()) == list(range(500))


def test_a_line_that_a_kill_tore_is_left_until_it_is_whole(tmp_path: Path) -> None:
    tail = LogTail(tmp_path)
    assert list(tail.read()) == []
    (tmp_path / NAME).write_bytes(b'{"event":"a"}\n{"event"')
    assert [event["event"] for event in tail.read()] == ["a"]
    with (tmp_path / NAME).open("ab") as file:
        file.write(b':"b"}\nnonsense\n{"event":"c"}\n')
    assert [event["event"] for event in tail.read()] == ["b", "c"]


def test_a_line_that_a_full_disk_cut_takes_no_later_event_with_it(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with ShardLog(tmp_path) as log:
        log.write("first")
        size = (tmp_path / NAME).stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, before[1]))
        try:
            with pytest.raises(OSError, match="No space"):
                log.write("cut")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        log.write("last")
    assert [event["event"] for event in LogTail(tmp_path).read()] == ["first", "last"]


@pytest.mark.parametrize(
    "event",
    [
        {"event": "claimed", "key": [], "attempt": 1},
        {"event": "ended_attempt"},
        {"event": "ended_attempt", "attempt": 1, "state": "graded", "failure": None, "reward": "1"},
        {"event": "ended_attempt", "attempt": 1, "state": "graded", "failure": {}, "reward": 1.0},
        {"event": "ended_attempt", "attempt": 1, "state": "graded", "failure": None, "reward": float("nan")},
    ],
)
def test_an_event_of_another_form_is_named_and_counts_nothing(tmp_path: Path, event: dict[str, Any]) -> None:
    tasks = [Task(id="a", instruction="work", check="true")]
    run = RunFolder.create(tmp_path / "r", "tasks.jsonl", tasks, RunSettings(models=("",)))
    run.shard("s1").mkdir()
    # The event is the first key of its line.
    line = {"event": event["event"], "key": run.keys[0], **event}
    (run.shard("s1") / NAME).write_text(f"{json.dumps(line, separators=(',', ':'))}\n")
    state = RunState(run)
    with pytest.raises(RunChanged, match=r"shards/s1/log\.jsonl: it is damaged"):
        state.update()
    assert state.summarize().done == 0
