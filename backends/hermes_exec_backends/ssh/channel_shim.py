"""What stands in for parts of a ``paramiko.Channel``, so that its thread tells the event loop and keeps nothing."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _nobody() -> None:
    """Nobody wants to know yet."""


class Feed:
    """What came on one stream and the loop has not taken; stands in for paramiko's BufferedPipe."""

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self.tell: Callable[[], None] = _nobody
        """What is called when something has come."""

    def feed(self, data: bytes) -> None:
        """Bytes, on paramiko's thread."""
        self._parts.append(data)
        self.tell()

    def put(self, data: bytes) -> None:
        """Bytes, on the loop, by somebody who tells of them."""
        self._parts.append(data)

    def close(self) -> None:
        """No more will come."""
        self.tell()

    def take(self) -> bytes:
        """Everything that is there. On the loop."""
        parts = [self._parts.popleft() for _ in range(len(self._parts))]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __len__(self) -> int:
        return len(self._parts)


@dataclass(frozen=True, slots=True)
class Stream:
    """Where the packets of a channel go."""

    out: Feed
    err: Feed
    told: Callable[[], None]
    """Called once for all data that came at once."""
    room: Callable[[int], None]
    """Called when the host takes so many more bytes."""


class Room(threading.Condition):
    """The condition that paramiko notifies when the host takes more."""

    def __init__(self, lock: Any, tell: Callable[[], None]) -> None:
        super().__init__(lock)
        self._told = tell

    def notify_all(self) -> None:
        """The window grew, or the channel closed; on paramiko's thread."""
        super().notify_all()
        self._told()


class Open:
    """Stands in for a transport's ``clear_to_send``: nobody waits, ``Packets`` keeps what has to."""

    def is_set(self) -> bool:
        """Send."""
        return True

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002  nobody waits
        """Send."""
        return True

    def set(self) -> None:
        """It is."""

    def clear(self) -> None:
        """It stays."""
