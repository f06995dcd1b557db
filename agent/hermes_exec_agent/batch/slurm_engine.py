"""Shards as arrays of Slurm: one array for each submission, and one question for all of them.

The folder of the run has to be at the same path on the nodes. A controller that does not answer says nothing about its
jobs, so shards count as running until it answers without them. Slurm never runs a shard again by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shlex
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import hermes_exec
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import HermesError, UsageError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.batch.gpu_hours import count_gpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec import Terminal
    from hermes_exec_agent.batch.engine import ShardOrder
    from hermes_exec_agent.batch.run_folder import RunFolder

_FLAGS = {
    "account": "--account", "constraint": "--constraint", "cpus": "--cpus-per-task", "gpus": "--gpus",
    "memory": "--mem", "partition": "--partition", "qos": "--qos", "reservation": "--reservation", "time": "--time",
}  # fmt: skip
"""Options that become options of ``sbatch``."""
_OWN = ("parallel", "poll", "python", "setup", "via")
_VALUE = re.compile(r"[A-Za-z0-9_.:,@/+=&|*()-]{1,200}")
_POLL_S = 2.0
_COMMAND_S = 60.0
_DRAIN_S = 120
"""Seconds before its time limit at which a shard begins no more trials."""
_FINISH_S = 75
"""Seconds after which a shard that begins no more trials ends those that run, before Slurm kills them."""
_GRACE_S = 60.0
_SCRIPT = """#!/bin/sh
{setup}
order=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {orders})
exec {shard} $order </dev/null
"""


@dataclass(frozen=True, slots=True)
class _Limits:
    """What the cluster allows."""

    array: int
    """Tasks of one array."""
    jobs: int
    """Jobs of all users."""


class SlurmEngine:
    """Shards are tasks of arrays."""

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Check the options; see `Engine.check`."""
        for name, value in options.items():
            if name not in _FLAGS and name not in _OWN:
                known = ", ".join(sorted([*_FLAGS, *_OWN]))
                raise UsageError(f"--engine-option {to_printable(name)}: slurm has no such option", remedy=known)
            if name in ("parallel", "poll") and parse_number(value, 1) is None:
                raise UsageError(f"--engine-option {name}={to_printable(value)}: it should be a number from 1 on")
            if name in _FLAGS and not _VALUE.fullmatch(value):
                raise UsageError(f"--engine-option {name}={to_printable(value)}: not a valid value of {_FLAGS[name]}")

    @classmethod
    def count_gpus(cls, options: Mapping[str, str]) -> float | None:
        """Return the GPUs of a shard; see `gpu_hours.count_shard_gpus`."""
        return count_gpus(options.get("gpus"))

    def __init__(self, run: RunFolder, options: Mapping[str, str]) -> None:
        self._run = run
        self._options = options
        self._folder = run.path.absolute() / "engine"
        token = hashlib.sha256(f"{run.path.absolute()} {run.record['digest']}".encode()).hexdigest()[:8]
        self._prefix = f"hermes-{token}-"
        self._shards: dict[str, tuple[str, int]] = {}
        """The job's name and the index of each shard."""
        self._running: list[str] = []
        self._asked = 0.0
        self._arrays = 0
        self._terminal: Terminal | None = None
        self._limits = _Limits(1001, 10_000)

    async def open(self) -> None:
        """Ask for the cluster's limits, and cancel what earlier commands left; see `Engine.open`."""
        if (via := self._options.get("via")) is not None:
            self._terminal = await hermes_exec.open(via)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        config = await self._ask(["scontrol", "show", "config"])
        numbers = dict(re.findall(r"^(MaxArraySize|MaxJobCount)\s*=\s*(\d+)", config, re.MULTILINE))
        self._limits = _Limits(int(numbers.get("MaxArraySize", 1001)), int(numbers.get("MaxJobCount", 10_000)))
        if jobs := sorted({job for job, _, _ in await self._list_tasks()}):
            await self._ask(["scancel", *jobs])

    async def submit(self, orders: Sequence[ShardOrder]) -> None:
        """Submit arrays; see `Engine.submit`."""
        if len(orders) + len(self._running) > self._limits.jobs:
            raise HermesError(
                f"slurm: {len(orders)} shards, and the cluster has {self._limits.jobs} jobs (MaxJobCount)",
                remedy="a larger --per-shard",
            )
        for start in range(0, len(orders), self._limits.array):
            await self._submit_array(orders[start : start + self._limits.array])

    async def _submit_array(self, orders: Sequence[ShardOrder]) -> None:
        self._arrays += 1
        name = f"{self._prefix}{orders[0].epoch}-{self._arrays}-{os.urandom(2).hex()}"
        for order in orders:
            self._run.shard(order.id).mkdir(mode=0o700)
        script = await asyncio.to_thread(self._write_script, name, orders)
        size, most = len(orders), self._options.get("parallel")
        argv = [
            "sbatch", "--parsable", "--no-requeue", f"--job-name={name}", f"--signal=B:USR1@{_DRAIN_S}",
            f"--array=0-{size - 1}" + (f"%{most}" if most else ""), f"--chdir={self._folder}",
            f"--output={self._folder}/%A_%a.txt",
            *(f"{_FLAGS[key]}={value}" for key, value in self._options.items() if key in _FLAGS), str(script),
        ]  # fmt: skip
        try:
            await self._ask(argv)
        except HermesError as error:
            # The answer may be lost after the controller took the array, whose shards would run.
            if await self._has_refused(name):
                raise HermesError(error.what, remedy=error.remedy) from error
        for index, order in enumerate(orders):
            self._shards[order.id] = (name, index)
            self._running.append(order.id)

    async def _has_refused(self, name: str) -> bool:
        """Whether the controller answers, and has no array of that name."""
        try:
            return not any(each == name for _, each, _ in await self._list_tasks())
        except HermesError:
            return False

    def _write_script(self, name: str, orders: Sequence[ShardOrder]) -> Any:
        """Write the orders, one a line, and the script of an array; return its path."""
        file, script = self._folder / f"{name}.orders", self._folder / f"{name}.sh"
        beginning = orders[0].to_argv(str(self._run.path.absolute()))[:3]
        lines = [" ".join(order.to_argv("")[3:]) for order in orders]
        file.write_text("".join(f"{line}\n" for line in lines))
        python = self._options.get("python", sys.executable)
        shard = shlex.join([python, "-m", "hermes_exec", *beginning, "--detached", "--grace", str(_FINISH_S)])
        script.write_text(
            _SCRIPT.format(setup=self._options.get("setup", ""), orders=shlex.quote(str(file)), shard=shard)
        )
        return script

    async def poll(self) -> Sequence[str]:
        """Return the shards that the controller has, as of the last few seconds; see `Engine.poll`."""
        if self._running and time.monotonic() - self._asked >= float(self._options.get("poll", _POLL_S)):
            self._asked = time.monotonic()
            with contextlib.suppress(HermesError):  # an error is not the end of a job
                found = {(name, index) for _, name, index in await self._list_tasks()}
                self._running = [id for id in self._running if self._shards[id] in found]
        ended = [id for id in self._running if (self._run.shard(id) / "ended").exists()]
        return [id for id in self._running if id not in ended]

    async def _list_tasks(self) -> list[tuple[str, str, int]]:
        """Return the arrays' ids, names and indices of all tasks of this run that wait or run.

        Raises:
            HermesError: the controller does not answer.
        """
        text = await self._ask(["squeue", "--noheader", "--array", "--me", "--format=%F|%K|%j"])
        rows = (line.strip().split("|") for line in text.splitlines())
        return [
            (row[0], row[2], int(row[1]))
            for row in rows
            if len(row) == 3 and row[2].startswith(self._prefix) and row[1].isdigit()
        ]

    async def cancel(self, ids: Sequence[str]) -> None:
        """Cancel tasks; see `Engine.cancel`."""
        wanted = {self._shards[id] for id in ids}
        if not wanted:
            return
        tasks = [f"{job}_{index}" for job, name, index in await self._list_tasks() if (name, index) in wanted]
        if tasks:
            await self._ask(["scancel", *tasks])

    async def close(self) -> None:
        """Wait for the shards to end what they run, then cancel those that do not; see `Engine.close`."""
        give_up = time.monotonic() + _GRACE_S
        try:
            while await self.poll() and time.monotonic() < give_up:  # noqa: ASYNC110  Slurm does not notify
                await asyncio.sleep(_POLL_S / 4)
            with contextlib.suppress(HermesError):
                await self.cancel(list(self._shards))
        finally:
            if self._terminal is not None:
                await self._terminal.close()

    async def _ask(self, argv: Sequence[str]) -> str:
        """Run a command of Slurm, and return its output.

        Raises:
            HermesError: it failed, or did not end in time.
        """
        if self._terminal is not None:
            done = await self._terminal.run(list(argv), timeout=_COMMAND_S)
            code, output, errors = done.exit_code, done.stdout_text, done.stderr_text or done.reason
        else:
            code, output, errors = await _run_here(argv)
        if code != 0:
            last = errors.strip().splitlines()[-1:] or [f"exit code {code}"]
            raise HermesError(f"slurm: {argv[0]}: {to_printable(last[0])}", remedy="sinfo shows the cluster")
        return output


async def _run_here(argv: Sequence[str]) -> tuple[int | None, str, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise HermesError(
            f"slurm: {argv[0]}: {error.strerror}", remedy="--engine-option via=ssh://LOGIN, or a host of the cluster"
        ) from error
    try:
        async with asyncio.timeout(_COMMAND_S):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise HermesError(f"slurm: {argv[0]}: no answer within {_COMMAND_S:g} s") from None
    return process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
