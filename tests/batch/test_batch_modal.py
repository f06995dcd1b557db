"""Shards as sandboxes of Modal, through Modal's own library against the server of the tests, which really runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.batch.modal_engine import ModalEngine
from tests.rigs import modal
from tests.rigs.batches import BatchPerson, read_state
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import IN_FULL, leave_out

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.rigs.apart import Apart

leave_out("takes long")

CHECKOUT = Path(__file__).parents[2]
ARGV = ("--engine", "modal", "--engine-option", "target=shards", "--engine-option", f"python={sys.executable}")


@pytest.fixture
def server() -> Generator[Apart]:
    made = modal.server()
    made.call("heal")
    made.call("forget_problems")
    yield made
    for sandbox in made.call("alive"):
        made.call("finish", sandbox["id"], "TERMINATED", 137)
    assert made.call("problems") == []


@pytest.fixture
def person(tmp_path: Path, server: Apart) -> BatchPerson:
    """A person whose sandboxes see this checkout and its Python."""
    (tmp_path / "marks").mkdir(mode=0o777)
    volumes = {str(CHECKOUT): "checkout", sys.base_prefix: "python", str(tmp_path / "marks"): "marks"}
    for folder, name in volumes.items():
        server.call("share", name, folder)
    config = tmp_path / ".config/hermes_exec/hermes.toml"
    config.parent.mkdir(parents=True)
    table = ", ".join(f"{json.dumps(folder)} = {json.dumps(name)}" for folder, name in volumes.items())
    config.write_text(
        f"[backends.shards]\ntype = 'modal'\nvolumes = {{{table}}}\n[backends.gpu]\ntype = 'modal'\ngpu = 'T4'\n"
    )
    names = ("MODAL_SERVER_URL", "MODAL_CONFIG_PATH", "MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")
    return BatchPerson(tmp_path, **{name: os.environ[name] for name in names})


def runs(server: Apart) -> bool:
    """Whether a trial runs in a sandbox, seen from outside."""
    roots = [Path(each["root"]) for each in server.call("alive")]
    logs = [log for root in roots for log in root.glob("tmp/hermes-batch/shards/*/log.jsonl")]
    return any('"running"' in log.read_text() for log in logs)


def write_tasks(person: BatchPerson, count: int) -> None:
    person.write_tasks({"id": f"t{number}", "instruction": "work", "check": "test -s out"} for number in range(count))


@pytest.mark.timeout(200)
def test_sandboxes_do_all_trials_once_and_bring_back_what_they_found(person: BatchPerson, server: Apart) -> None:
    write_tasks(person, 6)
    model = person.write_replies("echo at-$(uname -n) | tee out")
    done = person.run("run", "tasks.jsonl", "--model", model, "-n", "4", "--per-shard", "2", "--max-steps", "30",
                      "--into", "r", *ARGV)  # fmt: skip
    assert done.returncode == 0, (done.stderr, [each.read_text() for each in person.home.glob("r/shards/*/output.txt")])
    accepted = [each.accepted for _, each in read_state(person.home / "r").results() if each.accepted]
    assert [(each["state"], each["reward"], each["attempt"]) for each in accepted] == [("graded", 1.0, 1)] * 6
    assert len({each["shard"] for each in accepted}) == 2
    rows = person.run("export", "r", "--as", "openai", "--scripted").stdout
    assert len(rows.splitlines()) == 6
    assert rows.count("at-modal") == 6
    assert server.call("alive") == []
    last = max(person.home.glob("r/ledger/*"), key=lambda each: int(each.name))
    assert json.loads(last.read_text())["total"]["steps"] == 12
    assert not list((person.home / "r/engine").iterdir())


@pytest.mark.timeout(200)
def test_a_lost_sandbox_is_lost_and_its_trials_are_done_by_another(person: BatchPerson, server: Apart) -> None:
    write_tasks(person, 2)
    model = person.write_replies("echo done > out; sleep 4")
    process = person.start("run", "tasks.jsonl", "--model", model, "--into", "r", *ARGV)
    wait_until(lambda: runs(server))
    (first,) = person.home.glob("r/shards/*/sandbox")
    server.call("finish", json.loads(first.read_text())["sandbox"], "TERMINATED", 137)
    output = process.communicate(timeout=150)
    assert process.returncode == 0, output
    state = read_state(person.home / "r")
    accepted = [each.accepted for _, each in state.results() if each.accepted]
    assert [(each["state"], each["reward"], each["attempt"]) for each in accepted] == [("graded", 1.0, 2)] * 2
    lost = [json.loads(each.read_text()) for each in person.home.glob("r/results/*/*.1")]
    assert [(each["state"], each["reward"], each["reason"]) for each in lost] == [
        ("lost", None, "its shard ended; its machine has ended")
    ] * 2
    assert server.call("alive") == []


@pytest.mark.timeout(200)
def test_a_stop_leaves_no_sandbox(person: BatchPerson, server: Apart) -> None:
    write_tasks(person, 1)
    model = person.write_replies("sleep 300")
    process = person.start("run", "tasks.jsonl", "--model", model, "--into", "r", *ARGV)
    wait_until(lambda: runs(server))
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=100)
    assert process.returncode == 143, output
    (each,) = read_state(person.home / "r").trials.values()
    assert each.last is not None
    assert (each.last["state"], each.is_running) == ("interrupted", False)
    assert server.call("alive") == []


@pytest.mark.timeout(200)
def test_a_resumed_run_ends_the_sandbox_of_a_killed_command_before_it_begins_again(
    person: BatchPerson, server: Apart
) -> None:
    write_tasks(person, 1)
    runs_of = person.home / "marks/runs"
    model = person.write_replies(f"echo >> {runs_of}; [ $(wc -l < {runs_of}) = 2 ] || sleep 300; echo done > out")
    process = person.start("run", "tasks.jsonl", "--model", model, "--into", "r", *ARGV)
    wait_until(runs_of.exists, 60)
    process.kill()
    process.communicate()
    (first,) = server.call("alive")
    done = person.run("resume", "r", limit_s=60)
    assert done.returncode == 0, done.stderr
    (each,) = read_state(person.home / "r").trials.values()
    assert each.accepted is not None
    assert (each.accepted["reward"], each.accepted["attempt"], runs_of.read_text()) == (1.0, 2, "\n\n")
    (record,) = (json.loads(path.read_text()) for path in person.home.glob("r/results/*/*.1"))
    assert record["reason"] == "its shard ended; its machine has ended"
    assert first["id"] not in {each["id"] for each in server.call("alive")}
    assert not list((person.home / "r/engine").iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not IN_FULL, reason="waits for a lease. Try: ./dev test --all, or name this test")
@pytest.mark.timeout(200)
def test_a_killed_command_leaves_no_sandbox_after_its_lease(person: BatchPerson, server: Apart) -> None:
    write_tasks(person, 1)
    model = person.write_replies("sleep 300")
    process = person.start("run", "tasks.jsonl", "--model", model, "--into", "r", *ARGV)
    wait_until(lambda: runs(server))
    process.kill()
    process.communicate()
    wait_until(lambda: server.call("alive") == [], 100)


def test_a_task_of_harbor_reaches_only_its_addresses(person: BatchPerson, server: Apart) -> None:
    folder = person.home / "task"
    for name, text in (
        ("instruction.md", "work"),
        ("task.toml", "[environment]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['10.1.0.0/16', '10.0.0.1']\n"),
        ("environment/Dockerfile", "FROM debian:12\n"),
        ("tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    before = {each["id"] for each in server.call("sandboxes")}
    done = person.run("run", "task", "--agent", "nop", "--on", "modal", "--into", "r")
    assert done.returncode == 0, done.stderr
    (made,) = (each for each in server.call("sandboxes") if each["id"] not in before)
    assert made["definition"]["network_access"]["allowed_cidrs"] == ["10.1.0.0/16", "10.0.0.1/32"]


@pytest.mark.timeout(200)
def test_a_sandbox_drains_while_the_disk_is_full_and_loses_nothing(person: BatchPerson, server: Apart) -> None:
    disk, marks = person.home / "disk", person.home / "marks"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small disk. Try: run the tests as root")
    try:
        write_tasks(person, 3)
        model = person.write_replies(
            f"echo >> {marks}/runs; until [ -e {marks}/go ]; do sleep 0.1; done; sleep 4", "echo x > out"
        )
        process = person.start("run", "tasks.jsonl", "-m", model, "--into", "disk/r", "-n", "1", *ARGV)
        wait_until((marks / "runs").exists, 60)
        (disk / "fill").write_bytes(b"x" * (shutil.disk_usage(disk).free - (400 << 10)))
        (marks / "go").touch()
        root = Path(server.call("alive")[0]["root"])
        wait_until(
            lambda: [each for each in root.glob("tmp/hermes-batch/control/1") if each.read_text() == "drain"], 60
        )
        (disk / "fill").unlink()
        output = process.communicate(timeout=100)
        assert process.returncode == 0, output
        state = read_state(disk / "r")
        assert sorted(each.accepted["attempt"] for _, each in state.results() if each.accepted) == [1, 1, 2]
        assert (marks / "runs").read_text() == "\n" * 3
        (path,) = (path for path in disk.glob("r/results/*/*.1") if json.loads(path.read_text())["state"] == "lost")
        assert json.loads(path.read_text())["reason"] == "its shard ended; it had not begun"
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.timeout(200)
def test_a_sandbox_that_cannot_start_leaves_no_open_attempt(person: BatchPerson, server: Apart) -> None:
    write_tasks(person, 2)
    server.call("fail_builds", "no such image")
    config = person.home / ".config/hermes_exec/hermes.toml"
    config.write_text(config.read_text().replace("type = 'modal'\nvol", "type = 'modal'\npackages = ['jq']\nvol"))
    done = person.run("run", "tasks.jsonl", "--agent", "nop", "--into", "r", *ARGV, limit_s=60)
    assert done.returncode == 1, done.stderr
    assert "shards ended one after another without a result" in done.stderr
    lasts = [each.last for each in read_state(person.home / "r").trials.values()]
    assert [(each["state"], each["reason"]) for each in lasts if each] == [
        ("lost", "its shard ended; it had not begun")
    ] * 2
    assert server.call("alive") == []


def test_options_are_checked_before_anything_starts(person: BatchPerson) -> None:
    for option, value, why in (
        ("size", "1", "modal has no such option"),
        ("target", "docker", "it is a target of docker"),
        ("config", "/none", "there is no such file"),
    ):
        with pytest.raises(UsageError, match=why):
            ModalEngine.check({option: value})
    write_tasks(person, 1)
    done = person.run("run", "tasks.jsonl", "--agent", "nop", "--engine", "modal", "--engine-option", "size=1")
    assert (done.returncode, "modal has no such option" in done.stderr) == (2, True), done.stderr


def test_targets_with_gpus_end_at_the_cap_of_gpu_hours(person: BatchPerson, server: Apart) -> None:
    write_tasks(person, 1)
    model = person.write_replies("sleep 60")
    done = person.run("run", "tasks.jsonl", "--model", model, "--on", "gpu", "--max-gpu-hours", "0.002", "--into", "r")
    assert done.returncode == 3, done.stderr
    (each,) = read_state(person.home / "r").trials.values()
    assert each.last is not None
    assert (each.last["state"], each.last["reason"]) == (
        "capped",
        "the cap of GPU hours is reached. Try: resume with a larger cap",
    )
    totals = [json.loads(path.read_text())["total"]["gpu_ms"] for path in person.home.glob("r/ledger/*")]
    assert 1000 < max(totals) <= 7200
    assert server.call("alive") == []
