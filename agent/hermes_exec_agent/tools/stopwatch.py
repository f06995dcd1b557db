"""Measure how long a call takes, without the time in which a person is asked about it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Generator

_running: ContextVar[tuple[Stopwatch, ...]] = ContextVar("the stopwatches that a task runs in", default=())


class Stopwatch:
    """``with Stopwatch() as watch:`` measures a block, and the tasks that begin in it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._ended: float | None = None
        self._paused_s = 0.0
        self._pauses = 0
        """Pauses that last: a script, or another conversation, may ask several questions at once."""
        self._pause_began = 0.0

    def __enter__(self) -> Self:
        self._token = _running.set((*_running.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _running.reset(self._token)
        self._ended = time.monotonic()

    @property
    def paused_s(self) -> float:
        """Seconds in which it stood still."""
        return self._paused_s + (time.monotonic() - self._pause_began if self._pauses else 0.0)

    @property
    def elapsed_s(self) -> float:
        """Seconds in which it ran."""
        return (time.monotonic() if self._ended is None else self._ended) - self._began - self.paused_s

    def pause(self) -> None:
        """Stand still until as many calls of `resume`."""
        if not self._pauses:
            self._pause_began = time.monotonic()
        self._pauses += 1

    def resume(self) -> None:
        """End a `pause`."""
        self._pauses -= 1
        if not self._pauses:
            self._paused_s += time.monotonic() - self._pause_began


@contextmanager
def pause_stopwatches() -> Generator[None]:
    """Let every stopwatch that this task runs in stand still for the block."""
    watches = _running.get()
    for watch in watches:
        watch.pause()
    try:
        yield
    finally:
        for watch in watches:
            watch.resume()
