"""The send buffer of a channel over a non-blocking descriptor.

``Channel.write`` never blocks, so bytes that the descriptor does not take are buffered here; a caller with much to
write awaits ``drained``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LOW = 1 << 20
"""Buffered bytes above which a writer waits."""
_BATCH = 64
"""Pieces sent at once; IOV_MAX is at least 1024 on Linux."""


class WriteBuffer:
    """A FIFO of bytes, with its size and the future of a waiting writer.

    Use it on one event loop, or under a lock, except for ``drained``.
    """

    def __init__(self) -> None:
        self.size = 0
        self._parts: deque[bytes | memoryview] = deque()
        self._fewer: asyncio.Future[None] | None = None

    def add(self, parts: Sequence[bytes | memoryview]) -> None:
        """Append pieces."""
        self._parts.extend(parts)
        self.size += sum(map(len, parts))

    def flush(self, send: Callable[[list[bytes | memoryview]], int]) -> bool:
        """Call ``send`` until the buffer is empty or it takes less than offered; return whether it is empty.

        ``send`` returns the number of bytes that it took; an exception from it leaves the buffer unchanged.
        """
        while self._parts:
            offered = list(islice(self._parts, _BATCH))
            taken = send(offered)
            self.size -= taken
            for part in offered:
                if taken < len(part):
                    self._parts[0] = memoryview(part)[taken:]
                    break
                taken -= len(self._parts.popleft())
            else:
                continue
            break
        if self.size <= LOW:
            self._wake()
        return not self._parts

    def clear(self) -> None:
        """Drop everything and wake a waiting writer; the channel has ended."""
        self._parts.clear()
        self.size = 0
        self._wake()

    async def drain(self) -> None:
        """Wait until at most 1 MiB is buffered."""
        if self.size > LOW:
            self._fewer = self._fewer or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._fewer)  # other writers may await it too

    def _wake(self) -> None:
        if self._fewer is not None and not self._fewer.done():
            self._fewer.set_result(None)
        self._fewer = None


def split(parts: Sequence[bytes | memoryview], size: int, most: int) -> Iterator[list[bytes | memoryview]]:
    """Yield the first ``size`` bytes of ``parts`` as lists of buffers of at most ``most`` bytes together."""
    piece: list[bytes | memoryview] = []
    room = min(most, size)
    for part in parts:
        rest = part
        while rest and room:
            taken = rest if len(rest) <= room else memoryview(rest)[:room]
            rest = memoryview(rest)[len(taken) :]
            piece.append(taken)
            room -= len(taken)
            size -= len(taken)
            if not room:
                yield piece
                piece, room = [], min(most, size)
    if piece:
        yield piece
