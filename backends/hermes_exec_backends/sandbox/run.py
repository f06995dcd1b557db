"""Run one program in one sandbox from outside: hold it, observe it, kill the whole sandbox, and collect its files.

No code that we trust runs next to the program. A program that attacks process 1 of the sandbox can end the sandbox and
nothing else; every fact here is read from the kernel, outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from hermes_exec.backend import Exit
from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec_backends.sandbox.bounds import POLL_S, LimitEnforcer
from hermes_exec_backends.sandbox.collect import Collected, collect
from hermes_exec_backends.sandbox.observe import Observer, WatchSpec, find_survivors
from hermes_exec_backends.sandbox.procfs import read_facts
from hermes_exec_backends.sandbox.sandbox_handle import STDERR, STDOUT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from hermes_exec_backends.sandbox.control import LauncherReport
    from hermes_exec_backends.sandbox.observe import ObservedCall
    from hermes_exec_backends.sandbox.sandbox_handle import SandboxHandle
    from hermes_exec_backends.sandbox.spec import Limits

WALL, OUTPUT = "wall", "output"


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended, as seen from outside."""

    exit: Exit
    """Its exit code or its signal; ``lost`` if the sandbox ended before that was known."""
    limit: str
    """The limit that ended it: ``wall``, ``output``, ``memory``, ``processes``, ``cpu``, or an empty string."""
    stdout: bytes
    stderr: bytes
    duration_s: float
    acts: tuple[ObservedCall, ...] = ()
    """The notable system calls that it made, if it was observed."""
    left: tuple[str, ...] = ()
    """Command lines of processes that outlived it, if it was observed; they have been killed."""
    hit: str = ""
    """A limit that the kernel enforced on it or its children, however it ended: ``memory``, ``processes``."""


class Run:
    """A sandbox with a program that waits for ``go``. ``close`` or ``async with`` ends it and releases everything."""

    def __init__(
        self, held: SandboxHandle, report: LauncherReport, limits: Limits, bounds: LimitEnforcer | None = None
    ) -> None:
        self.report = report
        self._held = held
        self._first = os.pidfd_open(held.first)
        self._limits = limits
        self._folders: dict[str, int] = {}
        self._outputs = {STDOUT: bytearray(), STDERR: bytearray()}
        self._bounds = bounds or LimitEnforcer(limits)
        self._limit = ""
        self._began = 0.0
        self._ended: asyncio.Task[ProgramResult] | None = None
        self._watched: WatchSpec | None = None
        self.observer: Observer | None = None
        """Replies to the observed system calls; None if none are observed."""
        self._bounds.hold(held.first, held.pid)
        seen = read_facts(held.pid)
        # The kernel shows the label of the next exec only to the process itself, so the launcher reports it.
        self.facts = replace(seen, next_label=seen.next_label or report.apparmor)
        """The facts of the process that becomes the program, read from outside while it waits."""

    @property
    def limit_enforcers(self) -> Mapping[str, str]:
        """The enforcer of each limit: ``cgroup v2``, ``cgroup v1`` or ``watchdog``."""
        known = dict(self._bounds.enforcers)
        set_here = {WALL: self._limits.wall_s, OUTPUT: self._limits.output}
        return {**known, **{name: "watchdog" for name, value in set_here.items() if value is not None}}

    @property
    def first(self) -> int:
        """A descriptor that becomes readable when the sandbox has ended."""
        return self._first

    def keep(self, target: str) -> None:
        """Keep a folder of the sandbox open, so that its files can be collected after the sandbox has ended."""
        path = f"/proc/{self.facts.pid}/root{target}"
        try:
            self._folders[target] = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise PlaceUnavailable(f"the folder {target} of a sandbox cannot be opened: {error.strerror}") from error

    def observe(self, listener: int, program: bytes, watch: WatchSpec) -> None:
        """Observe the program from ``go`` on. Takes ownership of ``listener``; ``program`` is its filter.

        Raises:
            PlaceUnavailable: the launcher did not send the descriptor for notifications.
        """
        if listener < 0:
            raise PlaceUnavailable("the system calls of a sandbox cannot be observed: the launcher sent no descriptor")
        self.observer = Observer(listener, program, watch)
        self._watched = watch

    def go(self, stdin: bytes | None = None) -> None:
        """Let the program begin. ``stdin`` is its whole standard input, if the start left that open.

        Raises:
            UsageError: the program has begun already.
        """
        if self._ended is not None:
            raise UsageError("this program has begun already")
        self._began = time.monotonic()
        if self.observer is not None:
            self.observer.begin()
        self._ended = asyncio.get_running_loop().create_task(self._watch())
        self._held.begin(self._on_output, stdin)

    async def wait(self) -> ProgramResult:
        """Wait until the program and everything in its sandbox has ended.

        Raises:
            UsageError: ``go`` has not been called.
            PlaceUnavailable: the program could not be started; it did not run.
        """
        if self._ended is None:
            raise UsageError("this program has not begun", remedy="go() first")
        return await asyncio.shield(self._ended)

    def kill(self, limit: str = "") -> None:
        """Kill everything in the sandbox; ``wait`` returns once it is gone."""
        self._limit = self._limit or limit
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._first, signal.SIGKILL)

    def collect(self, target: str, into: Path, *, max_bytes: int, max_files: int = 10_000) -> Collected:
        """Copy the contents of a folder of the specification's ``tmpfs`` after the program has ended; see ``collect``.

        Raises:
            UsageError: the program may still be running, or there is no such folder.
            TransferError: the contents exceed the bounds.
        """
        if self._ended is None or not self._ended.done():
            raise UsageError("files are collected once the program has ended", remedy="wait() first")
        if target not in self._folders:
            raise UsageError(f"{target!r} is not a folder of the sandbox", remedy=", ".join(self._folders))
        return collect(self._folders[target], into, max_bytes=max_bytes, max_files=max_files)

    async def close(self) -> None:
        """Kill the sandbox if it still runs, and release all resources. Safe to call twice."""
        if self._first < 0:
            return
        self.kill()
        if self._ended is not None:
            with contextlib.suppress(PlaceUnavailable):
                await asyncio.shield(self._ended)
        await self._held.release()
        self._bounds.remove()
        if self.observer is not None:
            self.observer.close()
        for fd in (*self._folders.values(), self._first):
            os.close(fd)
        self._folders.clear()
        self._first = -1

    async def __aenter__(self) -> Self:
        """Return the run."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def _watch(self) -> ProgramResult:
        left: tuple[str, ...] = ()
        watching = asyncio.get_running_loop().create_task(self._guard())
        try:
            status, refusal = await self._held.wait_status()
            duration_s = time.monotonic() - self._began
            if refusal:
                self.kill()
            elif self._watched is not None and self._watched.linger_s is not None:
                left = await find_survivors(self._held.first, self._watched.linger_s)
            await self._held.wait_gone()
        finally:
            watching.cancel()
            if self.observer is not None:
                self.observer.close()
        if refusal and not self._limit:
            raise PlaceUnavailable(f"the program could not be started in its sandbox: {refusal}")
        if self.observer is not None and self.observer.failure:
            raise PlaceUnavailable(f"the program could not be observed: {self.observer.failure}")
        stdout, stderr = map(bytes, self._outputs.values())
        exit = self._exit(status)
        hit = self._bounds.find_kernel_hit()
        limit = self._limit or (hit if exit.code != 0 else "")
        acts = tuple(self.observer.acts) if self.observer is not None else ()
        return ProgramResult(exit, limit, stdout, stderr, duration_s, acts, left, hit)

    def _exit(self, status: int | None) -> Exit:
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return Exit(code=code) if code >= 0 else Exit(signal=-code)
        if self._limit:
            return Exit(signal=signal.SIGKILL)
        return Exit(lost="the sandbox ended before the program")

    async def _guard(self) -> None:
        """Kill the sandbox when it reaches a limit."""
        give_up = None if self._limits.wall_s is None else self._began + self._limits.wall_s
        while True:
            now = time.monotonic()
            limit = WALL if give_up is not None and now >= give_up else self._bounds.find_exceeded()
            if limit:
                self.kill(limit)
                return
            await asyncio.sleep(POLL_S if give_up is None else max(0.0, min(POLL_S, give_up - now)))

    def _on_output(self, kind: int, data: bytes) -> None:
        most = self._limits.output
        room = len(data) if most is None else max(0, most - sum(map(len, self._outputs.values())))
        self._outputs[kind] += data[:room]
        if len(data) > room:
            self.kill(OUTPUT)
