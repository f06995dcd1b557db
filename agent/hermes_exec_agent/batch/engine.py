"""Engines start shards, find out whether they still run, and end them; they know nothing of trials.

An engine never runs a shard again by itself: the coordinator decides that, after it has settled what the shard held.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from hermes_exec._async import wait_done
from hermes_exec.config.paths import to_printable
from hermes_exec.config.plugins import find_plugins, load_entry_point, own_entry_points
from hermes_exec.errors import HermesError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_agent.batch.run_folder import RunFolder

GROUP = "hermes_exec.engines"
"""The group of entry points of engines."""
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


class EndsEarlier(Protocol):
    """An engine that can end what earlier commands of a run left, so that it is settled before its leases are over."""

    async def end_earlier(self) -> None:
        """End the machines of earlier shards as far as they can be reached, and record which have ended."""
        ...


class Engine(Protocol):
    """Starts shards somewhere. A class of this form is an entry point of the group ``hermes_exec.engines``.

    It may have `EndsEarlier.end_earlier`, too.
    """

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Check options of the command line; nothing is started.

        Raises:
            UsageError: one is unknown, or has an invalid value.
        """
        ...

    def __init__(self, run: RunFolder, options: Mapping[str, str]) -> None: ...

    async def open(self) -> None:
        """Prepare to start shards, and end those that earlier commands of this run left waiting.

        Raises:
            HermesError: no shard could be started here.
        """
        ...

    async def submit(self, orders: Sequence[ShardOrder]) -> None:
        """Start shards, or queue them.

        Raises:
            HermesError: none of them was started.
        """
        ...

    async def poll(self) -> Sequence[str]:
        """Return the ids of the shards that run, or wait to run. One call asks for all of them."""
        ...

    async def cancel(self, ids: Sequence[str]) -> None:
        """End shards at once. Their commands in targets end with their leases, or is ended by the coordinator."""
        ...

    async def close(self) -> None:
        """End all shards, and release what the engine holds."""
        ...


def find_engine(name: str) -> type[Engine]:
    """Return the engine of that name, of our own or of another distribution.

    Raises:
        UsageError: there is none.
        PlaceUnavailable: it cannot be loaded.
    """
    ours = own_entry_points(GROUP)
    points = ours if name in ours else find_plugins(GROUP, is_reserved=lambda each: each in ours)
    if name not in points:
        known = [*ours, *points]
        raise UsageError(f"--engine {to_printable(name)}: there is no such engine", remedy=", ".join(known))
    return cast("type[Engine]", load_entry_point(points[name]))


class LocalEngine:
    """Shards are processes of this machine, which end when this process ends."""

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Refuse all options; see `Engine.check`."""
        if options:
            raise UsageError(f"--engine-option {next(iter(options))}: the engine local has none", remedy="leave it out")

    def __init__(self, run: RunFolder, options: Mapping[str, str]) -> None:  # noqa: ARG002  it has none
        self._run = run
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def submit(self, orders: Sequence[ShardOrder]) -> None:
        """Start processes; see `Engine.submit`."""
        for order in orders:
            await self._start(order)

    async def _start(self, order: ShardOrder) -> None:
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

    async def open(self) -> None:
        """Do nothing; see `Engine.open`."""

    async def poll(self) -> Sequence[str]:
        """Return the shards that run; see `Engine.poll`."""
        return [id for id, process in self._processes.items() if process.returncode is None]

    def pids(self) -> dict[str, int]:
        """Return the processes that run, by shard."""
        return {id: process.pid for id, process in self._processes.items() if process.returncode is None}

    async def cancel(self, ids: Sequence[str]) -> None:
        """Kill shards; see `Engine.cancel`."""
        for id in ids:
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
            await self.cancel(list(self._processes))
