"""What holds of the folder of a run that two clients of NFS use at once; a program for the virtual machine.

It prints what it found as one JSON object. Workers are forks of one process that has imported the product, because
each import takes an emulated processor seconds.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from hermes_exec_agent.batch.ledger import Amounts, Ledger
from hermes_exec_agent.batch.run_folder import RunFolder
from hermes_exec_agent.batch.run_state import RunState
from hermes_exec_agent.batch.settings import RunSettings
from hermes_exec_agent.batch.shard_log import LogTail, ShardLog
from hermes_exec_agent.batch.tasks import Task
from tests.rigs import nfs

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess

    from hermes_exec_agent.batch.run_folder import Control

_FORK = multiprocessing.get_context("fork")
_LIMIT_S = 60.0


def main(scale: int) -> None:
    """Do all proofs; ``scale`` multiplies how much each one does."""
    nfs.load_modules(Path(os.environ["MODULES"]))
    nfs.serve()
    nfs.mount()
    tasks = [Task.model_validate({"id": f"t{number}", "instruction": "work", "check": "true"}) for number in range(8)]
    found: dict[str, Any] = {}
    RunFolder.create(nfs.CLIENTS[0] / "run", "tasks", tasks, RunSettings.model_validate({"samples": 2 * scale}))
    for proof in (prove_lost_reply, prove_claims, prove_ledger, prove_results, prove_logs, prove_state, prove_control):
        began = time.monotonic()
        found[proof.__name__] = proof(scale)
        found[proof.__name__]["seconds"] = round(time.monotonic() - began, 2)
        print(proof.__name__, found[proof.__name__], file=sys.stderr, flush=True)
    print(json.dumps(found))


def prove_claims(scale: int) -> dict[str, Any]:
    """All workers claim all attempts, each in another order."""
    found = _fork(4, _claim_all)
    winners = Counter(key for won in found for key in won)
    run = RunFolder(nfs.EXPORT / "run")
    named = {key: [run.read_claim(key, 1)["worker"] for run in _open_all()] for key in run.keys}
    right = sum(all(key in found[worker] for worker in named[key]) for key in run.keys)
    left = [path.name for path in (nfs.EXPORT / "run/claims").glob("*/.*")]
    return {"trials": len(run.keys), "won_once": sum(each == 1 for each in winners.values()), "named": right,
            "by": [len(won) for won in found], "left": left}  # fmt: skip


def _claim_all(run: RunFolder, worker: int) -> list[str]:
    keys = list(run.keys)
    random.Random(worker // 2).shuffle(keys)  # two workers, one of each client, race for each
    return [key for key in keys if run.claim(key, 1, {"worker": worker, "epoch": 1, "shard": f"s{worker}"})]


def prove_ledger(scale: int) -> dict[str, Any]:
    """All workers draw until nothing is left."""
    drawn = sum(_fork(4, _draw_all), 0)
    ledgers = [Ledger(run.path / "ledger", Amounts(steps=400)) for run in _open_all()]
    for ledger in ledgers:
        ledger.refresh()
    return {"drawn": drawn, "totals": [ledger.total.steps for ledger in ledgers]}


def _draw_all(run: RunFolder, worker: int) -> int:
    ledger = Ledger(run.path / "ledger", Amounts(steps=400))
    drawn = 0
    while (grant := ledger.draw(f"s{worker}", Amounts(steps=25), 100)) is not None:
        drawn += grant.steps
    return drawn


def prove_results(scale: int) -> dict[str, Any]:
    """One client writes large results; the other one reads each as soon as it is there."""
    found = _fork(2, _pass_results)
    return {"whole": [each["whole"] for each in found], "most_s": max(each["most_s"] for each in found)}


def _pass_results(run: RunFolder, worker: int) -> dict[str, Any]:
    """Write the results of half of the trials, and read those of the other half."""
    keys, delays, whole = run.keys, [0.0], 0
    for position in range(2):
        own, other = keys[2 * position + worker], keys[2 * position + 1 - worker]
        run.read_result(other, 1)  # so that its absence is in the cache
        result = _result(own, f"s{worker}", os.urandom(100_000).hex())
        run.write_result(own, 1, {**result, "at": time.time()})
        give_up = time.monotonic() + _LIMIT_S
        while (record := run.read_result(other, 1)) is None and time.monotonic() < give_up:
            time.sleep(0.05)
        assert record is not None, "a result is not seen"
        delays.append(time.time() - record["at"])
        whole += len(record["text"]) == 200_000
    return {"whole": whole, "most_s": round(max(delays), 2)}


def _result(key: str, shard: str, text: str = "") -> dict[str, Any]:
    return {"key": key, "attempt": 1, "state": "graded", "failure": None, "reward": 1.0, "usage": None, "epoch": 1,
            "shard": shard, "final": True, "text": text}  # fmt: skip


def prove_logs(scale: int) -> dict[str, Any]:
    """Each client appends to its log and follows that of the other one."""
    count = 60 * scale
    found = _fork(2, lambda run, worker: _follow(run, worker, count))
    whole = [[each["number"] for each in LogTail(nfs.EXPORT / f"run/shards/s{worker}").read()] for worker in range(2)]
    return {"events": count, "followed": found, "whole": [each == list(range(count)) for each in whole]}


def _follow(run: RunFolder, worker: int, count: int) -> dict[str, Any]:
    run.shard(f"s{worker}").mkdir()
    writer = threading.Thread(target=lambda: asyncio.run(_append(run.shard(f"s{worker}"), count)))
    writer.start()
    tail, seen = LogTail(run.shard(f"s{1 - worker}")), list[int]()
    give_up = time.monotonic() + _LIMIT_S
    while len(seen) < count and time.monotonic() < give_up:
        seen += [each["number"] for each in tail.read()]
        time.sleep(0.02)
    writer.join()
    return {"right": seen == list(range(count)), "seen": len(seen)}


async def _append(folder: Path, count: int) -> None:
    chance = random.Random(5)
    with ShardLog(folder) as log:
        syncs = set[asyncio.Task[None]]()
        for number in range(count):
            log.write("claimed", key="k", number=number, pad="x" * chance.choice((10, 300, 3000, 9000)))
            if chance.random() < 0.2:
                syncs.add(asyncio.create_task(log.sync()))  # while further events are appended
            await asyncio.sleep(0.002)
        await asyncio.gather(*syncs)


def prove_state(scale: int) -> dict[str, Any]:
    """Both clients see the same state, at once after one of them has changed it."""
    states = [RunState(run) for run in _open_all()]
    for state in states:
        state.reconcile()
    run = _open_all()[0]
    run.claim(run.keys[0], 2, {"epoch": 2, "shard": "s9"})
    for state in states:
        state.reconcile()
    return {"todo": [len(state.find_todo()) for state in states], "done": [state.summarize().done for state in states],
            "latest": [state.trials[run.keys[0]].claimed for state in states]}  # fmt: skip


def prove_control(scale: int) -> dict[str, Any]:
    """A stop that one client orders, as seen by a shard of the other one that has looked for it before."""
    here, there = _open_all()
    delays: list[float] = []
    orders: tuple[tuple[int, Control], ...] = ((1, "drain"), (1, "end"), (2, "end"))
    for epoch, word in orders:
        there.read_control(epoch)
        here.control(epoch, word)
        began = time.monotonic()
        while there.read_control(epoch) != word and time.monotonic() < began + _LIMIT_S:
            time.sleep(0.05)
        delays.append(round(time.monotonic() - began, 2))
    path = here.path / "epochs/1.heartbeat"
    here.beat(path)
    silences = [round(there.silence(path), 2)]
    time.sleep(2)
    here.beat(path)
    silences.append(round(there.silence(path), 2))
    return {"delays_s": delays, "silences_s": silences}


def prove_lost_reply(scale: int) -> dict[str, Any]:
    """The server has made a link of which its client knows nothing, and answers the repeated request anew."""
    run = _open_all()[0]
    key, real, refused = run.keys[1], os.link, list[tuple[str | None, int]]()

    def link(source: Path, target: Path) -> None:
        real(*(nfs.EXPORT / path.relative_to(nfs.CLIENTS[0]) for path in (source, target)))
        try:
            real(source, target)
        except OSError as error:
            refused.append((error.strerror, source.stat().st_nlink))
            raise

    with mock.patch.object(os, "link", link):  # the same call, and the server's own before it
        won = run.claim(key, 3, {"epoch": 2, "shard": "s0"})
    return {"won": won, "refused": refused, "again": run.claim(key, 3, {}), "other": _open_all()[1].claim(key, 3, {})}


def _open_all() -> list[RunFolder]:
    return [RunFolder(client / "run") for client in nfs.CLIENTS]


def _fork(count: int, work: Callable[[RunFolder, int], Any]) -> list[Any]:
    """Do the work in so many processes at once, those of even numbers by the first client; return what each found."""
    ready = _FORK.Barrier(count)
    pipes: list[Connection] = []
    workers: list[ForkProcess] = []
    for number in range(count):
        receive, send = _FORK.Pipe(duplex=False)

        def begin(number: int = number, send: Any = send) -> None:
            run = RunFolder(nfs.CLIENTS[number % 2] / "run")
            ready.wait(_LIMIT_S)
            send.send(work(run, number))

        workers.append(_FORK.Process(target=begin))
        workers[-1].start()
        send.close()
        pipes.append(receive)
    found = [pipe.recv() for pipe in pipes]
    for worker in workers:
        worker.join()
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
