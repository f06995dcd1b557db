"""The part of a run for a shard without the run's folder: what it gets, and what is taken from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.batch.engine import ShardOrder
from hermes_exec_agent.batch.ledger import Amounts, Ledger, read_caps, settle_shard
from hermes_exec_agent.batch.run_folder import BEGUN, PREPAID, Epoch, RunFolder
from hermes_exec_agent.batch.settings import AgentSettings, Caps, RunSettings
from hermes_exec_agent.batch.settlement import create_end
from hermes_exec_agent.batch.sub_run import SubRun, claim_part, count_claimable
from hermes_exec_agent.batch.tasks import Task

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


@pytest.mark.parametrize("changes", [{"state": "lost"}, {"attempt": 2}, {"shard": "s9"}, {"more": 1}, {"task": "t3"}])
def test_a_result_of_another_form_is_not_taken(
    tmp_path: Path, run: RunFolder, epoch: Epoch, changes: dict[str, Any]
) -> None:
    part = begin_part(run, epoch, "s1", 1)
    (key,) = part.attempts
    write_result(part, tmp_path / "out", key, **changes)
    assert part.take(tmp_path / "out") == 0


def test_what_a_shard_was_granted_is_returned_unless_it_was_lost(run: RunFolder, epoch: Epoch) -> None:
    cap = read_caps(CAPS)
    for id, marks, steps in (("s1", (BEGUN, "ended"), 7), ("s2", (BEGUN,), 7 + 46), ("s3", (), 7 + 46)):
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
