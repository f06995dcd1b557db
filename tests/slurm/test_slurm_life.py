"""An allocation from the queue to its end, whoever ends it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.errors import OutcomeUnknown, PlaceUnavailable
from hermes_exec.testing.place import link
from hermes_exec.wrapper import PreparedBackend
from hermes_exec_backends.local import LocalBackend
from hermes_exec_backends.profiles import SlurmProfile
from hermes_exec_backends.slurm import SlurmBackend
from hermes_exec_backends.slurm.queue import Standing
from tests.rigs import slurm
from tests.rigs.bounded import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from tests.rigs.slurm import Cluster

MEMORY = 512 << 20


def allocation(cluster: Cluster, **fields: object) -> SlurmBackend:
    return SlurmBackend(SlurmProfile.model_validate({"memory": MEMORY, **fields}), cluster.here)


def fields_of(cluster: Cluster, job: str) -> dict[str, str]:
    words = cluster.run("scontrol", "show", "job", "--oneliner", job).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def test_an_allocation_is_held_while_open_and_given_back_afterwards(cluster: Cluster) -> None:
    backend = allocation(cluster)

    async def run() -> tuple[bytes, str]:
        async with hermes_exec.open(backend, audit=False) as terminal:
            assert cluster.jobs() == [backend.job]
            return (await terminal.run("echo $SLURM_JOB_ID")).stdout, backend.job

    output, job = asyncio.run(run())
    assert output.decode() == f"{job}\n"
    assert cluster.jobs() == []


def test_what_the_profile_asks_for_is_asked_of_slurm(cluster: Cluster) -> None:
    backend = allocation(
        cluster, partition="main", nodes=2, time="00:07:00", constraint="n2|n3", job_name="mine", cpus=1,
        flags=["--comment=hello"],
    )  # fmt: skip

    async def run() -> dict[str, str]:
        async with hermes_exec.open(backend, audit=False):
            return fields_of(cluster, backend.job)

    told = asyncio.run(run())
    assert (told["Partition"], told["NumNodes"], told["TimeLimit"]) == ("main", "2", "00:07:00")
    assert (told["NodeList"], told["JobName"], told["Comment"]) == ("n[2-3]", "mine", "hello")
    assert (told["CPUs/Task"], told["MinMemoryNode"], told["Requeue"]) == ("1", "512M", "0")


def test_gpus_are_asked_of_slurm_and_seen_by_commands(cluster: Cluster) -> None:
    backend = allocation(cluster, gpus="tiny:1", account="proj", qos="high")

    async def run() -> tuple[dict[str, str], bytes]:
        async with hermes_exec.open(backend, audit=False) as terminal:
            seen = await terminal.run("echo $CUDA_VISIBLE_DEVICES; srun sh -c 'echo $CUDA_VISIBLE_DEVICES'")
            assert "gpu" in terminal.capabilities.features
            return fields_of(cluster, backend.job), seen.stdout

    told, seen = asyncio.run(run())
    assert (told["TresPerJob"], told["Account"]) == ("gres:gpu:tiny:1", "proj")
    assert seen == b"0\n0\n"


def test_commands_run_on_the_first_node_and_can_use_them_all(cluster: Cluster) -> None:
    show = "echo $SLURMD_NODENAME"

    async def run() -> bytes:
        async with hermes_exec.open(allocation(cluster, nodes=2), audit=False) as terminal:
            return (await terminal.run(f"{show}; srun -N2 sh -c '{show}'")).stdout

    first, *both = asyncio.run(run()).split()
    assert (first, sorted(both)) == (b"n1", [b"n1", b"n2"])


def test_a_colon_is_a_word_like_any_other(cluster: Cluster) -> None:
    async def run() -> bytes:
        async with hermes_exec.open(allocation(cluster), audit=False, carrier="plain") as terminal:
            return (await terminal.run(["printf", "<%s>", "a", ":", "it's $HOME"])).stdout

    assert asyncio.run(run()) == b"<a><:><it's $HOME>"


def test_a_refusal_is_told_in_slurms_words(cluster: Cluster) -> None:
    with pytest.raises(PlaceUnavailable, match="invalid partition"):
        asyncio.run(allocation(cluster, partition="nowhere").open())
    assert cluster.jobs() == []


@pytest.mark.usefixtures("cluster")  # Slurm is installed
def test_an_unknown_cluster_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    nowhere = SlurmBackend(SlurmProfile.model_validate({}), PreparedBackend(LocalBackend()))
    with pytest.raises(PlaceUnavailable, match=r"(?s)configuration source.* Try: SLURM_CONF = "):
        asyncio.run(nowhere.open())


def test_a_wait_without_a_reason_names_none() -> None:
    assert Standing("CONFIGURING", "None").why_waiting == ""
    assert Standing("PENDING", "AssocGrpBillingMinutes").why_waiting == "AssocGrpBillingMinutes"


def test_waiting_is_told_with_slurms_reason_and_can_be_given_up(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes_exec.progress")

    async def run() -> None:
        async with hermes_exec.open(allocation(cluster, nodes=3, flags=["--exclusive"]), audit=False):
            caplog.clear()  # it may have waited too, for nodes of the test before
            waiting = asyncio.ensure_future(allocation(cluster).open())
            async with asyncio.timeout(PATIENCE_S):
                while "waits in the queue: Resources (its nodes" not in caplog.text:
                    await asyncio.sleep(0.1)
            assert len(cluster.jobs()) == 2
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert len(cluster.jobs()) == 1

    asyncio.run(run())


def test_an_allocation_that_somebody_cancels_is_told_as_such(cluster: Cluster) -> None:
    backend = allocation(cluster)

    async def run() -> None:
        async with hermes_exec.open(backend, audit=False, carrier="guest") as terminal:
            running = asyncio.ensure_future(terminal.run("trap '' TERM; while :; do sleep 1; done"))
            await asyncio.sleep(0.5)
            cluster.run("scancel", "--signal=KILL", "--full", backend.job)
            cluster.run("scancel", backend.job)
            with pytest.raises(OutcomeUnknown, match="is gone: it was cancelled"):
                await running

    asyncio.run(run())


def test_a_cut_is_mended_by_a_new_step(cluster: Cluster) -> None:
    async def run() -> bytes:
        async with hermes_exec.open(allocation(cluster), audit=False, carrier="guest") as terminal:
            await terminal.run("x=kept")
            running = asyncio.ensure_future(terminal.run("sleep 1; echo $x"))
            await asyncio.sleep(0.1)
            link(terminal).break_connection()
            return (await running).stdout

    assert asyncio.run(run()) == b"kept\n"


def test_a_time_limit_that_is_near_is_told(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with hermes_exec.open(allocation(cluster, time="00:01:00"), audit=False) as terminal:
            await terminal.run("true")

    asyncio.run(run())
    assert re.search(r"allocation \d+ ends in \d\d s, at its time limit", caplog.text)


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_an_allocation_whose_time_is_over_is_told_as_such(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Slurm counts in minutes, and looks every half minute."""

    async def run() -> None:
        async with hermes_exec.open(allocation(cluster, time="00:01:00"), audit=False, carrier="guest") as terminal:
            with pytest.raises(OutcomeUnknown, match="is gone: its time limit was reached"):
                await terminal.run("trap '' TERM; sleep 1000; sleep 1000")

    asyncio.run(run())
    assert re.search(r"allocation \d+ ends in \d\d s, at its time limit", caplog.text)
    assert cluster.jobs() == []


def test_a_time_limit_that_is_far_is_not_told(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with hermes_exec.open(allocation(cluster, time="00:30:00"), audit=False) as terminal:
            await terminal.run("true")

    asyncio.run(run())
    assert "time limit" not in caplog.text


def test_an_allocation_ends_with_its_lease_when_its_orchestrator_was_killed(cluster: Cluster) -> None:
    script = """
import asyncio, sys, hermes_exec
from hermes_exec_backends.local import LocalBackend
from hermes_exec_backends.profiles import SlurmProfile
from hermes_exec_backends.slurm import SlurmBackend
from hermes_exec.wrapper import PreparedBackend
async def main():
    here = PreparedBackend(LocalBackend(), env={"SLURM_CONF": sys.argv[1]})
    terminal = await hermes_exec.open(SlurmBackend(SlurmProfile(memory=1 << 29), here), audit=False, lease_s=4.0)
    print("open", flush=True)
    await terminal.run("sleep 1000")
asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", script, str(cluster.conf)]
    orchestrator = subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE)
    assert orchestrator.stdout is not None
    assert orchestrator.stdout.readline() == b"open\n"
    began = time.monotonic()
    orchestrator.send_signal(signal.SIGKILL)
    orchestrator.wait()
    orchestrator.stdout.close()
    time.sleep(1)
    assert len(cluster.jobs()) == 1  # not the moment that the orchestrator vanishes
    wait_until(lambda: cluster.jobs() == [])
    assert time.monotonic() - began >= 3


def test_a_job_keeps_its_allocation(cluster: Cluster) -> None:
    async def run() -> None:
        async with hermes_exec.open(allocation(cluster), audit=False, lease_s=4.0, carrier="guest") as terminal:
            await terminal.start(["sleep", "1000"])

    asyncio.run(run())
    (job,) = cluster.jobs()
    time.sleep(6)
    assert cluster.jobs() == [job]
    cluster.run("scancel", job)


def test_a_job_that_runs_already_is_entered_and_left_running(cluster: Cluster) -> None:
    job = cluster.run("sbatch", "--parsable", "--mem=512M", "--output=/dev/null", "--wrap=sleep 1000").strip()
    backend = SlurmBackend(SlurmProfile(job=job), cluster.here)
    assert backend.own_target == f"slurm:@{job}"

    async def run() -> bytes:
        async with hermes_exec.open(backend, audit=False) as terminal:
            return (await terminal.run("echo $SLURM_JOB_ID")).stdout

    assert asyncio.run(run()).decode() == f"{job}\n"
    assert cluster.jobs() == [job]
    cluster.run("scancel", job)


def test_a_job_that_is_over_cannot_be_entered(cluster: Cluster) -> None:
    with pytest.raises(PlaceUnavailable, match="999999 ended before it began: Slurm does not know it"):
        asyncio.run(SlurmBackend(SlurmProfile(job="999999"), cluster.here).open())


def test_an_allocation_that_makes_way_for_others_is_told_as_such(cluster: Cluster) -> None:
    urgent = ["sbatch", "--parsable", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null"]

    async def run() -> None:
        async with (
            hermes_exec.open(allocation(cluster), audit=False, carrier="guest") as terminal,
            terminal.stream("trap '' TERM; echo started; sleep 1000") as events,
        ):
            await anext(events)
            running = asyncio.ensure_future(anext(events))
            job = cluster.run(*urgent, "--wrap=sleep 1000").strip()
            try:
                with pytest.raises(OutcomeUnknown, match=r"other work took its nodes \(preemption\)"):
                    await running
            finally:
                cluster.run("scancel", job)

    asyncio.run(run())


@pytest.mark.slow
def test_a_node_that_fails_is_told_as_such() -> None:
    with slurm.cluster(1) as cluster:
        backend = allocation(cluster)

        async def run() -> None:
            async with hermes_exec.open(backend, audit=False, carrier="guest") as terminal:
                running = asyncio.ensure_future(terminal.run("sleep 1000"))
                await asyncio.sleep(0.5)
                cluster.kill_node("n1")
                cluster.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=broken")
                with pytest.raises(OutcomeUnknown, match="is gone: one of its nodes failed"):
                    await running

        asyncio.run(run())


def test_a_job_that_slurm_puts_back_into_the_queue_is_told_as_such(cluster: Cluster) -> None:
    backend = allocation(cluster, flags=["--requeue"])

    async def run() -> None:
        async with (
            hermes_exec.open(backend, audit=False, carrier="guest") as terminal,
            # Slurm sends TERM to each process first.
            terminal.stream("trap '' TERM; echo started; sleep 1000") as events,
        ):
            await anext(events)
            running = asyncio.ensure_future(anext(events))
            cluster.run("scontrol", "requeuehold", backend.job)
            with pytest.raises(OutcomeUnknown, match="put it back into the queue"):
                await running

    asyncio.run(run())
    assert cluster.jobs() == []
