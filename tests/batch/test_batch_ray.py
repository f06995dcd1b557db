"""Shards as actors of a real Ray, on a cluster of two nodes and on one that the run starts: kills, stops, options."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.rigs import slurm
from tests.rigs.batches import BatchPerson, KilledRun, find_children, find_shards, read_state
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import leave_out
from tests.rigs.ray_cluster import RayCluster, find_processes, ray_cluster

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec_agent.batch.run_state import TrialState

leave_out("takes long")

SCRIPTS = Path(__file__).parents[2] / "deploy/examples"


@pytest.fixture(scope="module")
def cluster() -> Generator[RayCluster]:
    with ray_cluster(nodes=2) as running:
        yield running


@pytest.fixture
def argv(cluster: RayCluster) -> tuple[str, ...]:
    options = (f"address={cluster.address}", f"token={cluster.token}")
    return ("--engine", "ray", *(word for each in options for word in ("--engine-option", each)))


@pytest.mark.timeout(300)
def test_the_shards_of_two_nodes_do_all_trials(tmp_path: Path, cluster: RayCluster, argv: tuple[str, ...]) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks({"id": f"t{number}", "instruction": "work", "check": "test -s out"} for number in range(16))
    model = person.write_replies("echo done > out; sleep 1")
    process = person.start("run", "tasks.jsonl", "--model", model, "-n", "8", "--per-shard", "2", "--into", "r", *argv)
    wait_until(lambda: len(find_shards(person.home / "r")) == 4)
    parents = {int(Path(f"/proc/{pid}/stat").read_text().split()[3]) for pid in find_shards(person.home / "r")}
    assert process.wait(120) == 0, process.communicate()
    process.communicate()
    assert parents == set(cluster.find_raylets())
    assert Counter(each.accepted["state"] for _, each in read_state(person.home / "r").results() if each.accepted) == {
        "graded": 16
    }


@pytest.mark.timeout(400)
def test_killed_actors_and_drivers_repeat_no_attempt(tmp_path: Path, argv: tuple[str, ...]) -> None:
    run = KilledRun(BatchPerson(tmp_path), 6, on=("local",), seed=5, pause_s=2.0, more=argv)
    kills = run.run(3, concurrency=4, per_shard=2)
    assert kills["shard"]
    run.check()


@pytest.mark.timeout(300)
def test_a_killed_command_leaves_no_cluster(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "t", "instruction": "work", "check": "test -s out"}])
    model = person.write_replies("echo done > out; sleep 3")
    process = person.start("run", "tasks.jsonl", "--model", model, "--into", "r", "--engine", "ray")
    wait_until(lambda: len(find_shards(person.home / "r")) == 1)
    folder = (person.home / "r/engine/ray-folder").read_text().strip()
    token = person.home / "r/engine/ray-token"
    assert token.stat().st_mode & 0o777 == 0o600
    assert find_processes(folder)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_until(lambda: not find_processes(folder))
    done = person.run("resume", "r", limit_s=200)
    assert done.returncode == 0, done.stderr
    assert (Path(folder).exists(), token.exists(), find_processes("raylet/raylet", "hermes-ray-")) == (False, False, [])


@pytest.mark.timeout(300)
def test_the_folders_of_killed_drivers_are_removed_within_the_run(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "t", "instruction": "work", "check": "test -s out"}])
    model = person.write_replies("echo done > out; sleep 3")
    process = person.start("run", "tasks.jsonl", "--model", model, "--into", "r", "--engine", "ray")
    wait_until(lambda: len(find_shards(person.home / "r")) == 1)
    folder = Path((person.home / "r/engine/ray-folder").read_text().strip())
    (driver,) = find_children(process.pid, "hermes_exec_agent.batch.ray_driver")
    os.kill(driver, signal.SIGKILL)
    assert process.wait(250) == 0, process.communicate()
    process.communicate()
    assert (folder.exists(), (person.home / "r/engine/ray-folder").exists()) == (False, False)


@pytest.mark.timeout(300)
def test_a_killed_driver_is_replaced_and_its_trials_are_done_once(tmp_path: Path, argv: tuple[str, ...]) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "t", "instruction": "work", "check": "test -s out"}])
    runs = tmp_path / "runs"
    lock = f"flock -n {tmp_path}/lock sh -c 'echo run >> {runs}; sleep 4' || echo overlap >> {runs}"
    model = person.write_replies(lock, "echo done > out")
    process = person.start("run", "tasks.jsonl", "--model", model, "--into", "r", *argv)
    wait_until(runs.exists)
    drivers = [
        pid
        for pid in find_processes("hermes_exec_agent.batch.ray_driver")
        if int(Path(f"/proc/{pid}/stat").read_text().split()[3]) == process.pid
    ]
    os.kill(drivers[0], signal.SIGKILL)
    assert process.wait(200) == 0, process.communicate()
    process.communicate()
    assert set(runs.read_text().split()) == {"run"}
    (found,) = [each.accepted for _, each in read_state(person.home / "r").results()]
    assert found
    assert (found["state"], found["attempt"]) == ("graded", 2)


@pytest.mark.timeout(300)
def test_a_stop_ends_what_runs(tmp_path: Path, argv: tuple[str, ...]) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks({"id": f"t{number}", "instruction": "work", "check": "true"} for number in range(2))
    model = person.write_replies("sleep 70")
    process = person.start("run", "tasks.jsonl", "--model", model, "-n", "2", "--per-shard", "1", "--into", "r", *argv)
    wait_until(lambda: sum(each.is_running for each in _find_trials(person)) == 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 128 + signal.SIGTERM
    process.communicate()
    assert [each.last["state"] for each in _find_trials(person) if each.last] == ["interrupted"] * 2
    wait_until(lambda: not find_shards(person.home / "r"))


def _find_trials(person: BatchPerson) -> list[TrialState]:
    path = person.home / "r"
    return list(read_state(path).trials.values()) if (path / "run.json").exists() else []


@pytest.mark.timeout(400)
def test_the_script_for_slurm_runs_a_batch_on_two_nodes(tmp_path: Path) -> None:
    done, said = _submit(BatchPerson(tmp_path), "ray.sbatch", nodes=2)
    assert (done.returncode, "6/6 done" in said) == (0, True), (done.stderr, said)
    assert len(list((tmp_path / "r/shards").glob("s*/ended"))) == 2


@pytest.mark.timeout(400)
def test_the_script_for_exclusive_nodes_runs_a_batch_by_symmetric_run(tmp_path: Path) -> None:
    # Its end stops every Ray of the user that it sees, so that here it sees its own processes alone, and reaps them.
    ray = shutil.which("ray", path=BatchPerson(tmp_path).environ["PATH"])
    alone = "exec unshare --pid --fork --kill-child --mount-proc"
    programs = tmp_path / "bin"
    programs.mkdir()
    reaped = f"""{alone} sh -c '{ray} "$@" & wait $!' sh "$@\""""
    (programs / "ray").write_text(f'#!/bin/sh\n[ "$1" = symmetric-run ] || exec {ray} "$@"\n{reaped}\n')
    (programs / "ray").chmod(0o755)
    person = BatchPerson(tmp_path)
    person.environ["PATH"] = f"{programs}:{person.environ['PATH']}"
    done, said = _submit(person, "ray-exclusive.sbatch", nodes=1)
    assert (done.returncode, "6/6 done" in said, "Stopped all" in said) == (0, True, True), (done.stderr, said)
    assert read_state(tmp_path / "r").summarize().reward == 1


def _submit(person: BatchPerson, script: str, *, nodes: int) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a script to its end, check that it leaves nothing, and return what it printed."""
    person.write_tasks({"id": f"t{number}", "instruction": "work", "check": "test -s out"} for number in range(6))
    model = person.write_replies("echo done > out; sleep 2")
    shutil.copy(SCRIPTS / script, person.home)
    with slurm.cluster(nodes=nodes) as cluster:
        argv = ["sbatch", "--wait", f"--nodes={nodes}", "--ntasks-per-node=1", "--cpus-per-task=1", "--output=job.txt"]
        argv += [script, "tasks.jsonl", "--model", model, "-n", "4", "--per-shard", "2", "--into", "r"]
        environ = {**person.environ, "SLURM_CONF": str(cluster.conf)}
        done = subprocess.run(argv, check=False, text=True, cwd=person.home, env=environ, capture_output=True)
        wait_until(lambda: cluster.jobs() == [])
    assert not list(person.home.glob(".hermes-ray-*"))
    assert not list(Path("/tmp").glob("hermes-ray-*-n?"))
    assert not find_processes("raylet/raylet", "hermes-ray-")
    return done, (person.home / "job.txt").read_text()


@pytest.mark.timeout(200)
def test_a_wrong_token_is_one_line(tmp_path: Path, cluster: RayCluster) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "a", "instruction": "work", "check": "true"}])
    wrong = tmp_path / "token"
    wrong.write_text("0" * 64)
    options = ("--engine-option", f"address={cluster.address}", "--engine-option", f"token={wrong}")
    done = person.run("run", "tasks.jsonl", "--agent", "nop", "--engine", "ray", *options)
    assert (done.returncode, "Traceback" in done.stderr, "0" * 64 in done.stderr) == (125, False, False), done.stderr
    assert "ray: " in done.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("colour=red",), "ray has no such option"),
        (("cpus=many",), "a number from 0 on"),
        (("memory=much",), "it should be a size"),
        (("address=127.0.0.1:1",), "the cluster's token is not known"),
        (("address=127.0.0.1:1", "token=missing"), "the cluster's token is not known"),
    ],
)
def test_bad_options_are_one_line(tmp_path: Path, options: tuple[str, ...], why: str) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "a", "instruction": "work", "check": "true"}])
    words = (word for each in options for word in ("--engine-option", each))
    done = person.run("run", "tasks.jsonl", "--agent", "nop", "--engine", "ray", *words)
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr


@pytest.mark.timeout(200)
def test_a_shard_larger_than_this_machine_is_one_line(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "a", "instruction": "work", "check": "true"}])
    done = person.run(
        "run", "tasks.jsonl", "--agent", "nop", "--into", "r", "--engine", "ray", "--engine-option", "cpus=999"
    )
    assert done.returncode == 125
    assert "a shard needs cpus=999" in done.stderr
    assert not find_processes("raylet/raylet", "hermes-ray-")
    assert json.loads((person.home / "r/run.json").read_text())
