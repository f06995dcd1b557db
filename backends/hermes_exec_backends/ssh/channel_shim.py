"""Replacements for parts of ``paramiko.Channel`` that make its thread notify the event loop and store no data."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _nobody() -> None:
    """Ignore the event: no receiver is attached yet."""


class Feed:
    """Received data of one stream that the loop has not taken; replaces paramiko's BufferedPipe."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self.tell: Callable[[], None] = _nobody
        """Called when data was received."""

    def feed(self, data: bytes) -> None:
        """Add bytes, on paramiko's thread."""
        self._parts.append(data)
        self.tell()

    def put(self, data: bytes) -> None:
        """Add bytes, on the loop; the caller sends the notification."""
        self._parts.append(data)

    def close(self) -> None:
        """Mark the end of the data."""
        self.tell()

    def take(self) -> bytes:
        """Return and remove all data. Call it on the loop."""
        parts = [self._parts.popleft() for _ in range(len(self._parts))]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __len__(self) -> int:
        return len(self._parts)


@dataclass(frozen=True, slots=True)
class Stream:
    """The destination of a channel's packets."""

    out: Feed
    err: Feed
    told: Callable[[], None]
    """Called once for all data received together."""
    room: Callable[[int], None]
    """Called with the number of bytes by which the host's window grew."""


class Room(threading.Condition):
    """The condition that paramiko notifies when the host's window grows."""

    def __init__(self, lock: Any, tell: Callable[[], None]) -> None:
        super().__init__(lock)
        self._told = tell

    def notify_all(self) -> None:
        """Report that the window grew or the channel closed; on paramiko's thread."""
        super().notify_all()
        self._told()


class Open:
    """A replacement for a transport's ``clear_to_send`` that never blocks: ``Packets`` queues packets instead."""

    def is_set(self) -> bool:
        """Return true: sending is always possible."""
        return True

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002  there is nothing to wait for
        """Return true at once: sending is always possible."""
        return True

    def set(self) -> None:
        """Do nothing: the event is always set."""

    def clear(self) -> None:
        """Do nothing: the event stays set."""
