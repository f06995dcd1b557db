"""An engine whose shards open no target: they claim trials and write results, as others do, and nothing else.

So a run of many trials is the work of the coordinator alone, and of the folder of the run.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import write_private
from hermes_exec.pool.owner import Owner
from hermes_exec_agent.batch.attempt import Attempt
from hermes_exec_agent.batch.run_folder import BEGUN, HEARTBEAT_S, RunFolder
from hermes_exec_agent.batch.shard_log import ShardLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_agent.batch.engine import ShardOrder

NAME = "bench-idle"


def install(folder: Path) -> str:
    """Write the entry point of the engine into a folder; return the ``PYTHONPATH`` that finds it."""
    distribution = folder / "bench_idle-1.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-idle\nVersion: 1\n")
    points = f"[hermes_exec.engines]\n{NAME} = benchmarks.idle_engine:IdleEngine\n"
    (distribution / "entry_points.txt").write_text(points)
    return f"{folder}:{Path(__file__).parents[1]}"


class IdleEngine:
    """Starts `run_shard` in processes; see `hermes_exec_agent.batch.engine.Engine`."""

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Accept no options, and do not look for any."""

    def __init__(self, run: RunFolder, options: Mapping[str, str]) -> None:  # noqa: ARG002  it has none
        self._run = run
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def open(self) -> None:
        """Do nothing."""

    async def submit(self, orders: Sequence[ShardOrder]) -> None:
        """Start processes."""
        for order in orders:
            self._run.shard(order.id).mkdir(mode=0o700)
            argv = [sys.executable, "-m", "benchmarks.idle_engine", self._run.path.absolute(), order.epoch, order.id]
            self._processes[order.id] = await asyncio.create_subprocess_exec(*map(str, argv))

    async def poll(self) -> Sequence[str]:
        """Return the shards that run."""
        return [id for id, process in self._processes.items() if process.returncode is None]

    async def cancel(self, ids: Sequence[str]) -> None:
        """Kill shards."""
        for id in ids:
            if self._processes[id].returncode is None:
                self._processes[id].kill()
                await self._processes[id].wait()

    async def close(self) -> None:
        """Kill all shards."""
        await self.cancel(list(self._processes))


def run_shard(path: Path, number: int, id: str) -> None:
    """Claim all trials that have no claim, and give each the reward 1."""
    run = RunFolder.open(path)
    epoch, folder, check = run.read_epoch(number), run.shard(id), {"exit_code": 0, "seconds": 0.0, "last": ""}
    (folder / BEGUN).touch(mode=0o600)
    write_private(folder / "owner.json", json.dumps(Owner.current().values).encode())
    beaten = 0.0
    with ShardLog(folder) as log:
        for trial in run.trials:
            attempt = Attempt(trial, 1, state="graded", reward=1.0, check=check)
            if attempt.began - beaten > HEARTBEAT_S:
                run.beat(folder / "heartbeat")
                beaten = attempt.began
            if run.claim(trial.key, 1, {"shard": id, "epoch": epoch.number}):
                log.write("claimed", key=trial.key, attempt=1)
                record = attempt.to_record() | {"shard": id, "epoch": epoch.number, "final": True}
                run.write_result(trial.key, 1, record)
                log.write("ended_attempt", **record)
    (folder / "ended").touch(mode=0o600)


if __name__ == "__main__":
    run_shard(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
