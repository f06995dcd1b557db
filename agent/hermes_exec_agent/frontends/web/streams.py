"""The output of a job or a kept shell over a WebSocket, with offsets, acknowledgements and, where allowed, input.

Each binary message begins with eight bytes: the offset in the stream after it, from which a client continues after a
break. The server sends at most `WINDOW` bytes more than the client has acknowledged, so that a slow page slows down
the reading from the target, and neither process holds the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import WSCloseCode, WSMsgType, web

from hermes_exec._async import cancel_and_wait
from hermes_exec.cli.global_flags import flags
from hermes_exec.errors import Closed, HermesError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec.terminal.pty import attach_pty
from hermes_exec_agent.frontends.web.access import refuse
from hermes_exec_agent.frontends.web.clean import clean_text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from hermes_exec.terminal.job import Job
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.terminal.pty import Pty
    from hermes_exec.terminal.pty_status import PtyStatus
    from hermes_exec.transport.link import Link
    from hermes_exec_agent.frontends.web.access import Session
    from hermes_exec_agent.frontends.web.places import PlaceMonitor

WINDOW = 256 << 10
"""Bytes that are sent before they are acknowledged."""
SOCKETS = 16
"""The limit of open streams."""
_MESSAGE = 64 << 10
_PIECE = 64 << 10
_TAIL = 256 << 10
"""Bytes of a log from its end that a new view begins with."""
_HOLD_S = 0.3
"""How long output is held back that may be the beginning of a secret."""
_CONNECT_S = 30.0
_DETACH_S = 5.0
_CLOSE_S = 2.0
SESSION_ENDED = 4401
"""The code of a closed stream whose session has ended."""
_TYPED = 256
"""Messages of input that wait for a program to read."""
_HEARTBEAT_S = 20.0
_LONGEST_NAME = 300
_OFFSET = struct.Struct(">Q")


class StreamServer:
    """Serves streams."""

    def __init__(self, monitor: PlaceMonitor, *, allow_input: bool) -> None:
        self._monitor = monitor
        self._allow_input = allow_input
        self._open: dict[web.WebSocketResponse, str] = {}

    async def handle(self, request: web.Request, session: Session) -> web.StreamResponse:
        """Stream a job or a kept shell until it ends, the client leaves, or its session ends."""
        query = request.query
        guest, name, kind = query.get("guest", ""), query.get("job", ""), query.get("kind", "")
        start = _parse_offset(query.get("offset", "tail"))
        if kind not in {"job", "pty"} or not guest or len(guest + name) > _LONGEST_NAME or start is None:
            return refuse(400, "guest, job, kind or offset is not valid")
        if not web.WebSocketResponse().can_prepare(request):
            return refuse(400, "this is a WebSocket")
        socket = web.WebSocketResponse(max_msg_size=_MESSAGE, heartbeat=_HEARTBEAT_S, compress=False)
        await socket.prepare(request)
        if len(self._open) >= SOCKETS:  # a browser hides the reason of a refused handshake
            await _send(socket, type="error", message=f"{SOCKETS} terminals are open; close one")
            await _close(socket, WSCloseCode.TRY_AGAIN_LATER)
            return socket
        self._open[socket] = session.id
        life = asyncio.timeout(session.ends - time.time())
        try:
            async with life:
                with self._monitor.stream():
                    await self._serve(socket, guest, name, kind, start, query.get("run", ""))
        except (HermesError, TimeoutError) as error:
            if not life.expired():
                await _send(socket, type="error", message=clean_text(str(error), flags.clean, 1000))
        except ConnectionError:
            pass
        finally:
            del self._open[socket]
            await _close(socket, SESSION_ENDED if life.expired() else WSCloseCode.OK)
        return socket

    async def close(self, session: str | None = None) -> None:
        """Close the streams of a session that has ended, or all: their clients connect again."""
        code = WSCloseCode.SERVICE_RESTART if session is None else SESSION_ENDED
        ends = [_close(socket, code) for socket, id in self._open.items() if session in {None, id}]
        await asyncio.gather(*ends)

    async def _serve(
        self, socket: web.WebSocketResponse, guest: str, name: str, kind: str, start: int, run: str
    ) -> None:
        if kind == "pty":
            shell = await self._monitor.find_pty(guest, name, _CONNECT_S)
            if shell is None:
                await _send(socket, type="gone")
            else:
                await self._serve_pty(socket, shell[0].link, shell[1], start, run)
            return
        found = await self._monitor.find_job(guest, name, _CONNECT_S)
        if found is None:
            await _send(socket, type="gone")
            return
        job, status = found[0].job(found[1]), found[1]
        total = status.stdout_bytes + status.stderr_bytes
        offset = max(0, total - _TAIL) if start < 0 else min(start, total)
        await _send(
            socket, type="begin", offset=offset, replay=False, input=self._allow_input, state=status.state.value
        )
        stream = _Stream(socket, offset, allow_input=self._allow_input)
        await stream.run(job, _read_from(_read_job(job, stream.begin), stream.begin, offset))
        await _send(socket, type="end", text=_describe_end(await job.status()))

    async def _serve_pty(
        self, socket: web.WebSocketResponse, link: Link, status: PtyStatus, start: int, run: str
    ) -> None:
        """Stream a kept shell: from the byte where the client was if the guest keeps it, else its recent output.

        ``run`` is what the client was sent as the identity of the program, because another one may have the name now.
        """
        kept, label = status.output, "" if status.output is None else f"{status.started:.6f}"
        continues = kept is not None and run == label and kept[0] <= start <= kept[1]
        recent = 0 if kept is None else max(kept[0], kept[1] - _TAIL)
        first = start if continues else recent
        stream = _Stream(socket, first, allow_input=self._allow_input)
        begin = None if kept is None else max(stream.begin, kept[0])
        try:
            pty = await attach_pty(link, status.name, offset=begin)
        except Closed:
            if begin is not None:  # a program that writes much: that byte is no longer kept
                await self._serve_pty(socket, link, replace(status, output=None), start, run)
                return
            raise
        try:
            await _send(socket, type="begin", offset=first, replay=not continues, run=label, input=self._allow_input)
            if not continues and begin is not None:
                with contextlib.suppress(HermesError):  # nothing is in the foreground that could draw again
                    await pty.signal("WINCH")
            await stream.run(pty, _read_from(_read_pty(pty), begin or 0, first), _HOLD_S, begin=begin or 0)
        finally:
            with contextlib.suppress(HermesError, TimeoutError):  # a target out of reach keeps it running too
                async with asyncio.timeout(_DETACH_S):
                    await pty.detach()


def _describe_end(status: JobStatus) -> str:
    return status.result.reason if status.result is not None else status.state.value


async def _read_job(job: Job, start: int) -> AsyncGenerator[bytes]:
    async with contextlib.aclosing(job.logs(start, follow=True)) as events:
        async for event in events:
            yield event.data


async def _read_from(source: AsyncGenerator[bytes], start: int, first: int) -> AsyncGenerator[bytes]:
    """Yield output that begins at ``start``, in pieces of which none has bytes on both sides of ``first``."""
    async with contextlib.aclosing(source):
        async for data in source:
            before = max(first - start, 0)
            start += len(data)
            for piece in (data[:before], data[before:]):
                if piece:
                    yield piece


async def _read_pty(pty: Pty) -> AsyncGenerator[bytes]:
    while data := await pty.read():
        yield data


class _Stream:
    """One stream to one client."""

    def __init__(self, socket: web.WebSocketResponse, offset: int, *, allow_input: bool) -> None:
        self._filter = flags.redactor.create_stream() if flags.redactor else None
        self._socket = socket
        self._first = offset
        self.begin = max(offset - self._filter.longest, 0) if self._filter else offset
        """Where the reading begins: a secret may begin before the first byte that is sent."""
        self._offset = 0
        self._source: Job | Pty | None = None
        self._allow_input = allow_input
        self._sent = 0
        self._acknowledged = 0
        self._moved = asyncio.Event()
        self._pending = 0
        self._typed: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(_TYPED)

    async def run(
        self,
        program: Job | Pty,
        source: AsyncGenerator[bytes],
        hold_s: float | None = None,
        *,
        begin: int | None = None,
    ) -> None:
        """Send the output of a program from ``begin`` on until it ends, or the client leaves.

        What may be the beginning of a secret is sent after ``hold_s`` seconds: a person who types waits for the echo.
        None waits for more, so that a program that pauses within a secret does not disclose it.
        """
        self._source = program
        self._offset = self.begin if begin is None else begin
        sending = asyncio.create_task(self._send_all(source, hold_s))
        receiving = asyncio.create_task(self._receive())
        writing = asyncio.create_task(self._write_typed())
        try:
            await asyncio.wait([sending, receiving], return_when=asyncio.FIRST_COMPLETED)
            for each in (receiving, sending):
                if each.done():
                    each.result()
        finally:
            await cancel_and_wait([sending, receiving, writing])

    async def _send_all(self, source: AsyncGenerator[bytes], hold_s: float | None) -> None:
        async with contextlib.aclosing(source):
            following = asyncio.ensure_future(anext(source, b""))
            try:
                while True:
                    held = self._filter.pending_bytes if self._filter else 0
                    done, _ = await asyncio.wait([following], timeout=hold_s if held else None)
                    if not done and self._filter:
                        await self._send(self._filter.flush(), 0)
                        continue
                    data = following.result()
                    if not data:
                        await self._send(self._filter.flush() if self._filter else b"", 0)
                        return
                    await self._send(self._filter.feed(data) if self._filter else data, len(data))
                    following = asyncio.ensure_future(anext(source, b""))
            finally:
                await cancel_and_wait([following])

    async def _send(self, data: bytes, read: int) -> None:
        """Send what ``read`` more bytes of the source became, in pieces with their offsets.

        Within data that a redaction made longer or shorter no offset is known, so a break there repeats the beginning.
        """
        start, self._offset = self._offset - self._pending, self._offset + read
        self._pending = self._filter.pending_bytes if self._filter else 0
        end = self._offset - self._pending
        if end <= self._first:
            return  # read only to find a secret that begins here
        is_plain = len(data) == end - start
        if is_plain and start < self._first:
            start, data = self._first, data[self._first - start :]
        for at in range(0, len(data), _PIECE):
            piece = data[at : at + _PIECE]
            while self._sent - self._acknowledged >= WINDOW:
                self._moved.clear()
                await self._moved.wait()
            last = end if at + len(piece) == len(data) else start
            await self._socket.send_bytes(_OFFSET.pack(start + at + len(piece) if is_plain else last) + piece)
            self._sent += len(piece)

    async def _receive(self) -> None:
        async for message in self._socket:
            if message.type is not WSMsgType.TEXT:
                return
            try:
                record: Any = json.loads(message.data)
                kind = record["type"]
                if kind == "ack":
                    self._acknowledged = min(self._acknowledged + max(int(record["bytes"]), 0), self._sent)
                    self._moved.set()
                elif kind == "input":
                    await self._queue(str(record["data"]))
                elif kind == "resize":
                    self._resize(int(record["rows"]), int(record["cols"]))
                else:
                    return
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                return

    async def _queue(self, text: str) -> None:
        """Queue input: a program that does not read it must not hold up the acknowledgements of its output."""
        if not self._allow_input or self._source is None:
            await _send(self._socket, type="refused", message="input is off: hermes-exec web --allow-input")
            return
        try:
            self._typed.put_nowait(partial(self._source.write, text.encode("utf-8", "replace")))
        except asyncio.QueueFull:
            await _send(self._socket, type="refused", message="the program does not read its input")

    def _resize(self, rows: int, cols: int) -> None:
        resize = getattr(self._source, "resize", None)
        if self._allow_input and resize is not None:
            with contextlib.suppress(asyncio.QueueFull):
                self._typed.put_nowait(partial(resize, max(2, min(rows, 500)), max(2, min(cols, 1000))))

    async def _write_typed(self) -> None:
        while True:
            write = await self._typed.get()
            try:
                await write()
            except HermesError as error:
                await _send(self._socket, type="refused", message=clean_text(str(error), flags.clean, 500))


async def _close(socket: web.WebSocketResponse, code: int) -> None:
    """Close a socket, also one whose client reads nothing."""
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await socket.close(code=code)


async def _send(socket: web.WebSocketResponse, **record: Any) -> None:
    with contextlib.suppress(ConnectionError):
        await socket.send_str(json.dumps(record))


def _parse_offset(text: str) -> int | None:
    """Return an offset; -1 for the end of the log; None if it is not valid."""
    if text == "tail":
        return -1
    return parse_number(text, most=10**18 - 1)
