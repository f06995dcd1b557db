"""The engine's frames: each has a header of 8 bytes that says which stream it belongs to and how long it is.

Bytes are handed on in the pieces in which they came; only a torn header is ever put together again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STDOUT, STDERR, ENGINE = 1, 2, 3
"""Streams; the last one is the engine's own, for its errors."""
_HEADER = struct.Struct(">B3xI")


class Demux:
    """Cuts what comes from the engine into pieces of streams; ``take`` gives one at a time."""

    def __init__(self, deliver: Callable[[int, bytes, bool], None]) -> None:
        self._deliver = deliver  # stream, bytes, and whether its frame is whole with them and began with them
        self._head = b""
        self._kind = 0
        self._size = 0
        self._left = 0
        self._rest = b""
        self._held = False

    def feed(self, data: bytes) -> None:
        """Hand on what is in ``data``, unless or until held."""
        self._rest = self._rest + data if self._rest else data
        self._go_on()

    def hold(self) -> None:
        """Hand on nothing more until ``release``."""
        self._held = True

    def release(self) -> None:
        """Hand on again, beginning with what was kept."""
        self._held = False
        self._go_on()

    def _go_on(self) -> None:
        data, self._rest = self._rest, b""
        at, end = 0, len(data)
        while at < end:
            if self._held:
                self._rest = data[at:]
                return
            if self._left:
                stop = min(at + self._left, end)
                whole = self._left == self._size == stop - at
                self._left -= stop - at
                piece = data[at:stop]
                at = stop
                self._deliver(self._kind, piece, whole)
                continue
            stop = at + _HEADER.size - len(self._head)
            self._head += data[at:stop]
            at = stop
            if len(self._head) == _HEADER.size:
                self._kind, self._size = _HEADER.unpack(self._head)
                self._left = self._size
                self._head = b""
