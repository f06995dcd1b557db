"""What the fault tests stand on: channels that break, and a look at the processes of a guest on this machine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.backend import BackendTraits, Channel, Exit, Receiver
from hermes_exec.testing.place import link, wait_until
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.processes import alive, parent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.terminal.terminal import Terminal


Limits = tuple[int | None, int | None]
"""After how many bytes a channel breaks, to the place and from it; None for never."""


async def guest_pid(terminal: Terminal) -> int:
    """The pid of a terminal's guest: the parent of the runner that is the parent of a program."""
    runner = int((await terminal.run(["sh", "-c", "echo $PPID"])).stdout)
    return parent(runner)


def folders_of(terminal: Terminal) -> list[Path]:
    """Where a terminal's guest may have files."""
    name = Path(str(link(terminal).guest["folder"])).name
    return [Path(base) / name for base in (f"/run/user/{os.getuid()}", "/dev/shm", "/tmp", "/var/tmp")]


async def written(terminal: Terminal, text: bytes) -> None:
    """Wait until the state of a session that is there, whole, has ``text``."""

    async def is_there() -> bool:
        states = [path for folder in folders_of(terminal) for path in folder.glob("*/state")]
        return any(text in path.read_bytes() for path in states)

    await wait_until(is_there, 30)


async def gone(pids: set[int], within_s: float = PATIENCE_S) -> None:
    """Return when none of the processes is alive; fail when one stays."""
    clock = asyncio.get_running_loop().time
    give_up = clock() + within_s
    while left := {pid for pid in pids if alive(pid)}:
        assert clock() < give_up, f"still alive: {sorted(left)}"
        await asyncio.sleep(0.01)


async def reaped(pid: int) -> None:
    """Return when the parent of a process has been told of its end."""

    async def is_forgotten() -> bool:
        return not Path(f"/proc/{pid}").exists()

    await wait_until(is_forgotten, 30)


def kill(pid: int) -> None:
    """KILL, as the kernel would for want of memory."""
    os.kill(pid, signal.SIGKILL)


class CuttingChannel(Channel, Receiver):
    """A channel that breaks, in mid-frame if need be, after so many bytes to or from the place."""

    def __init__(self, receiver: Receiver, limits: Limits) -> None:
        self._receiver = receiver
        self._up, self._down = limits
        self.sent: int = 0
        self.taken: int = 0
        self.cut_in: tuple[bytes, int] | None = None
        """Break at so many bytes from the beginning of the first frame, either way, that begins like this."""
        self.inner: Channel

    def cut_after(self, up: int | None, down: int | None) -> None:
        """Break after so many more bytes to (``up``) or from (``down``) the place."""
        self._up, self._down = up, down
        if up == 0 or down == 0:
            self.inner.abandon()

    def _where(self, data: bytes, limit: int | None) -> int | None:
        if self.cut_in is None or self.cut_in[0] not in data:
            return limit
        return data.index(self.cut_in[0]) + self.cut_in[1]

    def write(self, *parts: bytes | memoryview) -> None:
        self.sent += sum(map(len, parts))
        self._up = self._where(b"".join(parts), self._up)
        if self._up is None:
            self.inner.write(*parts)
            return
        data = b"".join(parts)[: self._up]
        self._up -= len(data)
        if data:
            self.inner.write(data)
        if not self._up:
            self.inner.abandon()

    def on_data(self, data: bytes, /) -> None:
        self.taken += len(data)
        self._down = self._where(data, self._down)
        if self._down is None:
            self._receiver.on_data(data)
            return
        data, self._down = data[: self._down], self._down - len(data[: self._down])
        if data:
            self._receiver.on_data(data)
        if not self._down:
            self.inner.abandon()

    def on_stderr(self, data: bytes, /) -> None:
        self._receiver.on_stderr(data)

    def on_close(self, exit: Exit, /) -> None:
        self._receiver.on_close(exit)

    def write_eof(self) -> None:
        self.inner.write_eof()

    @property
    def unsent(self) -> int:
        return self.inner.unsent

    async def drain(self) -> None:
        await self.inner.drain()

    def pause(self) -> None:
        self.inner.pause()

    def resume(self) -> None:
        self.inner.resume()

    def abandon(self) -> None:
        self.inner.abandon()

    def kill(self) -> None:
        self.inner.kill()


class CuttingBackend(LocalBackend):
    """This machine, over channels that break as told.

    ``limits`` are those of the next channels after the first, which holds. ``gate`` holds new channels
    back while it is not set. ``near`` lets bulk output go around the channels.
    """

    def __init__(self, *, near: bool = False) -> None:
        self._near = near
        self.limits: deque[Limits] = deque()
        self.channels: list[CuttingChannel] = []
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def traits(self) -> BackendTraits:
        return replace(super().traits, shares_host=self._near, needs_checksum=not self._near)

    @property
    def channel(self) -> CuttingChannel:
        """The newest channel."""
        return self.channels[-1]

    def _channel(self, receiver: Receiver) -> CuttingChannel:
        limits = self.limits.popleft() if self.channels and self.limits else (None, None)
        return CuttingChannel(receiver, limits)

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        await self.gate.wait()
        channel = self._channel(receiver)
        channel.inner = await super().spawn(argv, channel, env=env)
        self.channels.append(channel)
        return channel
