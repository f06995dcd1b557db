"""One program in the sandbox as a channel: its frames on the shared connection."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING, Protocol

from hermes_exec.backend import Channel, Exit, ExitReceiver, Receiver
from hermes_exec_backends.daytona import frames

if TYPE_CHECKING:
    from hermes_exec_backends.daytona.file_calls import FileSideChannel

_LOW = 2 << 20
_TOLD = 128 << 10
"""The number of used bytes after which the other side is notified."""


class RelayConnection(Protocol):
    """The connection that the channels of one sandbox share."""

    beside: FileSideChannel

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Send a frame."""

    def forget(self, number: int) -> None:
        """Remove the channel of that number, which has ended."""


class RelayChannel(Channel):
    """The streams of one program. Created by ``Connection.start``."""

    def __init__(self, connection: RelayConnection, number: int, receiver: Receiver) -> None:
        self._connection = connection
        self._number = number
        self._receiver = receiver
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._sent = 0
        self._taken = 0
        self._eof = False
        self._ended = False
        self._drained: asyncio.Future[None] | None = None
        self._moving: deque[asyncio.Task[int]] = deque()  # input being transferred as files, in order
        self._kept: deque[tuple[int, bytes | asyncio.Task[bytes]]] = deque()  # output that is not yet delivered
        self._used = 0
        self._told_used = 0
        self._paused = False
        self._exit: Exit | None = None
        self._over = False

    def write(self, *parts: bytes | memoryview) -> None:
        """Queue bytes, and send as many as the program's window permits."""
        if self._over or self._eof:
            return
        for part in parts:
            data = bytes(part)
            self._queue.extend(data[at : at + frames.LONGEST] for at in range(0, len(data), frames.LONGEST))
            self._queued += len(data)
        self._feed()

    def write_eof(self) -> None:
        """Close standard input after what is queued."""
        if not (self._over or self._eof):
            self._eof = True
            self._feed()

    @property
    def unsent(self) -> int:
        """Return the number of bytes that the program has not taken."""
        return self._queued + self._sent - self._taken

    async def drain(self) -> None:
        """Wait until at most 2 MiB are unsent or in transit, or the channel has ended."""
        if self.unsent > _LOW and not self._over:
            self._drained = self._drained or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    def _feed(self) -> None:
        # While one file is in transit the next one can grow.
        while self._queued >= (frames.LARGEST if self._moving else frames.BULK) and self._way(frames.BULK_WINDOW):
            if not self._connection.beside.usable:
                break
            self._move()
        while self._queue and not self._moving and self._way(frames.WINDOW):
            data = self._queue.popleft()
            self._queued -= len(data)
            self._sent += len(data)
            self._connection.send(frames.INPUT, self._number, data)
        if self._eof and not self._queue and not self._moving and not self._ended:
            self._ended = True
            self._connection.send(frames.EOF, self._number)

    def _way(self, window: int) -> bool:
        return self._sent - self._taken < window

    def _move(self) -> None:
        """Send queued data, or a part of it, as a file."""
        parts: list[bytes] = []
        size = 0
        while self._queue and size < frames.LARGEST:
            parts.append(self._queue.popleft())
            size += len(parts[-1])
        self._queued -= size
        self._sent += size
        task = self._connection.beside.put(b"".join(parts))
        self._moving.append(task)
        task.add_done_callback(lambda _: self._take_moved())

    def _take_moved(self) -> None:
        while self._moving and self._moving[0].done() and not self._over:
            task = self._moving[0]
            if task.cancelled() or task.exception() is not None:
                return  # the connection is broken
            self._moving.popleft()
            self._connection.send(frames.FILED, self._number, frames.COUNT.pack(task.result()))
        if not self._over:
            self._feed()

    def pause(self) -> None:
        """Stop delivering; once a window is full, the program's own pipes stop it."""
        self._paused = True

    def resume(self) -> None:
        """Deliver the data received in between, and continue."""
        if self._paused:
            self._paused = False
            asyncio.get_running_loop().call_soon(self._deliver)

    def abandon(self) -> None:
        """Detach from the program; the connection stays open for others."""
        if not self._over:
            self._connection.send(frames.LEAVE, self._number)
            self.report_end(Exit(lost="the channel was closed here"))

    def kill(self) -> None:
        """Kill the program with its process group."""
        if not self._over:
            self._connection.send(frames.KILL, self._number)
            self.report_end(Exit(lost="it was killed here"))

    def frame(self, kind: int, payload: bytes) -> None:
        """Handle a received frame; raises ValueError on an invalid one."""
        if kind in {frames.OUT, frames.ERR}:
            self._kept.append((kind, payload))
            self._deliver()
        elif kind == frames.STORED:
            stored, number, task = self._connection.beside.fetch(payload)
            self._kept.append((stored, task))
            task.add_done_callback(lambda _: self._acknowledge(number))
        elif kind == frames.TAKEN:
            self._take(int(frames.COUNT.unpack(payload)[0]))
        elif kind == frames.EXIT:
            (code,) = frames.STATUS.unpack(payload)
            self._exit = Exit(code=code) if code >= 0 else Exit(signal=-code)
            self._kept.append((kind, b""))
            self._deliver()
        elif kind == frames.ENDED:
            self._kept.append((kind, b""))
            self._deliver()
        elif kind == frames.FAILED:
            (code,) = frames.STATUS.unpack(payload)
            self.report_end(Exit(lost=f"it could not be started: {os.strerror(code)}"))
        else:
            raise ValueError(f"frame kind {kind}")

    def _take(self, taken: int) -> None:
        if not self._taken <= taken <= self._sent:
            raise ValueError("it has taken what was not sent")
        self._taken = taken
        self._feed_more()

    def _feed_more(self) -> None:
        if self._queue:
            self._feed()
        if self._drained is not None and self.unsent <= _LOW:
            self._wake()

    def _acknowledge(self, number: int) -> None:
        if not self._over:
            self._connection.send(frames.STORED, self._number, frames.COUNT.pack(number))
            self._deliver()

    def _deliver(self) -> None:
        while self._kept and not self._paused and not self._over:
            kind, data = self._kept[0]
            if isinstance(data, asyncio.Task):
                if not data.done() or data.cancelled() or data.exception() is not None:
                    break
                data = data.result()
            self._kept.popleft()
            if kind == frames.EXIT:
                if isinstance(self._receiver, ExitReceiver) and self._exit is not None:
                    self._receiver.on_exit(self._exit)
            elif kind == frames.ENDED:
                self.report_end(self._exit or Exit(lost="the relay did not report its end"))
            else:
                self._used += len(data)
                (self._receiver.on_data if kind == frames.OUT else self._receiver.on_stderr)(data)
        if self._used - self._told_used >= _TOLD and not self._over:
            self._told_used = self._used
            self._connection.send(frames.USED, self._number, frames.COUNT.pack(self._used))

    def report_end(self, exit: Exit) -> None:
        """Report the end, once."""
        if self._over:
            return
        for kind, data in self._kept if exit.lost and not self._paused else ():
            if not isinstance(data, bytes):
                break  # this output and the following ones did not arrive
            if kind in {frames.OUT, frames.ERR}:
                (self._receiver.on_data if kind == frames.OUT else self._receiver.on_stderr)(data)
        self._over = True
        self._kept.clear()
        self._moving.clear()
        self._queue.clear()
        self._queued, self._sent = 0, self._taken
        self._connection.forget(self._number)
        self._wake()
        self._receiver.on_close(exit)

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None
