"""Runs of scripted trials on this machine: results, exit codes, stops, resumptions, and a disk that is full."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hermes_exec.config.paths import write_private
from hermes_exec_agent.batch.canonical_json import digest_of
from hermes_exec_agent.batch.run_folder import RunFolder
from hermes_exec_agent.batch.run_state import RunState
from hermes_exec_agent.batch.settings import AgentSettings, RunSettings
from hermes_exec_agent.batch.shard import Shard
from hermes_exec_agent.batch.tasks import Task
from tests.rigs.batches import BatchPerson, find_shards, read_state
from tests.rigs.bounded import wait_until
from tests.rigs.breadth import leave_out
from tests.rigs.processes import with_mark

leave_out("takes long")

PAGE = (Path(__file__).parents[2] / "docs/batch.md").read_text()


@pytest.fixture
def person(tmp_path: Path) -> BatchPerson:
    return BatchPerson(tmp_path)


def task(id: str, check: str = "true", **more: Any) -> dict[str, Any]:
    return {"id": id, "instruction": f"work on {id}", "check": check, **more}


def states(path: Path) -> dict[str, tuple[str, str | None, float | None]]:
    """What the accepted results are, by task."""
    found = {trial.task.id: each.accepted for trial, each in read_state(path).results()}
    return {id: (each["state"], each["failure"], each["reward"]) for id, each in found.items() if each is not None}


def test_every_command_of_the_page_runs_and_shows_its_output(person: BatchPerson) -> None:
    ran = 0
    for name, text in re.findall(r"`(\S+)` has:?\n\n```json\n(.*?)```", PAGE, re.DOTALL):
        (person.home / name).write_text(text)
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            done = subprocess.run(
                ["sh", "-c", command], env=person.environ, cwd=person.home, capture_output=True, text=True, check=False,
                timeout=100,
            )  # fmt: skip
            assert done.returncode in (0, 1), done.stderr
            for line in expected.splitlines():
                assert line in done.stdout + done.stderr, command
            ran += 1
    assert ran >= 7


def test_each_kind_of_end_is_a_result_of_its_own(person: BatchPerson) -> None:
    """A failed check, an agent that was stopped, a check that cannot run, a target and a model that fail."""
    (person.home / "given").mkdir()
    (person.home / "given/number").write_text("7\n")
    person.write_tasks(
        [
            task("right", "grep -q 7 number && test -f set", files="given", setup="touch set"),
            task("wrong", "echo no; exit 3"),
            task("stopped", "false", steps=1),
            task("unchecked", "no-such-program"),
            task("target", setup="exit 4"),
        ]
    )
    model = person.write_replies("ls", "pwd")
    done = person.run("run", "tasks.jsonl", "-m", model, "--into", "r", "--attempts", "2", "--json")
    assert done.returncode == 1, done.stderr
    assert states(person.home / "r") == {
        "right": ("graded", None, 1.0),
        "wrong": ("graded", "check", 0.0),
        "stopped": ("graded", "agent", 0.0),
        "unchecked": ("ungraded", None, None),
        "target": ("failed", "infrastructure", None),
    }
    counts = {trial.task.id: each.claimed for trial, each in read_state(person.home / "r").results()}
    assert counts == {"right": 1, "wrong": 1, "stopped": 1, "unchecked": 1, "target": 2}
    assert json.loads(done.stdout)["failures"] == {"agent": 1, "check": 1, "infrastructure": 1, "ungraded": 1}
    (person.home / "empty.jsonl").write_text('{"content": "Done."}\n')
    person.write_tasks([task("model")], "one.jsonl")
    done = person.run("run", "one.jsonl", "-m", person.write_replies(name="short.jsonl"), "--into", "s", "--steps", "1")
    assert done.returncode == 0, done.stderr
    (person.home / "short.jsonl").write_text('{"tool_calls": [{"name": "terminal", "arguments": {"command": "ls"}}]}\n')
    done = person.run("run", "one.jsonl", "-m", "replay:short.jsonl", "--into", "m", "--attempts", "1")
    assert (done.returncode, states(person.home / "m")) == (1, {"model": ("failed", "model", None)})


def test_other_agents_work_in_the_target(person: BatchPerson) -> None:
    person.write_tasks([task("a", "grep -q 'work on a' out", solution='echo "work on a" > out')])
    for agent, reward in (("nop", 0.0), ("oracle", 1.0), ('command: echo "$HERMES_EXEC_INSTRUCTION" > out', 1.0)):
        done = person.run("run", "tasks.jsonl", "--agent", agent, "--into", agent[:3])
        assert done.returncode == 0, done.stderr
        assert states(person.home / agent[:3])["a"][2] == reward
    done = person.run("run", "tasks.jsonl", "--agent", "nup")
    assert (done.returncode, "there is no such agent" in done.stderr) == (2, True)


def test_changes_of_the_folder_are_refused_with_the_difference(person: BatchPerson) -> None:
    person.write_tasks([task("a"), task("b")])
    assert person.run("run", "tasks.jsonl", "--agent", "nop", "--into", "r").returncode == 0
    frozen, record = person.home / "r/tasks.jsonl", person.home / "r/run.json"
    text = frozen.read_text()
    frozen.write_text(text.replace("work on a", "work on z"))
    done = person.run("resume", "r")
    assert (done.returncode, "the task a was changed" in done.stderr, "task b" in done.stderr) == (2, True, False)
    frozen.write_text(text)
    record.write_text(record.read_text().replace('"concurrency": 2', '"concurrency": 3'))
    done = person.run("resume", "r")
    assert (done.returncode, "run.json: the settings were changed" in done.stderr) == (2, True)
    done = person.run("run", "tasks.jsonl", "--agent", "nop", "--into", "r")
    assert (done.returncode, "not empty" in done.stderr) == (2, True)
    older = json.loads(record.read_text().replace('"concurrency": 3', '"concurrency": 2'))
    older["version"] = "0.0.1"
    older["digest"] = digest_of({name: value for name, value in older.items() if name != "digest"})
    record.write_text(json.dumps(older))
    done = person.run("resume", "r")
    assert (done.returncode, "the run was begun by 0.0.1, and this is" in done.stderr) == (2, True), done.stderr


def test_a_target_that_fails_is_no_reward_and_the_others_go_on(person: BatchPerson) -> None:
    person.write_tasks([task("a", 'test -n "$TOKEN" && echo $TOKEN; exit 3')])
    (person.home / ".config/hermes_exec").mkdir(parents=True)
    (person.home / ".config/hermes_exec/hermes.toml").write_text(
        '[backends.here]\ntype = "local"\nsecrets = {TOKEN = "env:GIVEN"}\n[backends.away]\ntype = "ssh"\n'
        'host = "127.0.0.1"\nport = 1\nuser = "nobody"\n'
    )
    person.environ["GIVEN"] = "very-secret-token"
    model = person.write_replies("echo $TOKEN")
    argv = ["run", "tasks.jsonl", "-m", model, "--on", "here", "--on", "away", "--into", "r", "--attempts", "2"]
    done = person.run(*argv)
    assert done.returncode == 1, done.stderr
    found = {trial.target: each.accepted for trial, each in read_state(person.home / "r").results()}
    assert found["here"] is not None
    assert found["away"] is not None
    assert (found["here"]["reward"], found["here"]["check"]["last"]) == (0.0, "[secret TOKEN]")
    assert (found["away"]["state"], found["away"]["failure"], found["away"]["reward"], found["away"]["attempt"]) == (
        "failed", "infrastructure", None, 2,
    )  # fmt: skip
    files = [path for path in (person.home / "r").rglob("*") if path.is_file()]
    assert [path for path in files if b"very-secret-token" in path.read_bytes()] == []


def test_only_the_chosen_trials_begin_again(person: BatchPerson) -> None:
    person.write_tasks([task("a"), task("b", "no-such-program"), task("c", setup="test -f $HOME/there")])
    assert person.run("run", "tasks.jsonl", "--agent", "nop", "--into", "r", "--attempts", "1").returncode == 1
    (person.home / "there").touch()
    assert person.run("resume", "r").returncode == 1
    claimed = {trial.task.id: each.claimed for trial, each in read_state(person.home / "r").results()}
    assert claimed == {"a": 1, "b": 1, "c": 1}
    assert person.run("resume", "r", "--only", "failed").returncode == 1
    assert states(person.home / "r")["c"] == ("graded", None, 1.0)
    assert person.run("resume", "r", "--only", "ungraded").returncode == 1
    claimed = {trial.task.id: each.claimed for trial, each in read_state(person.home / "r").results()}
    assert claimed == {"a": 1, "b": 2, "c": 2}


def test_ctrl_c_drains_and_twice_ends_everything(person: BatchPerson) -> None:
    mark = f"sleep 1{os.getpid()}"
    person.write_tasks([task(f"t{number}") for number in range(4)])
    model = person.write_replies(f"touch begun; test -f {person.home}/free || {mark}")
    process = person.start("run", "tasks.jsonl", "-m", model, "--into", "r", "-n", "2")
    wait_until(lambda: read_running(person, mark) >= 2)
    process.send_signal(signal.SIGINT)
    wait_until((person.home / "r/control/1").exists)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert read_running(person, mark) == 0
    assert find_shards(person.home / "r") == []
    summary = read_state(person.home / "r").summarize()
    assert (summary.done, summary.running, summary.waiting) == (0, 0, 4)
    (person.home / "free").touch()
    done = person.run("resume", "r")
    assert done.returncode == 0, done.stderr
    claimed = sorted(each.claimed for each in read_state(person.home / "r").trials.values())
    assert claimed == [1, 1, 2, 2]


def read_running(person: BatchPerson, mark: str) -> int:
    """How many processes have this command line."""
    words = mark.encode().replace(b" ", b"\0") + b"\0"
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes() == words
        except OSError:
            continue
    return found


def test_a_drained_run_ends_what_runs_and_begins_nothing(person: BatchPerson) -> None:
    """Also if the reader of its messages has gone, as at the end of a pipe."""
    person.write_tasks([task(f"t{number}") for number in range(3)])
    model = person.write_replies(f"touch {person.home}/begun; until test -f {person.home}/free; do sleep 0.1; done")
    process = person.start("run", "tasks.jsonl", "-m", model, "--into", "r", "-n", "1")
    wait_until((person.home / "begun").exists)
    assert process.stderr is not None
    process.stderr.close()
    process.send_signal(signal.SIGINT)
    wait_until((person.home / "r/control/1").exists)
    (person.home / "free").touch()
    assert process.wait(60) == 141  # as of a command whose reader has gone
    summary = read_state(person.home / "r").summarize()
    assert (summary.graded, summary.waiting) == (1, 2)


def test_a_full_disk_stops_claims_before_running_trials(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode != 0:
        pytest.skip("needs the right to mount a small disk. Try: run the tests as root")
    try:
        person.write_tasks([task(f"t{number}") for number in range(3)])
        fill = f"test -f {tmp_path}/free || head -c 3700000 /dev/zero > {disk}/fill"
        done = person.run("run", "tasks.jsonl", "-m", person.write_replies(fill), "--into", "disk/r", "-n", "1")
        assert (done.returncode, "too little for another attempt" in done.stderr) == (1, True), done.stderr
        summary = read_state(disk / "r").summarize()
        assert (summary.graded, summary.waiting) == (1, 2)
        (disk / "fill").unlink()
        (tmp_path / "free").touch()
        done = person.run("resume", "disk/r")
        assert done.returncode == 0, done.stderr
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_two_commands_do_not_run_one_batch(person: BatchPerson) -> None:
    person.write_tasks([task("a")])
    model = person.write_replies(f"touch {person.home}/begun; until test -f {person.home}/free; do sleep 0.1; done")
    process = person.start("run", "tasks.jsonl", "-m", model, "--into", "r")
    wait_until((person.home / "begun").exists)
    done = person.run("resume", "r")
    assert (done.returncode, "runs this batch" in done.stderr) == (2, True)
    assert json.loads(person.run("status", "r", "--json").stdout)["active"]
    done = person.run("cancel", "r")
    assert (done.returncode, "no trial runs" in done.stderr) == (0, True), done.stderr
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_two_runs_of_the_same_tasks_have_folders_of_their_own(person: BatchPerson) -> None:
    person.write_tasks([task(f"t{number}", 'test "$(ls)" = out') for number in range(3)])
    model = person.write_replies("sleep 1; echo done > out")
    runs = [person.start("run", "tasks.jsonl", "--model", model, "--into", name) for name in ("one", "two")]
    assert [each.wait(60) for each in runs] == [0, 0]
    for each in runs:
        each.communicate()
    for name in ("one", "two"):
        assert set(states(person.home / name).values()) == {("graded", None, 1.0)}


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (("--shard", "s", "--epoch", "1"), "was begun before"),
        (("--shard", "../../x", "--epoch", "1"), "it should be letters"),
        (("--shard", "t", "--epoch", "7"), "the run has no epoch 7. Try: --epoch 1"),
    ],
)
def test_a_shard_is_begun_once_in_the_folder_of_its_run(person: BatchPerson, argv: tuple[str, ...], why: str) -> None:
    person.write_tasks([task("a")])
    assert person.run("run", "tasks.jsonl", "--agent", "nop", "--into", "r").returncode == 0
    assert person.run("shard", "r", "--shard", "s", "--epoch", "1").returncode == 0
    done = person.run("shard", "r", *argv)
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    assert not (person.home / "x").exists()


def test_cancel_starts_no_further_shards(person: BatchPerson) -> None:
    person.write_tasks([task(f"t{number}") for number in range(3)])
    model = person.write_replies(f"touch {person.home}/begun; sleep 60")
    process = person.start("run", "tasks.jsonl", "-m", model, "--into", "r", "-n", "1")
    wait_until((person.home / "begun").exists)
    assert person.run("cancel", "r").returncode == 0
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert len(list((person.home / "r/shards").glob("s*"))) == 1


def test_the_wall_time_ends_a_run_that_drains(person: BatchPerson) -> None:
    person.write_tasks([task("a")])
    model = person.write_replies(f"touch {person.home}/begun; sleep 60")
    process = person.start("run", "tasks.jsonl", "-m", model, "--into", "r", "--max-wall", "4")
    wait_until((person.home / "begun").exists)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=40)
    assert process.returncode == 130
    assert read_state(person.home / "r").summarize().failures == {"capped": 1}


def test_a_target_where_a_dead_shard_could_not_be_ended_is_refused(person: BatchPerson) -> None:
    config = person.home / ".config/hermes_exec/hermes.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[backends.plain]\ntype = "local"\ncarrier = "plain"\n')
    person.write_tasks([task("a")])
    done = person.run("run", "tasks.jsonl", "--agent", "nop", "--on", "plain", "--into", "r", "--attempts", "1")
    assert done.returncode == 1, done.stderr
    ((_, state),) = read_state(person.home / "r").results()
    assert state.accepted is not None
    assert "has no Python" in state.accepted["reason"]


def test_a_shard_without_a_heartbeat_ends_what_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nap = f"sleep 9{os.getpid()}.{time.monotonic_ns() % 10**9}"
    monkeypatch.setattr("hermes_exec_agent.batch.shard.FENCE_S", 1.0)
    monkeypatch.setattr("hermes_exec_agent.batch.shard.HEARTBEAT_S", 0.2)
    settings = RunSettings(agent=AgentSettings(agent=f"command: {nap}"))
    run = RunFolder.create(tmp_path / "r", "t", [Task(id="a", instruction="a", check="true")], settings)
    epoch = run.plan_epoch(run.begin_epoch(settings), RunState(run).find_todo())
    run.shard("s").mkdir()

    async def scenario() -> None:
        running = asyncio.ensure_future(Shard(run, epoch, "s", 0, 1).run())
        async with asyncio.timeout(30):
            while not with_mark(nap.replace(" ", "\0")):
                await asyncio.sleep(0.05)
            run.shard("s").rename(tmp_path / "elsewhere")
            with pytest.raises(OSError, match="No such file"):  # its end cannot be recorded either
                await running

    asyncio.run(scenario())
    assert not with_mark(nap.replace(" ", "\0"))
    assert next(run.scan("results"))[1] == 1


def test_changed_files_of_a_run_are_named(person: BatchPerson) -> None:
    folder = person.home / "given"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/data").write_text("one")
    (folder / "link").symlink_to("sub/data")
    person.write_tasks([task("a", files="given"), task("b", files="given")])
    model = person.write_replies("true")
    done = person.run("run", "tasks.jsonl", "-m", model, "--into", "r")
    assert done.returncode == 0, done.stderr
    copy = person.home / "r/files/b/sub/data"
    copy.write_text("two")
    done = person.run("resume", "r")
    assert (done.returncode, "files/b: it was changed" in done.stderr, "files/a" in done.stderr) == (2, True, False)
    copy.write_text("one")
    copy.chmod(0o700)
    assert person.run("resume", "r").returncode == 2
    copy.chmod(0o600)
    assert person.run("resume", "r").returncode == 0


def test_a_run_inside_of_a_copied_folder_is_refused(person: BatchPerson) -> None:
    person.write_tasks([task("a", files=".")])
    done = person.run("run", "tasks.jsonl", "--agent", "nop", "--into", "r")
    assert (done.returncode, "is inside of 'files' of the task a" in done.stderr) == (2, True)
    assert not (person.home / "r").exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1}', '{"format": 1, "tasks": NaN}', "[" * 10_000])
def test_a_damaged_run_is_one_line(person: BatchPerson, content: str) -> None:
    person.write_tasks([task("a")])
    assert person.run("run", "tasks.jsonl", "--agent", "nop", "--into", "r").returncode == 0
    (person.home / "r/run.json").write_text(content)
    done = person.run("status", "r")
    assert (done.returncode, "run.json" in done.stderr, len(done.stderr.splitlines())) == (2, True, 1)


def test_a_shard_that_drains_ends_its_trials_after_its_grace(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "t", "instruction": "work", "check": "test -s out"}])
    model = person.write_replies("sleep 300")
    process = person.start("run", "tasks.jsonl", "--model", model, "--into", "r")
    wait_until(lambda: any(tmp_path.glob("r/claims/*/*")))
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    run = RunFolder(tmp_path / "r")
    write_private(tmp_path / "r/epochs/2.json", (tmp_path / "r/epochs/1.json").read_bytes())
    write_private(tmp_path / "r/epochs/2.todo", json.dumps({run.trials[0].key: 1}).encode())
    write_private(tmp_path / "r/epochs/2.heartbeat", b"")
    shard = person.start("shard", "r", "--epoch", "2", "--shard", "late", "--detached", "--grace", "0.5")
    log = tmp_path / "r/shards/late/log.jsonl"
    wait_until(lambda: log.exists() and '"running"' in log.read_text())
    shard.send_signal(signal.SIGUSR1)
    assert shard.wait(60) == 0
    shard.communicate()
    result = run.read_result(run.trials[0].key, 2)
    assert result is not None
    assert (result["state"], result["failure"]) == ("failed", "infrastructure")
    assert result["reason"] == "its shard ended: its time limit is near"


def test_the_state_of_a_run_needs_no_tasks_and_a_report_refuses_changed_ones(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "a", "instruction": "work", "check": "true"}])
    assert person.run("run", "tasks.jsonl", "--agent", "nop", "--into", "r").returncode == 0
    assert json.loads(person.run("export", "r").stdout).keys().isdisjoint({"event", "at"})
    frozen = tmp_path / "r/tasks.jsonl"
    frozen.write_text(frozen.read_text().replace("work", "rest"))
    assert "1/1 done" in person.run("status", "r").stdout
    for argv, why in (
        (("report", "r"), "the task a was changed"),
        (("resume", "r"), "the task a was changed"),
        (("export", "r", "--as", "openai", "--min-reward", "nan"), "a finite number"),
    ):
        done = person.run(*argv)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
