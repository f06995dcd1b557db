"""The sum of what a run spends never exceeds its caps, however many trials ask at once."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.batch.capped_model import CappedModel
from hermes_exec_agent.batch.gpu_hours import count_gpus, hold_gpus
from hermes_exec_agent.batch.ledger import Amounts, CapReached, Ledger, ShardAccount, TrialAccount, settle_shard
from hermes_exec_agent.batch.run_folder import RunFolder
from hermes_exec_agent.batch.settings import AgentSettings, Caps, RunSettings
from hermes_exec_agent.batch.shard_log import ShardLog
from hermes_exec_agent.batch.tasks import Task
from hermes_exec_agent.models import ask, complete, say
from hermes_exec_agent.models.endpoint import Endpoint, Patience
from hermes_exec_agent.models.messages import Message
from tests.rigs.batches import BatchPerson
from tests.rigs.breadth import leave_out
from tests.rigs.endpoint import KEY, ScriptedEndpoint, Status, Streamed

if TYPE_CHECKING:
    from pathlib import Path

leave_out("takes long")

CAP = Amounts(money=10**9, tokens=10**6, steps=500)


def spend(folder: Path, name: str) -> None:
    """Let 50 requests of a shard ask at once, again and again, each using less than it reserved."""

    async def request(account: ShardAccount, number: int) -> None:
        for turn in range(10**6):
            need = Amounts(money=2 * 10**6 + number, tokens=2000, steps=1)
            await account.reserve(need)
            await asyncio.sleep(0.001)
            account.settle(need, Amounts(money=10**6, tokens=1000 + turn, steps=1))

    async def run() -> None:
        shard = folder / name
        shard.mkdir()
        with ShardLog(shard) as log:
            account = ShardAccount(Ledger(folder / "ledger", CAP), name, 3, log)
            ends = await asyncio.gather(*(request(account, number) for number in range(50)), return_exceptions=True)
            assert all(isinstance(end, CapReached) for end in ends), ends
            await account.close()

    asyncio.run(run())


def test_shards_that_draw_at_once_never_exceed_the_cap(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=spend, args=(tmp_path, name)) for name in ("a", "b", "c")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    totals = [Amounts.from_record(json.loads(path.read_bytes())["total"]) for path in (tmp_path / "ledger").iterdir()]
    assert all(total.fits(CAP) for total in totals)
    last = Ledger(tmp_path / "ledger", CAP)
    last.refresh()
    assert 400 <= last.total.steps <= 500  # what was not spent went back, and little was left over


def test_what_a_dead_shard_did_not_use_is_returned_once(tmp_path: Path) -> None:
    run = RunFolder.create(
        tmp_path / "r",
        "t",
        [Task(id="a", instruction="a", check="true")],
        RunSettings(agent=AgentSettings(agent="nop")),
    )
    run.shard("s").mkdir()

    async def die() -> None:
        with ShardLog(run.shard("s")) as log:
            account = ShardAccount(Ledger(run.path / "ledger", CAP), "s", 1, log)
            need = Amounts(money=100, tokens=100, steps=1)
            for _ in range(3):
                await account.reserve(need)
            account.settle(need, Amounts(money=40, tokens=10, steps=1))

    asyncio.run(die())
    for _ in range(2):
        settle_shard(run, "s", CAP)
    ledger = Ledger(run.path / "ledger", CAP)
    ledger.refresh()
    assert ledger.total == Amounts(money=240, tokens=210, steps=3)  # two without an end count in full


def test_a_cancelled_draw_keeps_its_grant(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()

    async def cancel() -> None:
        with ShardLog(tmp_path) as log:
            account = ShardAccount(Ledger(tmp_path / "ledger", CAP), "s", 1, log)
            reserving = asyncio.ensure_future(account.reserve(Amounts(steps=1)))
            await asyncio.sleep(0)  # it has begun to draw
            reserving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reserving
            await account.close()

    asyncio.run(cancel())
    ledger = Ledger(tmp_path / "ledger", CAP)
    ledger.refresh()
    assert (len(list((tmp_path / "ledger").iterdir())), ledger.total) == (2, Amounts())


def test_an_attempt_that_failed_at_the_cap_ends_the_request(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()

    async def request(url: str) -> None:
        with ShardLog(tmp_path) as log:
            account = ShardAccount(Ledger(tmp_path / "ledger", Amounts(10**12, 10**9, 1)), "s", 1, log)
            endpoint = Endpoint("m", base_url=url, patience=Patience(first_wait_s=0.0))
            model = CappedModel(endpoint, TrialAccount(Caps(), account), None, 100)
            with pytest.raises(CapReached):
                async with asyncio.timeout(20):
                    await complete(model, [Message("user", "hello")])
            await endpoint.close()
            await account.close()

    with ScriptedEndpoint([Status(500)], forever=True) as rig:
        asyncio.run(request(rig.url))
    assert len(rig.requests) == 1
    ledger = Ledger(tmp_path / "ledger", CAP)
    ledger.refresh()
    assert ledger.total.steps == 1


def test_an_estimated_usage_counts_as_its_bound(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()

    async def request(url: str) -> None:
        with ShardLog(tmp_path) as log:
            account = ShardAccount(Ledger(tmp_path / "ledger", CAP), "s", 1, log)
            endpoint = Endpoint("m", base_url=url)
            await complete(CappedModel(endpoint, TrialAccount(Caps(), account), None, 5000), [Message("user", "hello")])
            await endpoint.close()
            await account.close()

    with ScriptedEndpoint([Streamed(say("hi"), usage=None)]) as rig:
        asyncio.run(request(rig.url))
    ledger = Ledger(tmp_path / "ledger", CAP)
    ledger.refresh()
    assert ledger.total.tokens > 5000


def test_requests_without_a_cap_count_for_a_later_one(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": "t", "instruction": "do", "check": "true"}])
    done = person.run("run", "tasks.jsonl", "-m", person.write_replies("true", "true"), "--into", "r")
    assert done.returncode == 0, done.stderr
    ledger = Ledger(tmp_path / "r/ledger", CAP)
    ledger.refresh()
    assert ledger.total.steps == 3


def test_a_run_that_a_cap_stopped_goes_on_with_a_larger_one(tmp_path: Path) -> None:
    person = BatchPerson(tmp_path)
    person.write_tasks([{"id": f"t{number}", "instruction": "do", "check": "test -s out"} for number in range(4)])
    model = person.write_replies(f"echo x >> {tmp_path}/ran; echo > out", f"test -f {tmp_path}/free || sleep 1")
    done = person.run("run", "tasks.jsonl", "-m", model, "--into", "r", "-n", "2", "--max-steps", "5")
    assert done.returncode == 3, done.stderr
    assert len((tmp_path / "ran").read_text().split()) <= 5
    assert len(list((tmp_path / "r/shards").glob("s*"))) == 1  # no other one is started to find the same cap
    done = person.run("resume", "r", "--max-steps", "5")
    assert done.returncode == 3, done.stderr
    done = person.run("resume", "r", "--max-steps", "1000", "--max-wall", "0.5")
    assert done.returncode == 3, done.stderr
    (tmp_path / "free").touch()
    done = person.run("resume", "r", "--max-steps", "1000")
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(150)
def test_a_cap_of_money_holds_with_many_trials_at_once(tmp_path: Path) -> None:
    trials = 48
    person = BatchPerson(tmp_path, OPENAI_API_KEY=KEY, DEFAULT_MODEL="m")
    (tmp_path / ".config/hermes_exec").mkdir(parents=True)
    config = tmp_path / ".config/hermes_exec/hermes.toml"
    person.write_tasks([{"id": f"t{number}", "instruction": "spend", "check": "true"} for number in range(trials)])
    reply = Streamed(ask(("terminal", {"command": "true"})), usage={"prompt_tokens": 3000, "completion_tokens": 10})
    argv = ["run", "tasks.jsonl", "-n", str(trials), "--per-shard", "24", "--max-money", "1", "--json"]
    with ScriptedEndpoint([reply], forever=True) as endpoint:
        config.write_text(f'[models.main]\nbase_url = "{endpoint.url}"\nprovider = "custom"\n')
        done = person.run(*argv)
        assert (done.returncode, "has no price" in done.stderr) == (2, True), done.stderr
        assert not endpoint.requests
        prices = "prices = {input = 4.0, output = 10.0}"
        config.write_text(f'[models.main]\nbase_url = "{endpoint.url}"\nprovider = "custom"\n{prices}\n')
        done = person.run(*argv, "--into", "r")
    assert done.returncode == 3, done.stderr
    each = (3000 * 4.0 + 10 * 10.0) / 1e6
    assert 0.5 < len(endpoint.requests) * each <= 1.0
    assert json.loads(done.stdout)["failures"]["capped"] > 0
    config.write_text(config.read_text().replace(prices, ""))
    done = person.run("resume", "r", "--max-money", "2")
    assert (done.returncode, "has no price" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (None, 0.0),
        ("0", 0.0),
        ("2", 2.0),
        ("A100", 1.0),
        ("A100:4", 4.0),
        ("0,3", 2.0),
        ("all", None),
        ("gpu:a:2", 2.0),
    ],
)
def test_gpus_are_counted_by_the_options_that_ask_for_them(text: str | None, count: float | None) -> None:
    assert count_gpus(text) == count


def test_the_time_of_gpus_is_reserved_before_it_passes(tmp_path: Path) -> None:
    cap, hours = Amounts(gpu_ms=9000), 0.0025

    async def hold(account: ShardAccount) -> None:
        async with hold_gpus(account, 1.0, hours):
            await asyncio.sleep(60)

    async def work() -> Ledger:
        (tmp_path / "ledger").mkdir()
        ledger = Ledger(tmp_path / "ledger", cap)
        with ShardLog(tmp_path) as log:
            account = ShardAccount(ledger, "s", 1, log)
            async with hold_gpus(account, 1.0, hours):
                pass
            began = time.monotonic()
            ends = await asyncio.gather(hold(account), hold(account), return_exceptions=True)
            assert [type(each) for each in ends] == [CapReached] * 2
            assert time.monotonic() - began < 8.0
            await account.close()
        return ledger

    ledger = asyncio.run(work())
    ledger.refresh()
    assert 2000 < ledger.total.gpu_ms <= 9000
    assert max(json.loads(each.read_bytes())["total"]["gpu_ms"] for each in (tmp_path / "ledger").iterdir()) <= 9000
