"""The part of a run for a shard without the run's folder: what it gets, and what is taken from it."""

from __future__ import annotations

import asyncio
import errno
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec_agent.batch.claims import find_next
from hermes_exec_agent.batch.engine import ShardOrder
from hermes_exec_agent.batch.ledger import Amounts, Ledger, read_caps, settle_shard
from hermes_exec_agent.batch.modal_engine import PACK, ModalEngine
from hermes_exec_agent.batch.run_folder import BEGUN, PREPAID, UNBEGUN, Epoch, RunFolder
from hermes_exec_agent.batch.run_state import RunState
from hermes_exec_agent.batch.sandbox_results import unpack
from hermes_exec_agent.batch.settings import AgentSettings, Caps, RunSettings
from hermes_exec_agent.batch.settlement import Settlement, create_end
from hermes_exec_agent.batch.shard_log import LogTail, ShardLog
from hermes_exec_agent.batch.sub_run import UNPROTECTED, SubRun, claim_part, count_claimable, find_unprotected
from hermes_exec_agent.batch.tasks import Task
from tests.rigs.batches import read_state

if TYPE_CHECKING:
    from pathlib import Path

CAPS = Caps(money=1.0, steps=100)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    tasks = [Task(id=f"t{number}", instruction="work", check="true") for number in range(4)]
    settings = RunSettings(models=("",), agent=AgentSettings(agent="nop"), caps=CAPS, concurrency=2, per_shard=1)
    return RunFolder.create(tmp_path / "r", "tasks.jsonl", tasks, settings)


@pytest.fixture
def epoch(run: RunFolder) -> Epoch:
    begun = run.begin_epoch(run.settings)
    return run.plan_epoch(begun, {trial.key: 0 for trial in run.trials})


def begin_part(run: RunFolder, epoch: Epoch, id: str, most: int = 2) -> SubRun:
    run.shard(id).mkdir()
    (run.shard(id) / PREPAID).touch()
    return SubRun(run, epoch, ShardOrder(id, epoch.number, 0, 1), claim_part(run, epoch, id, most))


def write_result(part: SubRun, folder: Path, key: str, **changes: Any) -> dict[str, Any]:
    number = part.attempts.get(key, 1)
    record = create_end(part.run, key, number, "graded", None, "", epoch=1, shard=part.order.id)
    del record["settled"]
    record |= {"reward": 1.0, "final": True, **changes}
    path = folder / "results" / key[:2] / f"{key}.{number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return record


def test_a_shard_gets_its_own_attempts_and_an_equal_part_of_the_caps(
    tmp_path: Path, run: RunFolder, epoch: Epoch
) -> None:
    parts = [begin_part(run, epoch, id) for id in ("s1", "s2")]
    assert count_claimable(run, epoch) == 0
    assert not parts[0].attempts.keys() & parts[1].attempts.keys()
    caps = [part.draw_caps() for part in parts]
    assert [(each.money, each.steps) for each in caps if each] == [(0.5, 50), (0.25, 25)]
    assert caps[0] is not None
    parts[0].write(tmp_path / "sub", caps[0])
    sub = RunFolder.open(tmp_path / "sub")
    assert sub.read_epoch(1).todo == dict.fromkeys(parts[0].attempts, 0)
    assert (sub.read_epoch(1).settings.caps.steps, sub.settings.caps.steps) == (50, 100)
    assert not list((tmp_path / "sub/results").iterdir())


def test_what_another_process_claims_meanwhile_is_not_claimed_twice(
    run: RunFolder, epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = run.trials[1].key

    def find_late(run: RunFolder, epoch: Epoch, key: str) -> tuple[int | None, bool]:
        found = find_next(run, epoch, key)
        if key == taken:
            assert run.claim(key, 1, {"shard": "s9", "epoch": 1})
        return found

    monkeypatch.setattr("hermes_exec_agent.batch.sub_run.find_next", find_late)
    assert taken not in begin_part(run, epoch, "s1", 4).attempts
    assert run.read_claim(taken, 1)["shard"] == "s9"


def test_only_results_of_a_shards_attempts_are_taken_from_it(tmp_path: Path, run: RunFolder, epoch: Epoch) -> None:
    part, other = begin_part(run, epoch, "s1"), begin_part(run, epoch, "s2")
    first, second = part.attempts
    folder = tmp_path / "out"
    good = write_result(part, folder, first)
    for key in other.attempts:
        write_result(part, folder, key)
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(good | {"key": second}))
    (folder / "results" / second[:2]).mkdir(exist_ok=True)
    (folder / "results" / second[:2] / f"{second}.1").symlink_to(secret)
    own = folder / "shards/s1"
    own.mkdir(parents=True)
    events: list[dict[str, Any]] = [
        {"event": "place", "key": first, "attempt": 1, "record": {"resource": "another's"}},
        {"event": "ended_attempt", **good, "reward": 9.0},
        {"event": "ended_attempt", **good, "key": second},
        {"event": "claimed", "key": next(iter(other.attempts)), "attempt": 7},
        {"event": "reserved", "steps": 3},
        {"event": "reserved", "steps": -3},
        {"event": "settled", "steps": "x", "reserved": 7},
        {"event": "settled", "steps": 1},
        {"event": "full"},
        {"event": ["reserved"]},
        {"event": "running", "key": next(iter(other.attempts)), "attempt": 1},
    ]
    (own / "log.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in events) + "{torn")
    assert part.take(folder) == 1
    assert part.take(folder) == 0
    assert run.read_result(first, 1) == good
    assert all(run.read_result(key, 1) is None for key in (second, *other.attempts))
    kept = [json.loads(line) for line in (run.shard("s1") / "log.jsonl").read_text().splitlines()]
    assert [(each["event"], each.get("reward"), each.get("steps")) for each in kept] == [
        ("ended_attempt", 1.0, 0), ("reserved", None, 3),
    ]  # fmt: skip


USAGE = {"prompt": 1, "cached": 0, "completion": 1, "reasoning": 0, "cost": None, "estimated": False}


OTHER_FORMS: list[dict[str, Any]] = [
    {"state": "lost"}, {"attempt": 2}, {"shard": "s9"}, {"more": 1}, {"task": "t3"}, {"state": ["graded"]},
    {"failure": ["model"]}, {"reward": "1"}, {"reward": None}, {"reward": 10**400}, {"reward": True},
    {"state": "failed"}, {"usage": {"prompt": 1}}, {"usage": {**USAGE, "prompt": "many"}}, {"seconds": "long"},
    {"check": {"steps": 5}}, {"check": {"steps": [{}]}}, {"conversation": "another"}, {"final": 1},
]  # fmt: skip


@pytest.mark.parametrize("changes", OTHER_FORMS)
def test_a_result_of_another_form_is_not_taken(
    tmp_path: Path, run: RunFolder, epoch: Epoch, changes: dict[str, Any]
) -> None:
    part = begin_part(run, epoch, "s1", 1)
    (key,) = part.attempts
    write_result(part, tmp_path / "out", key, **changes)
    assert part.take(tmp_path / "out") == 0
    write_result(
        part, tmp_path / "out", key, usage=USAGE, began=0.0, seconds=-3.5, reason="a\x1b[2J", conversation=f"{key}.1"
    )
    assert part.take(tmp_path / "out") == 1
    record = run.read_result(key, 1)
    assert record is not None
    assert record["reason"] == "a?[2J"
    read_state(run.path)


def test_what_was_taken_is_not_changed_by_what_comes_later(tmp_path: Path, run: RunFolder, epoch: Epoch) -> None:
    part = begin_part(run, epoch, "s1", 1)
    (key,) = part.attempts
    tail = LogTail(run.shard("s1"), "ended_attempt")
    for reward, patch in ((0.0, "first"), (1.0, "forged")):
        folder = tmp_path / "out"
        record = write_result(part, folder, key, reward=reward)
        (folder / "patches").mkdir(exist_ok=True)
        (folder / f"patches/{key}.1.diff").write_text(patch)
        (folder / "shards/s1").mkdir(parents=True, exist_ok=True)
        (folder / "shards/s1/log.jsonl").write_text(f"{json.dumps({'event': 'ended_attempt', 'at': 1.0, **record})}\n")
        part.take(folder)
    assert run.patch_path(key, 1).read_text() == "first"
    assert [each["reward"] for each in tail.read()] == [0.0]
    (state,) = (each for trial, each in read_state(run.path).results() if trial.key == key)
    assert state.accepted is not None
    assert state.accepted["reward"] == 0.0


def test_a_result_that_another_process_settled_stays_in_the_log_too(
    tmp_path: Path, run: RunFolder, epoch: Epoch
) -> None:
    part = begin_part(run, epoch, "s1", 1)
    (key,) = part.attempts
    record = write_result(part, tmp_path / "out", key)
    run.write_result(key, 1, create_end(run, key, 1, "lost", "infrastructure", "", epoch=2, shard=""))
    (tmp_path / "out/shards/s1").mkdir(parents=True)
    (tmp_path / "out/shards/s1/log.jsonl").write_text(f"{json.dumps({'event': 'ended_attempt', **record})}\n")
    assert part.take(tmp_path / "out") == 0
    assert list(LogTail(run.shard("s1")).read()) == []


def test_the_log_of_a_shard_only_grows(tmp_path: Path, run: RunFolder, epoch: Epoch) -> None:
    part = begin_part(run, epoch, "s1")
    tail, log = LogTail(run.shard("s1"), "ended_attempt"), ""
    folder = tmp_path / "out"
    (folder / "shards/s1").mkdir(parents=True)
    for key in part.attempts:
        record = write_result(part, folder, key)
        log += f"{json.dumps({'event': 'ended_attempt', 'at': 1.25, **record})}\n"
        (folder / "shards/s1/log.jsonl").write_text(log)
        part.take(folder)
        assert [each["key"] for each in tail.read()] == [key]
        (run.shard("s1") / "log.jsonl").touch()


def test_an_archive_leaves_only_wanted_files(
    tmp_path: Path, run: RunFolder, epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, other = begin_part(run, epoch, "s1", 1), begin_part(run, epoch, "s2", 1)
    (key,), (foreign,) = part.attempts, other.attempts
    archive, folder = tmp_path / "out.tar", tmp_path / "out"
    wanted = {f"results/{key[:2]}/{key}.1", f"artifacts/{key}.1/a/b", f"patches/{key}.1.diff", "shards/s1/log.jsonl"}
    unwanted = {
        f"results/{key[:2]}/{key}.2", f"artifacts/{foreign}.1/a", f"patches/{foreign}.1.diff", "shards/s2/log.jsonl",
        f"artifacts/{key}.1/../../../x", "/tmp/hermes-never", "../x", "run.json", "shards/s1/ended", "results/x/x.None",
    }  # fmt: skip
    with tarfile.open(archive, "w") as out:
        for name in (*wanted, *unwanted):
            member = tarfile.TarInfo(name)
            member.size = 3
            out.addfile(member, io.BytesIO(b"yes"))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"artifacts/{key}.1/link{kind.decode()}")
            member.type, member.linkname = kind, f"results/{key[:2]}/{key}.1"
            out.addfile(member)
    unpack(archive, folder, part.is_wanted)
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()} == wanted
    monkeypatch.setattr("hermes_exec_agent.batch.sandbox_results.LARGEST", 11)
    with pytest.raises(HermesError, match="more than"):
        unpack(archive, folder, part.is_wanted)
    archive.write_bytes(gzip.compress(archive.read_bytes()))
    with pytest.raises(HermesError, match="damaged"):
        unpack(archive, folder, part.is_wanted)


def test_a_shard_gets_no_more_of_the_caps_than_its_trials_may_use(run: RunFolder, epoch: Epoch) -> None:
    caps = Caps(money=1.0, tokens=50, trial_money=0.1, trial_tokens=1000)
    part = begin_part(run, Epoch(1, epoch.todo, run.settings.model_copy(update={"caps": caps}), 0.0), "s1", 2)
    drawn = part.draw_caps()
    assert drawn is not None
    assert (drawn.money, drawn.tokens) == (0.2, 25)


def test_a_small_cap_is_not_divided_into_nothing(run: RunFolder, epoch: Epoch) -> None:
    settings = run.settings.model_copy(update={"caps": Caps(steps=1), "concurrency": 4})
    part = begin_part(run, Epoch(1, epoch.todo, settings, 0.0), "s1", 2)
    drawn = part.draw_caps()
    assert drawn is not None
    assert drawn.steps == 1


def test_a_forged_log_returns_no_more_than_was_granted(run: RunFolder, epoch: Epoch) -> None:
    part, cap = begin_part(run, epoch, "s1", 1), read_caps(CAPS)
    assert part.draw_caps() is not None
    for name in (BEGUN, "ended"):
        (run.shard("s1") / name).touch()
    forged = {"event": "settled", **Amounts().to_record(), "reserved": Amounts(10**12, 0, 10**6).to_record()}
    (run.shard("s1") / "log.jsonl").write_text(f"{json.dumps(forged)}\n")
    settle_shard(run, "s1", cap)
    ledger = Ledger(run.path / "ledger", cap)
    ledger.refresh()
    assert ledger.total == Amounts()


def test_attempts_of_sandboxes_that_cannot_be_started_are_settled_at_once(
    run: RunFolder, epoch: Epoch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SubRun, "write", fail)

    async def scenario() -> int:
        engine = ModalEngine(run, {})
        with pytest.raises(HermesError, match="no sandbox can be started"):
            await engine.submit([ShardOrder(id, epoch.number, 0, 1) for id in ("s1", "s2")])
        assert await engine.poll() == []
        await engine.close()
        run.shard("c1").mkdir()
        with ShardLog(run.shard("c1")) as log:
            state = RunState(run)
            state.update()
            return await Settlement(run, state, log, 1).settle()

    assert asyncio.run(scenario()) == 0
    reasons = {(run.read_result(trial.key, 1) or {}).get("reason") for trial in run.trials}
    assert reasons == {"its shard ended; it had not begun"}
    ledger = Ledger(run.path / "ledger", read_caps(CAPS))
    ledger.refresh()
    assert ledger.total == Amounts()


def test_a_command_that_was_taken_for_dead_begins_nothing(run: RunFolder, epoch: Epoch) -> None:
    part, late = begin_part(run, epoch, "s1", 1), begin_part(run, epoch, "s2", 1)
    part.begin()
    assert (run.shard("s1") / BEGUN).exists()
    run.end_epoch(1)
    run.begin_epoch(run.settings)
    with pytest.raises(PlaceUnavailable, match="another command"):
        late.begin()
    assert not (run.shard("s2") / BEGUN).exists()


def test_what_never_began_counts_as_no_try(tmp_path: Path, run: RunFolder, epoch: Epoch) -> None:
    key = run.trials[0].key
    for number in range(1, 6):
        assert find_next(run, epoch, key) == (number, False)
        run.claim(key, number, {"shard": f"s{number}", "epoch": 1})
        record = create_end(run, key, number, "lost", "infrastructure", "", epoch=1, shard="")
        run.write_result(key, number, record | {UNBEGUN: number > 1})
    part = begin_part(run, epoch, "s6", 1)
    assert part.attempts == {key: 6}
    part.write(tmp_path / "sub", CAPS)
    assert RunFolder.open(tmp_path / "sub").read_epoch(1).todo == {key: 4}


@pytest.mark.parametrize(
    ("target", "marks", "begun", "lease_s", "reason"),
    [
        ("local", (BEGUN, "lost"), True, 60.0, "its machine has ended"),
        ("docker", (BEGUN, "ended"), False, 60.0, "it had not begun"),
        ("docker", (BEGUN, "ended"), True, 60.0, ""),
        ("docker", (BEGUN, "ended"), True, -60.0, "the lease of its target is over"),
        ("docker", ("lost",), True, 60.0, "it had not begun"),
        ("local", (), False, 60.0, "it had not begun"),
        ("local", (BEGUN,), True, 60.0, ""),
    ],
)
def test_an_attempt_of_a_sandbox_is_over_when_its_target_is(
    tmp_path: Path, target: str, marks: tuple[str, ...], begun: bool, lease_s: float, reason: str
) -> None:
    task = Task(id="t", instruction="work", check="true")
    settings = RunSettings(on=(target,), models=("",), agent=AgentSettings(agent="nop"), lease_s=60, concurrency=1)
    run = RunFolder.create(tmp_path / "r", "tasks.jsonl", [task], settings)
    epoch = run.begin_epoch(settings)
    part = begin_part(run, run.plan_epoch(epoch, {run.trials[0].key: 0}), "s1", 1)
    (key,) = part.attempts
    folder = run.shard("s1")
    for name in ("heartbeat", *marks):
        (folder / name).touch()
    if lease_s < 0:
        os.utime(folder / "heartbeat", (0, 0))
    if begun:
        (folder / "log.jsonl").write_text(f'{{"event":"running","key":"{key}","attempt":1}}\n')

    async def settle() -> int:
        run.shard("c2").mkdir()
        with ShardLog(run.shard("c2")) as log:
            state = RunState(run)
            state.update()
            return await Settlement(run, state, log, 2).settle()

    assert asyncio.run(settle()) == (not reason)
    record = run.read_result(key, 1)
    assert (record["reason"] if record else "").endswith(reason)


def test_what_a_shard_was_granted_is_returned_unless_it_was_lost(run: RunFolder, epoch: Epoch) -> None:
    cap = read_caps(CAPS)
    for id, marks, steps in (("s1", (BEGUN, "ended"), 7), ("s2", (BEGUN,), 7 + 47), ("s3", (), 7 + 47)):
        part = begin_part(run, epoch, id, 1)
        assert part.draw_caps() is not None
        for name in marks:
            (run.shard(id) / name).touch()
        if id == "s1":
            log = [{"event": "reserved", **Amounts(steps=7).to_record()}, {"event": "returned", "steps": 43}]
            (run.shard(id) / "log.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in log))
        settle_shard(run, id, cap)
        ledger = Ledger(run.path / "ledger", cap)
        ledger.refresh()
        assert ledger.total.steps == steps


@pytest.mark.parametrize(
    ("agent", "config", "unprotected"),
    [
        ("command:true", 'type = "docker"\nimage = "x"\n', ["local"]),
        ("command:true", 'type = "local"\n', ["box", "local"]),
        ("command:true", "", ["box", "local"]),
        ("nop", "", []),
    ],
)
def test_results_that_an_agent_could_have_written_are_marked(
    tmp_path: Path, agent: str, config: str, unprotected: list[str]
) -> None:
    file = tmp_path / "shards.toml"
    file.write_text(f"[backends.box]\n{config}")
    settings = RunSettings(models=("",), agent=AgentSettings(agent=agent))
    tasks = [Task(id=each, instruction="work", check="true", on=each) for each in ("local", "docker", "box")]
    run = RunFolder.create(tmp_path / "r", "tasks.jsonl", tasks, settings)
    epoch = run.plan_epoch(run.begin_epoch(settings), {trial.key: 0 for trial in run.trials})
    found = find_unprotected(run, epoch, str(file) if config else None)
    assert sorted(found) == unprotected
    part = replace(begin_part(run, epoch, "s1", most=3), unprotected=bool(found))
    for key in part.attempts:
        write_result(part, tmp_path / "out", key)
    assert part.take(tmp_path / "out") == 3
    # An agent in one target can write the results of the others.
    assert {(run.read_result(each.key, 1) or {}).get(UNPROTECTED) for each in run.trials} == {bool(found) or None}


def test_a_copy_has_only_results_that_were_not_taken(tmp_path: Path) -> None:
    for name in ("results/aa/aa.1", "results/bb/bb.1", "patches/aa.1.diff", "patches/bb.1.diff", "artifacts/aa.1/out/x",
                 "artifacts/bb.1/out/x", "shards/s1/log.jsonl"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    subprocess.run([sys.executable, "-c", PACK, str(tmp_path), "s1"], input=b"aa.1\ncc.1", check=True)
    with tarfile.open(tmp_path / ".out.tar") as packed:
        names = sorted(packed.getnames())
    assert names == ["artifacts/bb.1/out/x", "patches/bb.1.diff", "results/bb/bb.1", "shards/s1/log.jsonl"]
