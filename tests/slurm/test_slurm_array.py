"""Job arrays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec_backends.profiles import SlurmProfile
from hermes_exec_backends.slurm.array import Task, run_array
from tests.rigs.bounded import PATIENCE_S

if TYPE_CHECKING:
    from tests.rigs.slurm import Cluster

PROFILE = SlurmProfile(memory=64 << 20)


def test_every_task_runs_with_its_number_and_tells_its_end(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    argv = ["sh", "-c", 'echo "$1 $SLURM_ARRAY_TASK_ID"; echo oh >&2; exit $SLURM_ARRAY_TASK_ID', "sh", "it's $HOME"]

    async def run() -> list[Task]:
        return await run_array(PROFILE, argv, [0, 2, 5], folder=str(folder), outer=cluster.here)

    tasks = asyncio.run(run())
    assert [(task.index, task.exit_code) for task in tasks] == [(0, 0), (2, 2), (5, 5)]
    assert [Path(task.stdout_path).read_text() for task in tasks] == [
        "it's $HOME 0\n",
        "it's $HOME 2\n",
        "it's $HOME 5\n",
    ]
    assert Path(tasks[0].stderr_path).read_text() == "oh\n"


def test_a_folder_that_does_not_exist_is_refused_before_anything_runs(cluster: Cluster, tmp_path: Path) -> None:
    work = run_array(PROFILE, ["true"], range(2), folder=str(tmp_path / "no"), outer=cluster.here)
    with pytest.raises(UsageError, match=r"no is not a folder at local in which an array can write") as refused:
        asyncio.run(work)
    assert refused.value.remedy == f"create it where all nodes see it: mkdir -p {tmp_path}/no"
    assert not cluster.jobs()


def test_a_task_that_never_ran_has_no_exit_code(cluster: Cluster, tmp_path: Path) -> None:
    held = SlurmProfile(memory=64 << 20, flags=("--hold",))

    async def run() -> list[Task]:
        work = run_array(held, ["true"], range(2), folder=str(tmp_path), outer=cluster.here)
        running = asyncio.ensure_future(work)
        async with asyncio.timeout(PATIENCE_S):
            while not cluster.jobs():
                await asyncio.sleep(0.1)
        (job,) = set(cluster.jobs())
        cluster.run("scancel", f"{job}_0")
        cluster.run("scontrol", "release", job)
        return await running

    assert [task.exit_code for task in asyncio.run(run())] == [None, 0]


def test_an_array_is_cancelled_with_whoever_waits_for_it(cluster: Cluster, tmp_path: Path) -> None:
    async def run() -> None:
        work = run_array(PROFILE, ["sleep", "1000"], range(3), folder=str(tmp_path), outer=cluster.here)
        waiting = asyncio.ensure_future(work)
        async with asyncio.timeout(PATIENCE_S):
            while not cluster.jobs():
                await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(run())
    assert cluster.jobs() == []


def test_an_array_that_slurm_refuses_is_told(cluster: Cluster, tmp_path: Path) -> None:
    async def run() -> None:
        profile = SlurmProfile(partition="nowhere")
        await run_array(profile, ["true"], range(2), folder=str(tmp_path), outer=cluster.here)

    with pytest.raises(PlaceUnavailable, match="invalid partition"):
        asyncio.run(run())


def test_an_array_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError):
        asyncio.run(run_array(PROFILE, ["true"], [], folder="/tmp"))
