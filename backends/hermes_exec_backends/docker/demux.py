"""The engine's frames: each has a header of 8 bytes with its stream and its length.

The engine splits a stream into frames of at most 32 KiB. Consecutive data of one stream is delivered as one piece,
because the cost of all further steps depends on the number of pieces.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STDOUT, STDERR, ENGINE = 1, 2, 3
"""Stream numbers; the last one carries the engine's own errors."""
_HEADER = struct.Struct(">B3xI")


class Demux:
    """A demultiplexer of the engine's frames that delivers one piece for each run of frames of one stream."""

    def __init__(self, deliver: Callable[[int, bytes, bool], None]) -> None:
        self._deliver = deliver  # stream, bytes, and whether they are exactly one whole frame
        self._head = b""
        self._kind = 0
        self._size = 0
        self._left: int = 0
        self._data = b""
        self._at = 0
        self._held = False

    def feed(self, data: bytes) -> None:
        """Deliver the content of ``data``, unless held, and up to a hold."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0
        self._go_on()

    @property
    def partial(self) -> bool:
        """Return whether an incomplete frame was received."""
        return bool(self._head or self._left)

    def hold(self) -> None:
        """Stop delivering until ``release``."""
        self._held = True

    def release(self) -> None:
        """Continue delivering, beginning with the held data."""
        self._held = False
        self._go_on()

    def _go_on(self) -> None:
        while self._at < len(self._data) and not self._held:
            kind, data, whole = self._collect()
            if data:
                self._deliver(kind, data, whole)

    def _collect(self) -> tuple[int, bytes, bool]:
        """Collect the data of one stream, up to the first byte of another one."""
        data = memoryview(self._data)
        pieces: list[memoryview] = []
        kind, whole = self._kind, False
        while self._at < len(data):
            if self._left:
                if pieces and kind != self._kind:
                    break
                kind = self._kind
                stop = min(self._at + self._left, len(data))
                whole = stop - self._at == self._size
                self._left -= stop - self._at
                pieces.append(data[self._at : stop])
            else:
                stop = min(self._at + _HEADER.size - len(self._head), len(data))
                self._head += data[self._at : stop]
                if len(self._head) == _HEADER.size:
                    self._kind, self._size = _HEADER.unpack(self._head)
                    self._left = self._size
                    self._head = b""
            self._at = stop
        return kind, b"".join(pieces), whole and len(pieces) == 1
