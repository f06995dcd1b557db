"""Bulk transfer: content that travels by the vendor's own file transfer instead of the link, where that is faster.

The vendor's transfer is not trusted: in both directions the SHA-256 of the content is compared with the other side's
before a file gets its name. Content that does not get through is sent over the link, from where the transfer stopped.
"""

from __future__ import annotations

import asyncio
import io
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from hermes_exec._async import cancel_and_wait
from hermes_exec.backend import PipeTransfer
from hermes_exec.errors import HermesError, ProtocolError
from hermes_exec.guest.files import staging
from hermes_exec.guest.files.safe_paths import sha256
from hermes_exec.guest.files.tree_stream import DIGEST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from hermes_exec.backend import BulkTransfer, PieceTransfer
    from hermes_exec.files.requests import FileStream

_AHEAD = 3
"""Pieces that are transferred at the same time."""
_BATCH = 2 << 20


def transfer_mode(mover: BulkTransfer | None) -> bool | str:
    """Return the transfer mode of a request: how the guest is to receive content."""
    return "pipe" if isinstance(mover, PipeTransfer) else mover is not None


async def _place(stream: FileStream) -> tuple[int, str]:
    """Read the size of a file and the path that the guest sends; ``0, ""`` if the stream ended instead."""
    head = await stream.read_exactly(staging.PLACE.size)
    if len(head) < staging.PLACE.size:
        return 0, ""
    size, length = staging.PLACE.unpack(head)
    try:
        return size, (await stream.read_exactly(length)).decode()
    except ValueError:
        raise ProtocolError("the guest sent an invalid path") from None


async def send(
    stream: FileStream, mover: BulkTransfer, pieces: AsyncIterator[bytes | memoryview], sent: Callable[[int], object]
) -> bool:
    """Send content, and call ``sent`` with the size of each piece that arrived.

    Return False when it did not get through; the guest then answers that the content must be sent over the link.
    """
    _, path = await _place(stream)
    if not isinstance(mover, PipeTransfer):
        await _send_files(stream, mover, path, pieces, sent)
        return True

    async def count_pieces() -> AsyncIterator[bytes | memoryview]:
        async for piece in pieces:
            yield piece
            sent(len(piece))

    try:
        if path:
            await mover.pour(path, count_pieces())
    except (HermesError, OSError):
        return False
    return bool(path)


async def _send_files(
    stream: FileStream,
    mover: PieceTransfer,
    folder: str,
    pieces: AsyncIterator[bytes | memoryview],
    sent: Callable[[int], object],
) -> None:
    """Send pieces, each as a file of its own, or over the link if that fails."""
    under_way: deque[tuple[bytes, asyncio.Task[None]]] = deque()

    async def settle() -> None:
        data, task = under_way[0]
        await asyncio.wait([task])
        there = bool(folder) and _is_done(task)
        under_way.popleft()
        await stream.call.write(staging.PIECE.pack(there, len(data)))
        if not there:
            await stream.call.write(data)
        sent(len(data))

    number = 0
    try:
        async for piece in pieces:
            data = bytes(piece)
            work = mover.put(f"{folder}/{number}", data) if folder else asyncio.sleep(0)
            under_way.append((data, asyncio.ensure_future(work)))
            number += 1
            if stream.is_answered:
                return
            if len(under_way) == _AHEAD:
                await settle()
        while under_way and not stream.is_answered:
            await settle()
    finally:
        await cancel_and_wait(task for _, task in under_way)


def _is_done(task: asyncio.Task[None]) -> bool:
    """Return whether the piece got through; raise any error that does not come from the vendor's transfer."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, HermesError | OSError):
        raise error
    return error is None and not task.cancelled()


class IncomingFile(Protocol):
    """The destination of a fetched file; it takes the content in order."""

    @property
    def size(self) -> int:
        """The number of bytes that were taken."""
        ...

    async def take(self, pieces: list[bytes], /) -> None:
        """Append the next bytes."""

    async def restart(self) -> None:
        """Discard the bytes that were taken."""

    async def digest(self) -> bytes:
        """Return the SHA-256 of the bytes that were taken."""
        ...


async def fetch(stream: FileStream, mover: BulkTransfer, arrival: IncomingFile) -> bytes:
    """Fetch the file that the guest offers, if it offers one; the stream then carries the bytes that are missing.

    Return the hash that the whole file must have when only its beginning was fetched, else ``b""``.
    """
    size, path = await _place(stream)
    if not path:
        return b""
    try:
        await _fetch_file(mover.fetch(path), size, arrival)
        start = size
    except (HermesError, OSError):
        start = arrival.size
    told = await stream.read_exactly(DIGEST)
    if start >= size:
        start = staging.NOTHING if told == await arrival.digest() else 0
    if not start:
        await arrival.restart()
    await stream.call.write(staging.START.pack(start))
    stream.call.write_eof()
    return told if 0 < start < size else b""


async def _fetch_file(chunks: AsyncIterator[bytes], size: int, arrival: IncomingFile) -> None:
    """Pass a file on in batches, each while the next one is received."""
    left = size
    batch: list[bytes] = []
    count = 0
    taking = asyncio.ensure_future(arrival.take([]))
    try:
        async for chunk in chunks:
            batch.append(chunk)
            count += len(chunk)
            left -= len(chunk)
            if left < 0:
                raise OSError("it is larger than announced")
            if count >= _BATCH:
                await taking
                taking = asyncio.ensure_future(arrival.take(batch))
                batch, count = [], 0
    finally:
        await taking
        await arrival.take(batch)  # also after a failure, since the bytes that arrived are valid


class _InMemory:
    """A destination in memory: one growing buffer, since joining many pieces costs as much as receiving them."""

    def __init__(self) -> None:
        self.content = io.BytesIO()
        self.size = 0
        self._digest = sha256()

    async def take(self, pieces: list[bytes]) -> None:
        hashing = asyncio.ensure_future(asyncio.to_thread(_hash, self._digest, pieces))
        for piece in pieces:
            self.size += self.content.write(piece)
        await hashing

    async def restart(self) -> None:
        self.content, self.size, self._digest = io.BytesIO(), 0, sha256()

    async def digest(self) -> bytes:
        return bytes(self._digest.digest())


def _hash(digest: Any, pieces: list[bytes]) -> None:
    for piece in pieces:
        digest.update(piece)


async def fetch_all(stream: FileStream, mover: BulkTransfer) -> bytes | None:
    """Read a whole file; None where the beginning that the mover fetched differs from the file in the target."""
    arrival = _InMemory()
    told = await fetch(stream, mover, arrival)
    if not told:
        return arrival.content.getvalue() or await stream.read_all()
    await stream.consume_with(arrival.take)
    return arrival.content.getvalue() if told == await arrival.digest() else None


async def send_all(stream: FileStream, mover: BulkTransfer, data: bytes) -> None:
    """Send content that is in memory, and its hash."""
    digest = sha256()
    hashing = asyncio.ensure_future(asyncio.to_thread(digest.update, data))

    async def pieces() -> AsyncIterator[memoryview]:
        view = memoryview(data)
        for start in range(0, len(data), mover.piece):
            yield view[start : start + mover.piece]

    try:
        there = await send(stream, mover, pieces(), lambda _: None)
    finally:
        await hashing
    if there:
        await stream.call.write(digest.digest())
    stream.call.write_eof()
