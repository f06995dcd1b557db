"""Engines start shards, find out whether they still run, and end them; they know nothing of trials.

An engine never runs a shard again by itself: the coordinator decides that, after it has settled what the shard held.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hermes_exec._async import wait_done
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.batch.run_folder import RunFolder

_GRACE_S = 30.0


@dataclass(frozen=True, slots=True)
class ShardOrder:
    """A shard to start: its arguments for ``hermes-exec batch shard``."""

    id: str
    epoch: int
    position: int
    """Its number among the shards of the epoch."""
    slots: int
    """Trials that it runs at once."""

    def to_argv(self, run: str) -> list[str]:
        """Return the arguments after ``hermes-exec``."""
        return ["batch", "shard", run, "--shard", self.id, "--epoch", str(self.epoch), "--position", str(self.position),
                "--slots", str(self.slots)]  # fmt: skip


class Engine(Protocol):
    """Starts shards somewhere."""

    async def submit(self, order: ShardOrder) -> None:
        """Start a shard, or queue it.

        Raises:
            HermesError: it could not be started.
        """
        ...

    async def poll(self) -> Sequence[str]:
        """Return the ids of the shards that run, or wait to run. One call asks for all of them."""
        ...

    async def cancel(self, id: str) -> None:
        """End a shard at once. What it ran in targets ends with their leases, or is ended by the coordinator."""
        ...

    async def close(self) -> None:
        """End all shards, and release what the engine holds."""
        ...


class LocalEngine:
    """Shards are processes of this machine, which end when this process ends."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def submit(self, order: ShardOrder) -> None:
        """Start a process; see `Engine.submit`."""
        folder = self._run.shard(order.id)
        folder.mkdir(mode=0o700)
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        argv = [sys.executable, "-m", "hermes_exec", *order.to_argv(str(self._run.path.absolute()))]
        try:
            # A session of its own: Ctrl-C reaches the coordinator alone, which lets the shards drain.
            self._processes[order.id] = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            raise HermesError(f"a shard cannot be started: {error.strerror}") from error
        finally:
            os.close(output)

    async def poll(self) -> Sequence[str]:
        """Return the shards that run; see `Engine.poll`."""
        return [id for id, process in self._processes.items() if process.returncode is None]

    def pids(self) -> dict[str, int]:
        """Return the processes that run, by shard."""
        return {id: process.pid for id, process in self._processes.items() if process.returncode is None}

    async def cancel(self, id: str) -> None:
        """Kill a shard; see `Engine.cancel`."""
        process = self._processes[id]
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await wait_done(asyncio.ensure_future(process.wait()))

    async def close(self) -> None:
        """Let all shards end what they run, then kill those that do not; see `Engine.close`."""
        running = [process for process in self._processes.values() if process.returncode is None]
        for process in running:
            if process.stdin is not None:
                process.stdin.close()
        if running:
            waits = [asyncio.ensure_future(process.wait()) for process in running]
            await asyncio.wait(waits, timeout=_GRACE_S)
            for id in list(self._processes):
                await self.cancel(id)
