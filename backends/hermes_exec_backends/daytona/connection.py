"""A connection to a sandbox: the WebSocket of one terminal as a clean byte stream, with the relay at its other end.

The first message replaces the shell by the relay (``boot``). After its mark all data is frames (``relay``).
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import secrets
import struct
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Exit
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.terminal.encoding import encode
from hermes_exec.transport.heartbeat import Heartbeat
from hermes_exec_backends.daytona import boot, frames
from hermes_exec_backends.daytona.bulk_transfer import FileSideChannel
from hermes_exec_backends.daytona.channel import RelayChannel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec.backend import Receiver

_READY_S = 40.0
_HERE_S = 20.0
_PREAMBLE = 256 << 10
"""The most bytes that a login shell may print before the mark."""
_RECEIVED = 96 << 10
_FRAMES = 24
"""The number of frames after which the other side receives an acknowledgment."""
_MESSAGE = 32 << 10


class Connection:
    """A connection: ``await connect``, then ``start`` programs until it is ``lost``."""

    def __init__(self, pythons: Sequence[str], why_lost: Callable[[], Awaitable[str]], keepalive_s: float) -> None:
        self.id = f"hermes-exec-{secrets.token_hex(8)}"
        """The vendor's name of the terminal."""
        self.lost = False
        self._pythons = pythons
        self._why_lost = why_lost
        self._mark = secrets.token_bytes(16)
        self._none = secrets.token_hex(8)
        self._before: bytes | None = b""  # the shell's output before the mark
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parser = frames.Parser()
        self._channels: dict[int, RelayChannel] = {}
        self._number = 0
        self._sequence = 0
        self._arrived = [0, 0]
        self._acknowledged = [0, 0]
        self._out: list[bytes] = []
        self._something = asyncio.Event()
        self._begun = False
        self._handle: Any = None
        self._socket: Any = None  # the handle's, once there is one
        self.beside = FileSideChannel(None, self._break)
        """The transfer of data too large for the connection."""
        self._tasks: list[asyncio.Task[None]] = []
        self._heartbeat = Heartbeat(
            keepalive_s,
            lambda: self.send(frames.HERE, 0),
            lambda: self._break(f"the relay was silent for {self._heartbeat.patience_s:g} s"),
            lambda: bool(self._channels) and not self.lost,
        )

    async def connect(self, sandbox: Any) -> None:
        """Open a terminal in the SDK's ``sandbox``, and replace its shell by the relay.

        Raises:
            DaytonaError: the vendor opened no terminal.
            PlaceUnavailable: there is no Python, or the shell did not start it.
        """
        self.beside = FileSideChannel(sandbox.fs, self._break)
        terminal = asyncio.get_running_loop().create_task(self._have_terminal(sandbox.process))
        self._tasks.append(terminal)
        try:
            async with asyncio.timeout(_READY_S):
                # The relay may be ready long before the SDK reports that the terminal is.
                await asyncio.wait([self._ready, terminal], return_when=asyncio.FIRST_COMPLETED)
                if not self._ready.done():
                    terminal.result()  # it raises, because it ends with the connection
                self._ready.result()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise PlaceUnavailable(f"daytona: no shell answered within {_READY_S:g} s") from None
            raise
        if self.lost:
            raise PlaceUnavailable("daytona: the connection broke as soon as it was made")
        self._tasks.append(asyncio.get_running_loop().create_task(self._stay()))

    async def _have_terminal(self, process: Any) -> None:
        """Hold a terminal until the connection is lost."""
        from daytona import DaytonaError, PtySize

        try:
            with boot.overheard(process, self._set_socket):
                self._handle = await process.create_pty_session(
                    self.id, self._handle_data, cwd="/", pty_size=PtySize(24, 512)
                )
        except DaytonaError as error:
            if not self._ready.done():
                raise
            await self._lose(f"the connection to the sandbox broke ({error})")
            return
        self._begin()
        result = await self._handle.wait()
        await self._lose(f"the connection to the sandbox broke ({result.error or 'it was closed'})")

    def _set_socket(self, socket: Any) -> None:
        self._socket = socket

    def _begin(self) -> None:
        """Make the shell start the relay, once."""
        if self._begun:
            return
        self._begun = True
        self._tasks.append(asyncio.get_running_loop().create_task(self._write()))
        self._say(boot.line(self._pythons, self._mark, self._none))

    def start(self, argv: Sequence[str | bytes], receiver: Receiver, env: Mapping[str, str]) -> RelayChannel:
        """Start a program; the channel's end reports a failed start."""
        self._number += 1
        channel = self._channels[self._number] = RelayChannel(self, self._number, receiver)
        self._heartbeat.watch()
        words = [encode(word) for word in argv]
        variables = {encode(name): encode(value) for name, value in env.items()}
        payload = marshal.dumps((words, variables), 2)
        *more, last = (payload[at : at + frames.LONGEST] for at in range(0, len(payload), frames.LONGEST))
        for part in more:
            self.send(frames.MORE, self._number, part)
        self.send(frames.START, self._number, last)
        return channel

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        """Send a frame."""
        if not self.lost:
            self._say(frames.frame(kind, number, self._sequence, payload))
            self._sequence += 1

    def forget(self, number: int) -> None:
        """Remove the channel of a program that has ended."""
        self._channels.pop(number, None)

    async def close(self) -> None:
        """End the relay; the programs that it started continue. Safe to call twice."""
        if not self.lost:
            from daytona import DaytonaError

            self.send(frames.LEAVE, 0)
            if self._begun:
                with contextlib.suppress(DaytonaError, ConnectionError):  # it has already broken
                    await self._flush()
            await self._lose("the connection was closed here")

    def _say(self, data: bytes) -> None:
        self._out.append(data)
        self._something.set()

    async def _flush(self) -> None:
        waiting, self._out = b"".join(self._out), []
        for at in range(0, len(waiting), _MESSAGE):
            send = self._handle.send_input if self._handle is not None else self._socket.send_bytes
            await send(waiting[at : at + _MESSAGE])

    async def _write(self) -> None:
        from daytona import DaytonaError

        with contextlib.suppress(DaytonaError, ConnectionError):  # the observer of the connection is notified as well
            while True:
                await self._something.wait()
                self._something.clear()
                await self._flush()

    async def _stay(self) -> None:
        """Send keepalive messages until the connection ends."""
        while True:
            await asyncio.sleep(_HERE_S)
            self.send(frames.HERE, 0)

    async def _lose(self, why: str) -> None:
        if self.lost:
            return
        self._stop()
        if not self._ready.done():
            self._ready.set_exception(PlaceUnavailable(f"daytona: {why}"))
            self._ready.exception()
        if self._handle is not None:
            await self._handle.disconnect()
        elif self._socket is not None:
            await self._socket.close()
        if self._channels:
            exit = Exit(lost=await self._why_lost() or why)
            for channel in list(self._channels.values()):
                channel.report_end(exit)

    def _stop(self) -> None:
        self.lost = True
        self._heartbeat.stop()
        self.beside.close()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    def _handle_data(self, data: bytes) -> None:
        if self._before is not None:
            if self._ready.done():
                return  # it was refused or lost before
            if self._socket is not None:
                self._begin()  # the shell has printed something, so the terminal is ready
            self._before += data
            noise, found, data = self._before.partition(self._mark)
            if not found:
                if self._none.encode() in noise or len(noise) > _PREAMBLE:
                    self._refuse(f"no Python 3.6 or later is there ({', '.join(self._pythons)})")
                return
            self._before = None
            self._say(boot.program())
            self._ready.set_result(None)  # frames can follow at once: they wait until the program has begun
        if not data or self.lost:
            return
        self._heartbeat.record_activity()
        try:
            for kind, number, payload in self._parser.feed(data):
                self._arrived[0] += frames.HEADER.size + len(payload)
                self._arrived[1] += 1
                if kind == frames.READY:
                    self.beside.set_folder(payload.decode())
                elif channel := self._channels.get(number):
                    channel.frame(kind, payload)
        except (ValueError, struct.error) as error:
            self._break(f"the sandbox broke the protocol: {error}")
            return
        if self._arrived[0] - self._acknowledged[0] >= _RECEIVED or self._arrived[1] - self._acknowledged[1] >= _FRAMES:
            self._acknowledged = list(self._arrived)
            self.send(frames.RECEIVED, 0, frames.COUNTS.pack(*self._arrived))

    def _refuse(self, why: str) -> None:
        if not self._ready.done():
            error = PlaceUnavailable(f"daytona: {why}", remedy="an image with Python 3.6 or later")
            self._ready.set_exception(error)

    def _break(self, why: str) -> None:
        task = asyncio.get_running_loop().create_task(self._lose(why))
        self._tasks.append(task)
