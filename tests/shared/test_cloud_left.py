"""What a process created in a cloud and left, because it was killed, is found by other processes, or taken over."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from hermes_exec import Orchestrator, Pool
from hermes_exec.pool.recovery import Fate
from tests.rigs.bounded import within
from tests.rigs.breadth import leave_out
from tests.rigs.killed import Left

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.rigs.clouds import Cloud

leave_out("takes long")

ORCHESTRATOR = """
import asyncio
from hermes_exec import Orchestrator, Pool

async def main():
    async with Orchestrator({"p": Pool("box", audit=False)}) as orchestrator:
        busy = await orchestrator.lease("p", key="alice")
        kept = await orchestrator.lease("p", key="bob")
        await busy.terminal.run("true")
        await kept.terminal.start("read word; echo got $word", name="waits", stdin=True)
        print("ready", flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_other_processes_find_the_job_in_its_sandbox(cloud: Cloud, tmp_path: Path) -> None:
    left = Left(tmp_path, cloud.configure(tmp_path), "box")
    before = cloud.alive()
    assert len(before) == 1
    left.ends_as_it_should()
    assert cloud.alive() == before
    left.forget()


def test_a_sandbox_that_has_ended_is_forgotten_with_its_jobs(cloud: Cloud, tmp_path: Path) -> None:
    left = Left(tmp_path, cloud.configure(tmp_path), "box")
    for each in cloud.alive():
        cloud.end(each)
    shown = left.cli("jobs")
    assert (shown.stdout, shown.returncode) == (b"", 0), shown.stderr
    assert left.records() == []


def test_the_next_orchestrator_takes_sandboxes_over_and_ends_them(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(cloud.configure(tmp_path)))
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    argv = [sys.executable, "-c", ORCHESTRATOR]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        process.kill()
    assert told == "ready\n"
    assert len(cloud.alive()) == 2

    async def take_over() -> None:
        async with Orchestrator({"p": Pool("box", audit=False)}) as orchestrator:
            found = {each.key: each for each in orchestrator.recovered}
            assert {key: each.fate for key, each in found.items()} == {"alice": Fate.REAPED, "bob": Fate.ATTACHED}
            assert len(cloud.alive()) == 1
            lease = found["bob"].lease
            assert lease is not None
            job = await lease.terminal.job(found["bob"].jobs[0].id)
            await job.write(b"on\n")
            assert (await job.wait()).stdout == b"got on\n"
            await job.prune()
            await lease.release()
        assert cloud.alive() == []

    within(170)(take_over())
