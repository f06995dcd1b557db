"""A queue that is fair to those who wait: first come, first served for each key, and the keys take turns."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by key. Whoever asks a thousand times delays those who ask once by one turn, not by a thousand."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[T]] = {}  # in the order of the keys' turns

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[T]:
        """Everything, in the order in which it is to be served; a snapshot, so items may be taken meanwhile."""
        lines = [list(line) for line in self._lines.values()]
        longest = max(map(len, lines), default=0)
        return iter([line[turn] for turn in range(longest) for line in lines if turn < len(line)])

    def add(self, key: str, item: T) -> None:
        """Queue an item behind those of its key."""
        self._lines.setdefault(key, deque()).append(item)

    def serve(self, key: str, item: T) -> None:
        """Take an item out; its key's next turn comes after those of all others."""
        line = self._lines.pop(key)
        line.remove(item)
        if line:
            self._lines[key] = line

    def discard(self, key: str, item: T) -> None:
        """Take an item out that wants nothing any more; its key keeps its turn. Safe when it is not there."""
        line = self._lines.get(key)
        if line is not None and item in line:
            line.remove(item)
            if not line:
                del self._lines[key]
