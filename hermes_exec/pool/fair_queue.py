"""A fair queue: first come, first served within a key, and the keys take turns."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by key. A key with a thousand items delays the other keys by one turn, not by a thousand."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[T]] = {}  # in the order of the keys' turns

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[T]:
        """Iterate over a snapshot of all items in serving order, so that items may be removed meanwhile."""
        lines = [list(line) for line in self._lines.values()]
        longest = max(map(len, lines), default=0)
        return iter([line[turn] for turn in range(longest) for line in lines if turn < len(line)])

    def add(self, key: str, item: T) -> None:
        """Queue an item behind those of its key."""
        self._lines.setdefault(key, deque()).append(item)

    def serve(self, key: str, item: T) -> None:
        """Remove an item; its key moves behind all other keys."""
        line = self._lines.pop(key)
        line.remove(item)
        if line:
            self._lines[key] = line

    def discard(self, key: str, item: T) -> None:
        """Remove an item that no longer waits; its key keeps its turn. Does nothing when the item is absent."""
        line = self._lines.get(key)
        if line is not None and item in line:
            line.remove(item)
            if not line:
                del self._lines[key]
