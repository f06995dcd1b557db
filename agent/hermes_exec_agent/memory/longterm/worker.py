"""A thread for work that may block, and that never keeps the program from ending."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Worker:
    """One daemon thread, which does its work in order. The pools of the standard library join theirs at exit."""

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._pending = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Count the pieces of work that are not done."""
        return self._pending

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do ``work`` after all that was submitted before."""
        future: Future[T] = Future()
        with self._lock:
            self._pending += 1
        self._queue.put((work, future))
        return future

    def close(self, wait_s: float) -> None:
        """End after the work so far; wait for at most ``wait_s`` seconds."""
        self._queue.put(None)
        self._thread.join(wait_s)

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            work, future = entry
            try:
                if future.set_running_or_notify_cancel():
                    future.set_result(work())
            except BaseException as error:  # noqa: BLE001  the waiting thread gets it
                future.set_exception(error)
            finally:
                with self._lock:
                    self._pending -= 1
