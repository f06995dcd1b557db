"""The streams of one command: our own line before its output, flow control, and its input."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.guest.core.wire import CHUNK, STDERR, STDOUT, WINDOW
from hermes_exec.transport.shell.target import send_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec.backend import Channel, Exit

_NOISE = 8 << 10
"""Bytes of what the place says before the command starts that are kept for an error's text."""


class CommandStreams:
    """The receiver of a command's channel, and the way to its input."""

    def __init__(self, nonce: str, feed: Callable[[int, bytes], None], *, stdin: bool) -> None:
        loop = asyncio.get_running_loop()
        self.status_line: asyncio.Future[bytes] = loop.create_future()
        """Our own line (``scripts.TELL``), without the nonce."""
        self.channel_exit: asyncio.Future[Exit] = loop.create_future()
        """The channel's."""
        self.command_exit: asyncio.Future[Exit] = loop.create_future()
        """The command's own end, which a place may tell while its children still hold the outputs."""
        self.preamble = b""
        """What was said on standard error while there was no such line."""
        self._nonce = nonce.encode() + b" "
        self._hand_on = feed
        self._channel: Channel | None = None
        self._unused = [0, 0, 0]  # bytes of each stream that have not been used up
        self._bounded = True
        self._paused = False
        self._held: list[memoryview] = []  # input from before there is a channel
        self._eof = not stdin
        self._attached = asyncio.Event()
        self._deaf = False

    def attach(self, channel: Channel) -> None:
        """The command's channel is there."""
        self._channel = channel
        if self._paused:
            channel.pause()
        if self._held:
            channel.write(*self._held)
            self._held.clear()
        if self._eof:
            channel.write_eof()
        self._attached.set()

    def detach(self) -> None:
        """The command is over; what still comes of its children is dropped, so that they can write on."""
        self._deaf = True
        self._attached.set()
        self.lift_window()

    def on_data(self, data: bytes, /) -> None:
        """Standard output."""
        self._feed(STDOUT, data)

    def on_stderr(self, data: bytes, /) -> None:
        """Standard error: our own line first, the command's bytes behind it."""
        if not self.status_line.done():
            noise, nonce, rest = (self.preamble + data).partition(self._nonce)
            line, end, data = rest.partition(b"\n")
            if not end:
                self.preamble = nonce + rest if nonce else noise[-_NOISE:]
                return
            self.status_line.set_result(line)
        if data:
            self._feed(STDERR, data)

    def on_exit(self, exit: Exit, /) -> None:
        """The command itself has ended, and its output up to then is here."""
        if not self.command_exit.done():
            self.command_exit.set_result(exit)

    def on_close(self, exit: Exit, /) -> None:
        """The channel is at its end."""
        self.channel_exit.set_result(exit)
        self.on_exit(exit)

    def _feed(self, stream: int, data: bytes) -> None:
        if self._deaf:
            return
        self._unused[stream] += len(data)
        self._hand_on(stream, data)
        if self._bounded and not self._paused and max(self._unused) > WINDOW:
            self._paused = True
            if self._channel is not None:
                self._channel.pause()

    def acknowledge(self, stream: int, count: int) -> None:
        """So many bytes are used up; the producer goes on when half of the window is free."""
        self._unused[stream] -= count
        if max(self._unused) <= WINDOW // 2:
            self._flow()

    def lift_window(self) -> None:
        """Take all that still comes, whoever reads it: no more than the place's buffers hold."""
        self._bounded = False
        self._flow()

    def _flow(self) -> None:
        if self._paused:
            self._paused = False
            if self._channel is not None and not self.channel_exit.done():
                self._channel.resume()

    async def write(self, data: bytes) -> None:
        """Send input, waiting while more than 4 MiB are on the way; what nobody reads is dropped."""
        view = memoryview(data)
        for start in range(0, len(view), CHUNK):
            piece = view[start : start + CHUNK]
            if self.command_exit.done():
                return
            if self._channel is not None:
                await send_all(self._channel, piece)
            else:
                self._held.append(piece)
                if sum(map(len, self._held)) > WINDOW:
                    await self._attached.wait()

    def write_eof(self) -> None:
        """The input ends here."""
        self._eof = True
        if self._channel is not None:
            self._channel.write_eof()
