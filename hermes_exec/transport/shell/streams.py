"""The streams of one command: the status line before its output, flow control, and its input."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.guest.core.wire import CHUNK, STDERR, STDOUT, WINDOW
from hermes_exec.transport.shell.target import send_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec.backend import Channel, Exit

_NOISE = 8 << 10
"""Bytes of output before the command starts that are kept for an error's text."""


class CommandStreams:
    """The receiver of a command's channel, and the sender of its input."""

    def __init__(self, nonce: str, feed: Callable[[int, bytes], None], *, stdin: bool) -> None:
        loop = asyncio.get_running_loop()
        self.status_line: asyncio.Future[bytes] = loop.create_future()
        """The status line (``scripts.TELL``), without the nonce."""
        self.channel_exit: asyncio.Future[Exit] = loop.create_future()
        """The end of the channel."""
        self.command_exit: asyncio.Future[Exit] = loop.create_future()
        """The end of the command, which a target may report while its children still hold the outputs."""
        self.preamble = b""
        """Standard error before the status line."""
        self._nonce = nonce.encode() + b" "
        self._hand_on = feed
        self._channel: Channel | None = None
        self._unused = [0, 0, 0]  # bytes of each stream that are not acknowledged
        self._bounded = True
        self._paused = False
        self._held: list[memoryview] = []  # input that arrived before the channel
        self._eof = not stdin
        self._attached = asyncio.Event()
        self._deaf = False

    def attach(self, channel: Channel) -> None:
        """Attach the command's channel, and send the input queued so far."""
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
        """Detach from a finished command; later output of its children is dropped, so they can keep writing."""
        self._deaf = True
        self._attached.set()
        self.lift_window()

    def on_data(self, data: bytes, /) -> None:
        """Handle bytes of standard output."""
        self._feed(STDOUT, data)

    def on_stderr(self, data: bytes, /) -> None:
        """Handle bytes of standard error: the status line first, then the command's bytes."""
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
        """Handle the end of the command itself; its output up to then has arrived."""
        if not self.command_exit.done():
            self.command_exit.set_result(exit)

    def on_close(self, exit: Exit, /) -> None:
        """Handle the end of the channel."""
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
        """Acknowledge consumed bytes; the producer resumes when half of the window is free."""
        self._unused[stream] -= count
        if max(self._unused) <= WINDOW // 2:
            self._flow()

    def lift_window(self) -> None:
        """Accept all remaining output without flow control: no more than the target's buffers hold."""
        self._bounded = False
        self._flow()

    def _flow(self) -> None:
        if self._paused:
            self._paused = False
            if self._channel is not None and not self.channel_exit.done():
                self._channel.resume()

    async def write(self, data: bytes) -> None:
        """Send input, waiting while more than 4 MiB are unsent; input without a reader is dropped."""
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
        """End the input."""
        self._eof = True
        if self._channel is not None:
            self._channel.write_eof()
