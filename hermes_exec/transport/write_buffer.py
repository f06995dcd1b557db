"""What a channel has yet to send, for channels over descriptors that do not block.

Whoever writes to a channel is never held up, so what is not taken at once is kept here; whoever has much to
write waits until less of it is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LOW = 1 << 20
"""Bytes that may be kept before a writer waits."""
_BATCH = 64
"""Pieces sent at once; IOV_MAX is at least 1024 on Linux."""


class Outgoing:
    """Bytes in their order, how many there are, and who waits until they are fewer.

    Use it on one event loop, or, but for ``drained``, under a lock.
    """

    def __init__(self) -> None:
        self.size = 0
        self._parts: deque[bytes | memoryview] = deque()
        self._fewer: asyncio.Future[None] | None = None

    def add(self, parts: Sequence[bytes | memoryview]) -> None:
        """Keep pieces behind the others."""
        self._parts.extend(parts)
        self.size += sum(map(len, parts))

    def flush(self, send: Callable[[list[bytes | memoryview]], int]) -> bool:
        """Send until everything is taken, or less than was offered; True: nothing is left.

        ``send`` gives the number of bytes that were taken; what it raises leaves everything as it was.
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
        """Drop everything: nobody takes it any more, and nobody has to wait."""
        self._parts.clear()
        self.size = 0
        self._wake()

    async def drained(self) -> None:
        """Return when at most 1 MiB is kept."""
        if self.size > LOW:
            self._fewer = self._fewer or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._fewer)  # which other writers may wait for too

    def _wake(self) -> None:
        if self._fewer is not None and not self._fewer.done():
            self._fewer.set_result(None)
        self._fewer = None


def cut(parts: Sequence[bytes | memoryview], size: int, most: int) -> Iterator[list[bytes | memoryview]]:
    """The first ``size`` bytes of what is in parts, in pieces of at most ``most`` bytes, each of some parts."""
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
