"""A target as the runtime of a rollout of verifiers: ``await agent.run(task, runtime=box)``.

The kinds of runtimes in a configuration of verifiers are a closed list, so a runtime is passed to each run:
`open_runtime` opens the target, and closes it after the block with all that runs there. verifiers never retries a
rollout in a runtime that was passed to it.
"""

from __future__ import annotations

import contextlib
import math
import os
import posixpath
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import hermes_exec
from hermes_exec.errors import HermesError, PlaceError, TransferError, UsageError
from hermes_exec_agent.bridges._peers import Peer

with Peer("verifiers", "0.4.0"):
    from verifiers.v1.errors import SandboxError
    from verifiers.v1.runtimes import ProgramResult, Runtime, SubprocessConfig, SubprocessRuntimeInfo

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec import Terminal

_MACHINES = frozenset({"local", "ssh", "slurm", "bubblewrap"})
"""Kinds of targets whose files outlast a terminal, so that each runtime gets a folder of its own."""
_STEP_S = 60.0
_OUTPUT = 64 << 20
_LARGEST = 1 << 30
_LEASE_S = 60.0
_WHERE = "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/net"


class HermesExecRuntime(Runtime):
    """One open target."""

    def __init__(self, target: str, name: str | None = None) -> None:
        """``target`` is a target, or a profile of ``hermes.toml``."""
        super().__init__(name)
        # The type of the information is one of verifiers' own; this one says least about the target.
        self.config = SubprocessConfig()
        self.info = SubprocessRuntimeInfo(id=target)
        self._target = target
        self._stack = AsyncExitStack()
        self._terminal: Terminal | None = None
        self._folder = ""
        self._own_folder = False
        self._shares_network = False
        self._ports: set[int] = set()
        """Ports of this machine that programs in the target reach under the same number."""
        self._forwarded: dict[int, str] = {}

    @property
    def terminal(self) -> Terminal:
        """The open target."""
        if self._terminal is None:
            raise SandboxError(f"{self._target}: the target is not open")
        return self._terminal

    async def start(self) -> None:
        """Open the target; see `Runtime.start`."""
        try:
            self._terminal = await self._stack.enter_async_context(hermes_exec.open(self._target, lease_s=_LEASE_S))
            self._own_folder = self._terminal.kind in _MACHINES
            make = "umask 077; mktemp -d /tmp/hermes-verifiers.XXXXXXXX" if self._own_folder else "pwd -P"
            done = await self._terminal.run(make, timeout=_STEP_S, check=True)
            self._folder = done.stdout_text.rstrip("\n")
            where = (await self._terminal.run(_WHERE, timeout=_STEP_S)).stdout_text.split()
            self._shares_network = where == _find_network()
        except HermesError as error:
            await self._stack.aclose()
            raise SandboxError(str(error)) from error

    async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """Run a program; see `Runtime.run`."""
        try:
            done = await self.terminal.run(argv, env=self.process_env(env), cwd=self._folder, max_output=_OUTPUT)
        except PlaceError as error:
            raise SandboxError(str(error)) from error
        except UsageError as error:  # there is no such program
            return ProgramResult(127, "", str(error))
        return ProgramResult(done.shell_code, done.stdout_text, done.stderr_text)

    async def run_background(self, argv: list[str], env: dict[str, str], log: str) -> None:
        """Start a program that ends with the target; see `Runtime.run_background`."""
        words = ["/bin/sh", "-c", 'log=$1; shift; exec "$@" >"$log" 2>&1', "sh", log, *argv]
        try:
            await self.terminal.start(words, env=self.process_env(env), cwd=self._folder, keep=False, cap_s=math.inf)
        except HermesError as error:
            raise SandboxError(str(error)) from error

    async def _read(self, path: str, max_bytes: int | None = None) -> bytes:
        try:
            return await self.terminal.files.read(self._resolve(path), 0, max_bytes or _LARGEST)
        except (TransferError, PlaceError) as error:
            raise SandboxError(f"read {path!r}: {error}") from error

    async def write(self, path: str, data: bytes) -> None:
        """Write a file with its folders; see `Runtime.write`."""
        try:
            await self.terminal.files.write(self._resolve(path), data, parents=True)
        except (TransferError, PlaceError) as error:
            raise SandboxError(f"write {path!r}: {error}") from error

    def _resolve(self, path: str) -> str:
        return posixpath.join(self._folder, path)

    def host_url(self, url: str) -> str:
        """Return the address at which the target reaches a server of this machine; see `prepare_execution`."""
        parts = urlsplit(url)
        if self._shares_network or parts.hostname not in ("127.0.0.1", "localhost") or parts.port is None:
            return url
        self._ports.add(parts.port)
        return url

    async def prepare_execution(self, routes: list[str] | None) -> None:  # noqa: ARG002  the form of verifiers
        """Let the target reach the servers of this machine whose addresses were asked for."""
        for port in sorted(self._ports - self._forwarded.keys()):
            address = f"127.0.0.1:{port}"
            try:
                forward = await self.terminal.forward(address, address, reverse=True)
                await self._stack.enter_async_context(forward)
            except HermesError as error:
                raise SandboxError(f"{self._target}: port {port} of this machine is not reached: {error}") from error
            self._forwarded[port] = address

    async def expose(self, port: int) -> str:
        """Return the address of a port of the target on this machine; see `Runtime.expose`."""
        if self._shares_network:
            return f"http://127.0.0.1:{port}"
        try:
            forward = await self.terminal.forward("127.0.0.1:0", f"127.0.0.1:{port}")
            await self._stack.enter_async_context(forward)
        except HermesError as error:
            raise SandboxError(str(error)) from error
        return f"http://{forward.address}"

    async def teardown(self) -> None:
        """Remove the folder, and close the target with all that runs there; see `Runtime.teardown`."""
        async with self._stack:
            if self._own_folder and self._terminal is not None:
                with contextlib.suppress(HermesError):
                    await self._terminal.run(["rm", "-rf", "--", self._folder], timeout=_STEP_S, cwd="/")

    def cleanup(self) -> None:
        """Do nothing: without an event loop, the lease of the target ends what runs there."""


def _find_network() -> list[str]:
    """Return the boot and the network of this machine, as the target reports its own."""
    try:
        return [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/net")]  # noqa: PTH115  it is not a path
    except OSError:
        return []


@asynccontextmanager
async def open_runtime(target: str) -> AsyncGenerator[HermesExecRuntime]:
    """Open a target as a runtime for rollouts.

    Raises:
        SandboxError: it cannot be opened.
    """
    runtime = HermesExecRuntime(target)
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()
