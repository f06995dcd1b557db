"""A connection to a sandbox: the WebSocket of one terminal as a clean byte stream, with the relay at its other end.

The vendor starts only an interactive login shell. The first message is a line that replaces the shell by a Python with
the terminal in raw mode, which prints a mark and then reads the relay's program. After the mark all data is frames
(``relay``).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import marshal
import secrets
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Exit
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.terminal.encoding import encode
from hermes_exec.transport.heartbeat import Heartbeat
from hermes_exec_backends.daytona import frames
from hermes_exec_backends.daytona.channel import RelayChannel
from hermes_exec_backends.daytona.file_calls import FileSideChannel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from hermes_exec.backend import Receiver


_READY_S = 40.0
_HERE_S = 20.0
_PREAMBLE = 256 << 10
"""The most bytes that a login shell may print before the mark."""
_RECEIVED = 96 << 10
_FRAMES = 24
"""The number of frames after which the other side receives an acknowledgment."""
_MESSAGE = 32 << 10

OPENS = "_open_ws"
"""The SDK's method that opens a WebSocket; see ``overhear_socket``."""
_LINE = (
    " exec sh -c 'for p in {pythons}; do command -v $p >/dev/null 2>&1 && exec $p -ISc \""
    'import os,tty,zlib;tty.setraw(0);os.write(1,bytes([{mark}]));b=b\\"\\";'
    'exec(\\"while len(b)<{size}: b+=os.read(0,{size}-len(b)) or os._exit(9)\\");exec(zlib.decompress(b))"'
    "; done; echo {none}'\n"
)
_LAUNCH = """
import sys
kind = type(sys)
package = sys.modules["hx"] = kind("hx")
package.__path__ = []
for name, text in %r:
    module = sys.modules["hx." + name] = kind("hx." + name)
    module.__package__ = "hx"
    setattr(package, name, module)
    exec(compile(text, "hx." + name, "exec"), module.__dict__)
module.main()
"""


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
            raise PlaceUnavailable("daytona: the connection broke right after it was opened")
        self._tasks.append(asyncio.get_running_loop().create_task(self._stay()))

    async def _have_terminal(self, process: Any) -> None:
        """Hold a terminal until the connection is lost."""
        from daytona import DaytonaError, PtySize

        try:
            with overhear_socket(process, self._set_socket):
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
        self._say(start_line(self._pythons, self._mark, self._none))

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
            self._say(relay_program())
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


def _source(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")


@cache
def relay_program() -> bytes:
    """Return the program that is sent after the mark."""
    return zlib.compress(
        (_LAUNCH % [(name, _source(name)) for name in ("frames", "program", "staging_dir", "relay")]).encode(), 9
    )


def start_line(pythons: Sequence[str], mark: bytes, none: str) -> bytes:
    """Return the shell line that makes the first existing one of ``pythons`` print ``mark``, else prints ``none``."""
    marked = ",".join(map(str, mark))
    words = " ".join(pythons)
    # Split in two, so that the terminal's echo of the line does not contain it.
    return _LINE.format(
        pythons=words, mark=marked, size=len(relay_program()), none=f'"{none[:8]}""{none[8:]}"'
    ).encode()


@contextlib.contextmanager
def overhear_socket(process: Any, opened: Callable[[Any], None]) -> Generator[None]:
    """Call ``opened`` with the WebSocket that the SDK opens for a terminal, as soon as it is open.

    The SDK polls ten times a second whether the terminal has answered, so its own report is up to a tenth of a second
    late. If a later SDK opens the WebSocket in another way, ``opened`` is not called, and the SDK's report is used.
    """
    connect = getattr(process, OPENS, None)
    if not inspect.iscoroutinefunction(connect):
        yield
        return

    own: dict[str, Any] = process.__dict__

    async def overhear(*args: Any, **kwargs: Any) -> Any:
        own.pop(OPENS, None)
        socket = await connect(*args, **kwargs)
        opened(socket)
        return socket

    setattr(process, OPENS, overhear)  # for this one call, on an object that only the caller uses
    try:
        yield
    finally:
        own.pop(OPENS, None)  # the class has it
