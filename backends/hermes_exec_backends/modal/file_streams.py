"""Transfer of large files, each by an exec of its own, for the terminal's file operations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.modal.sandbox import Collector

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from hermes_exec.backend import Channel, Exit
    from hermes_exec_backends.modal.sandbox import Sandbox

_STALLED_S = 60.0
"""Seconds to wait for the next bytes of a file."""
_HIGH = 8 << 20
"""The number of received and unused bytes at which receiving stops."""
# Modal cannot end an exec, so the end of its input ends it, even while its output is not read.
_FETCH = r"""
exec 3<&0
cat -- "$0" 3<&- & cat=$!
{ read -r _ <&3; kill $cat; } >/dev/null 2>&1 & watch=$!
wait $cat; code=$?
kill $watch 2>/dev/null
exit $code
"""
_POUR = '[ -p "$0" ] && exec cat >"$0"'


class FileStreams:
    """The file transfers of the open sandbox."""

    piece = 1 << 20

    def __init__(self, sandbox: Callable[[], Sandbox]) -> None:
        self._sandbox = sandbox

    async def fetch(self, path: str) -> AsyncGenerator[bytes]:
        """Yield the content of a file as it arrives.

        Raises:
            PlaceUnavailable: it did not arrive, or not all of it.
        """
        incoming = _Incoming()
        channel = incoming.channel = await self._sandbox().spawn(["sh", "-c", _FETCH, path], incoming, {})
        try:
            while pieces := await incoming.take():
                for piece in pieces:
                    yield piece
        finally:
            channel.abandon()
        _check(incoming.exit)

    async def pour(self, path: str, pieces: AsyncIterator[bytes | memoryview]) -> None:
        """Write all ``pieces`` into a named pipe of the sandbox.

        Raises:
            PlaceUnavailable: not all of it was accepted.
        """
        told = Collector()
        channel = await self._sandbox().spawn(["sh", "-c", _POUR, path], told, {}, bulk=True)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_STALLED_S) as limit:
                async for piece in pieces:
                    if told.ended.done():
                        break
                    channel.write(piece)
                    await channel.drain()
                    limit.reschedule(loop.time() + _STALLED_S)
                channel.write_eof()
                _check(await told.ended)
        except TimeoutError:
            raise _build_stall_error() from None
        finally:
            channel.abandon()


class _Incoming:
    """The received and unused data of a file."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.exit: Exit | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._changed = asyncio.Event()

    def on_data(self, data: bytes, /) -> None:
        """Add received data."""
        self._pieces.append(data)
        self._size += len(data)
        self._changed.set()
        if self._size > _HIGH and self.channel is not None:
            self.channel.pause()

    def on_stderr(self, data: bytes, /) -> None:
        """Ignore the error output."""

    def on_close(self, exit: Exit, /) -> None:
        """Mark the end of the data."""
        self.exit = exit
        self._changed.set()

    async def take(self) -> list[bytes]:
        """Wait for data; return all that was received since the last call, or nothing at the end."""
        if not self._pieces and self.exit is None:
            self._changed.clear()
            try:
                async with asyncio.timeout(_STALLED_S):
                    await self._changed.wait()
            except TimeoutError:
                raise _build_stall_error() from None
        pieces, self._pieces = self._pieces, []
        if self._size > _HIGH and self.channel is not None:
            self.channel.resume()
        self._size = 0
        return pieces


def _check(exit: Exit | None) -> None:
    if exit is None or exit.code != 0:
        raise PlaceUnavailable(f"modal: a file was not moved: {exit.lost if exit and exit.lost else exit}")


def _build_stall_error() -> PlaceUnavailable:
    return PlaceUnavailable(f"modal: nothing of a file moved for {_STALLED_S:g} s")
