"""Shards as arrays of a real Slurm cluster: results, limits, kills, stops, and bad options."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.rigs import slurm
from tests.rigs.batches import BatchPerson, KilledRun, find_shards, read_state
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

leave_out("takes long")


@pytest.fixture(scope="module")
def cluster() -> Generator[slurm.Cluster]:
    with slurm.cluster(nodes=2) as running:
        yield running


@pytest.fixture
def person(tmp_path: Path, cluster: slurm.Cluster) -> BatchPerson:
    return BatchPerson(tmp_path, SLURM_CONF=str(cluster.conf))


ARGV = ("--engine", "slurm", "--engine-option", "partition=main", "--engine-option", "poll=1")


def test_shards_of_one_array_do_all_trials(person: BatchPerson, cluster: slurm.Cluster) -> None:
    person.write_tasks({"id": f"t{number}", "instruction": "work", "check": "test -s out"} for number in range(12))
    model = person.write_replies("echo $SLURM_JOB_NAME > out; sleep 0.2")
    done = person.run("run", "tasks.jsonl", "--model", model, "-n", "6", "--per-shard", "3", "--into", "r", *ARGV)
    assert done.returncode == 0, done.stderr
    state = read_state(person.home / "r")
    assert Counter(each.accepted["state"] for _, each in state.results() if each.accepted) == {"graded": 12}
    scripts = list((person.home / "r/engine").glob("*.sh"))
    assert len(scripts) == 1
    accounting = cluster.run("scontrol", "show", "jobs")
    array = next(block for block in accounting.split("\n\n") if scripts[0].stem in block)
    assert ("Requeue=0" in array, re.search(r"ArrayTaskId=\d", array) is not None) == (True, True)
    assert cluster.jobs() == []


@pytest.mark.timeout(300)
def test_killed_shards_are_noticed_and_no_attempts_overlap(person: BatchPerson, cluster: slurm.Cluster) -> None:
    run = KilledRun(person, 6, on=("local",), seed=3, pause_s=2.0, more=ARGV)
    kills = run.run(3, concurrency=4, per_shard=2)
    assert kills["shard"]
    run.check()
    wait_until(lambda: cluster.jobs() == [])


def test_a_stop_cancels_what_waits_and_ends_what_runs(person: BatchPerson, cluster: slurm.Cluster) -> None:
    person.write_tasks({"id": f"t{number}", "instruction": "work", "check": "true"} for number in range(8))
    model = person.write_replies("sleep 60")
    options = (*ARGV, "--engine-option", "parallel=1")
    process = person.start(
        "run", "tasks.jsonl", "--model", model, "-n", "4", "--per-shard", "1", "--into", "r", *options
    )
    wait_until(lambda: len(find_shards(person.home / "r")) == 1)
    wait_until(lambda: any(each.is_running for each in read_state(person.home / "r").trials.values()))
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 128 + signal.SIGTERM
    process.communicate()
    assert (cluster.jobs(), find_shards(person.home / "r")) == ([], [])
    states = [each.last["state"] for each in read_state(person.home / "r").trials.values() if each.last]
    assert states == ["interrupted"]


def test_a_shard_drains_before_its_time_limit(person: BatchPerson) -> None:
    person.write_tasks({"id": f"t{number}", "instruction": "work", "check": "true"} for number in range(2))
    model = person.write_replies("sleep 4")
    process = person.start("run", "tasks.jsonl", "--model", model, "-n", "1", "--into", "r", *ARGV)
    wait_until(lambda: bool(find_shards(person.home / "r")))
    wait_until(lambda: any(each.is_running for each in read_state(person.home / "r").trials.values()))
    (shard,) = find_shards(person.home / "r")
    os.kill(shard, signal.SIGUSR1)
    assert process.wait(90) == 0
    process.communicate()
    shards = {each.accepted["shard"] for _, each in read_state(person.home / "r").results() if each.accepted}
    assert len(shards) == 2


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--engine", "slrum"), "there is no such engine"),
        (("--engine", "slurm", "--engine-option", "colour=red"), "slurm has no such option"),
        (("--engine", "slurm", "--engine-option", "partition=a b"), "not a valid value of --partition"),
        (("--engine", "slurm", "--engine-option", "time"), "should be KEY=VALUE"),
        (("--engine-option", "time=1"), "the engine local has none"),
        (("--engine", "slurm", "--engine-option", "poll=0"), "a number from 1 on"),
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, options: tuple[str, ...], why: str) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "a", "instruction": "work", "check": "true"}])
    done = person.run("run", "tasks.jsonl", "--agent", "nop", *options)
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr


def test_a_machine_without_a_cluster_is_one_line(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path, SLURM_CONF="/nowhere/slurm.conf")
    person.write_tasks([{"id": "a", "instruction": "work", "check": "true"}])
    done = person.run("run", "tasks.jsonl", "--agent", "nop", "--engine", "slurm")
    assert done.returncode == 125
    assert "slurm: scontrol" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_trials_of_a_cancelled_shard_are_done_by_another_one(person: BatchPerson, cluster: slurm.Cluster) -> None:
    person.write_tasks({"id": f"t{number}", "instruction": "work", "check": "true"} for number in range(2))
    model = person.write_replies("sleep 3")
    process = person.start("run", "tasks.jsonl", "--model", model, "-n", "2", "--per-shard", "1", "--into", "r", *ARGV)
    wait_until(lambda: len(find_shards(person.home / "r")) == 2)
    wait_until(lambda: sum(each.is_running for each in read_state(person.home / "r").trials.values()) == 2)
    name = next((person.home / "r/engine").glob("*.sh")).stem
    tasks = cluster.run("squeue", "--noheader", "--array", f"--name={name}", "--format=%F_%K").split()
    cluster.run("scancel", tasks[0])
    assert process.wait(90) == 0
    process.communicate()
    found = [each.accepted for _, each in read_state(person.home / "r").results()]
    assert sorted(each["attempt"] for each in found if each) == [1, 2]
    assert all(each and each["state"] == "graded" for each in found)
