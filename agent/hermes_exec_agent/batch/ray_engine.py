"""Shards as actors of Ray, on a cluster that exists, or on one of this machine that ends with the run.

A process of its own talks to Ray (`hermes_exec_agent.batch.ray_driver`), because Ray ends a process that loses the
cluster. Its actors end with it, and Ray starts none of them again. The folder of the run has to be at the same path on
the nodes, and the nodes' Python needs this package.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec import extras
from hermes_exec._async import wait_done
from hermes_exec.config.paths import to_printable, write_private
from hermes_exec.config.values import parse_size
from hermes_exec.errors import PlaceUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_agent.batch.engine import ShardOrder
    from hermes_exec_agent.batch.run_folder import RunFolder

_OPTIONS = ("address", "cpus", "gpus", "memory", "token")
_RECORD = "ray-folder"
"""The file with the folders of the clusters that this run started, one a line."""
_START_S = 180.0
"""Seconds in which a cluster of this machine starts, or another one answers."""
_GRACE_S = 60.0
_END_S = 20.0
"""Seconds in which the driver ends its cluster."""


class RayEngine:
    """Shards are async actors, one each."""

    @classmethod
    def check(cls, options: Mapping[str, str]) -> None:
        """Check the options; see `Engine.check`."""
        for name, value in options.items():
            if name not in _OPTIONS:
                raise UsageError(
                    f"--engine-option {to_printable(name)}: ray has no such option", remedy=", ".join(_OPTIONS)
                )
            if name in ("cpus", "gpus"):
                _parse_number(name, value)
            if name == "memory":
                _parse_memory(value)
        if "address" in options and _find_token(options) is None:
            raise UsageError(
                "--engine-option address: the cluster's token is not known",
                remedy="--engine-option token=FILE, or RAY_AUTH_TOKEN_PATH",
            )
        extras.require("ray", "--engine ray")

    @classmethod
    def count_gpus(cls, options: Mapping[str, str]) -> float | None:
        """Return the GPUs of a shard; see `gpu_hours.count_shard_gpus`."""
        return _parse_number("gpus", options.get("gpus", "0"))

    def __init__(self, run: RunFolder, options: Mapping[str, str]) -> None:
        self._run = run
        self._options = options
        self._folder = run.path.absolute() / "engine"
        self._driver: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._running: set[str] = set()

    async def open(self) -> None:
        """Start the driver; see `Engine.open`. Actors of an earlier command ended with its driver."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        await asyncio.to_thread(self._remove_temporary)
        await self._start()

    async def _start(self) -> None:
        """Start the driver, and wait until the cluster answers.

        Raises:
            PlaceUnavailable: it does not.
        """
        order = {
            "run": str(self._run.path.absolute()),
            "address": self._options.get("address"),
            "temporary": None if "address" in self._options else await asyncio.to_thread(self._create_temporary),
            "cpus": _parse_number("cpus", self._options.get("cpus", "1")),
            "gpus": _parse_number("gpus", self._options.get("gpus", "0")),
            "memory": _parse_memory(self._options["memory"]) if "memory" in self._options else None,
        }
        output = os.open(self._folder / "ray.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._driver = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hermes_exec_agent.batch.ray_driver", stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE, stderr=output, env=self._create_environment(), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise PlaceUnavailable(f"ray: its driver cannot be started: {error.strerror}") from error
        finally:
            os.close(output)
        try:
            await self._send(order)
            async with asyncio.timeout(_START_S):
                reply = await self._receive()
        except TimeoutError:
            await self._end_driver()
            raise PlaceUnavailable(f"ray: no cluster within {_START_S:g} s", remedy="see engine/ray.txt") from None
        if "ready" not in reply:
            await self._end_driver()
            raise PlaceUnavailable(f"ray: {to_printable(str(reply.get('failed', 'its driver ended')))}",
                                   remedy="engine/ray.txt in the folder of the run has the details")  # fmt: skip
        self._reading = asyncio.create_task(self._read_ends())

    def _create_environment(self) -> dict[str, str]:
        token = _find_token(self._options) if "address" in self._options else str(self._folder / "ray-token")
        return {
            **os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        }  # fmt: skip

    def _create_temporary(self) -> str:
        """Create the token and the folder of a cluster of this machine; paths of its sockets have to be short."""
        write_private(self._folder / "ray-token", secrets.token_hex(32).encode())
        folder = tempfile.mkdtemp(prefix="hermes-ray-", dir="/tmp")
        kept = "".join(f"{each}\n" for each in (*self._list_temporary(), folder))
        write_private(self._folder / _RECORD, kept.encode())
        return folder

    def _list_temporary(self) -> list[Path]:
        """Return the folders of clusters that this run started and that were not removed yet."""
        try:
            paths = [Path(line) for line in (self._folder / _RECORD).read_text().splitlines()]
        except OSError:
            return []
        # The folder of the run may come from elsewhere.
        return [each for each in paths if each.parent == Path("/tmp") and each.name.startswith("hermes-ray-")]  # noqa: S108  sockets have short paths there

    def _remove_temporary(self) -> None:
        """Remove the folders of clusters that have ended, also those of drivers and commands that were killed."""
        left = [folder for folder in self._list_temporary() if _is_used(folder)]
        for folder in self._list_temporary():
            if folder not in left:
                shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            if left:
                write_private(self._folder / _RECORD, "".join(f"{each}\n" for each in left).encode())
            else:
                (self._folder / _RECORD).unlink()
                (self._folder / "ray-token").unlink(missing_ok=True)

    async def _await_removal(self) -> None:
        """Remove the folder of the cluster once its processes have ended, or leave that to a later command."""
        give_up = time.monotonic() + _END_S
        while True:
            await asyncio.to_thread(self._remove_temporary)
            if not await asyncio.to_thread(self._list_temporary) or time.monotonic() > give_up:
                return
            await asyncio.sleep(0.5)

    async def submit(self, orders: Sequence[ShardOrder]) -> None:
        """Create actors; see `Engine.submit`."""
        if self._driver is None or self._driver.returncode is not None or self._reading is None or self._reading.done():
            await self._end_driver()
            await asyncio.to_thread(self._remove_temporary)
            await self._start()
        for order in orders:
            self._run.shard(order.id).mkdir(mode=0o700)
        words = [[order.id, order.epoch, order.position, order.slots] for order in orders]
        self._running |= {order.id for order in orders}
        await self._send({"submit": words})

    async def poll(self) -> Sequence[str]:
        """Return the shards whose actors have not ended; see `Engine.poll`."""
        return [id for id in self._running if not (self._run.shard(id) / "ended").exists()]

    async def cancel(self, ids: Sequence[str]) -> None:
        """Kill actors; see `Engine.cancel`."""
        await self._send({"kill": list(ids)})

    async def close(self) -> None:
        """Wait for the shards to end what they run, then end the driver with its actors; see `Engine.close`."""
        if self._reading is not None and self._running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    while await self.poll() and not self._reading.done():  # noqa: ASYNC110  shards mark their own ends
                        await asyncio.sleep(0.2)
        await self._end_driver()
        await self._await_removal()

    async def _send(self, message: Any) -> None:
        """Send a message to the driver; one that has ended took all actors along."""
        if self._driver is None or self._driver.stdin is None:
            return
        with contextlib.suppress(ConnectionError):
            self._driver.stdin.write(json.dumps(message).encode() + b"\n")
            await self._driver.stdin.drain()

    async def _receive(self) -> dict[str, Any]:
        """Return the next message of the driver; an empty one at its end."""
        assert self._driver is not None  # noqa: S101  it was started
        assert self._driver.stdout is not None  # noqa: S101  it is a pipe
        line = await self._driver.stdout.readline()
        return json.loads(line) if line else {}

    async def _read_ends(self) -> None:
        while message := await self._receive():
            self._running.discard(str(message["ended"]))
        self._running.clear()

    async def _end_driver(self) -> None:
        """Let the driver end its actors and its cluster, and kill it if it does not."""
        driver, self._driver = self._driver, None
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._running.clear()
        if driver is None:
            return
        if driver.stdin is not None:
            driver.stdin.close()
        waiting = asyncio.ensure_future(driver.wait())
        await asyncio.wait([waiting], timeout=_END_S)
        if driver.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                driver.kill()
        await wait_done(waiting)


def _is_used(folder: Path) -> bool:
    """Whether a process that belongs to a cluster in that folder may still run."""
    name = os.fsencode(folder)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if name in path.read_bytes():
                return True
    return False


def _find_token(options: Mapping[str, str]) -> Path | None:
    """Return the file of the token of a cluster that exists; None if there is none."""
    named = options.get("token") or os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token"
    path = Path(named).expanduser()
    return path if path.is_file() else None


def _parse_number(name: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e6:
        raise UsageError(f"--engine-option {name}={to_printable(value)}: it should be a number from 0 on")
    return number


def _parse_memory(value: str) -> int:
    try:
        size = parse_size(value)
    except ValueError:
        size = None
    if not isinstance(size, int) or size <= 0:
        raise UsageError(f"--engine-option memory={to_printable(value)}: it should be a size", remedy="memory=4G")
    return size
