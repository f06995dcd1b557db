"""Finalizers: a warning when an open object is garbage-collected, and its closing when the interpreter exits."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

EXIT_S = 5.0
"""Seconds that closing the open objects may take."""


class Closable(Protocol):
    """An object that can be closed."""

    async def close(self) -> None:
        """Release everything; safe to call twice."""


class Finalizers:
    """The open objects of one event loop."""

    def __init__(self) -> None:
        self._open: dict[Closable, weakref.finalize[..., object]] = {}

    def register(self, core: Closable, face: object, name: str) -> None:
        """Close ``core`` at the exit; warn when ``face``, its blocking form, is garbage-collected before that."""
        finalizer = weakref.finalize(face, warnings.warn, f"{name} was not closed", ResourceWarning)
        finalizer.atexit = False
        self._open[core] = finalizer

    def unregister(self, core: Closable) -> None:
        """Remove an object that was closed in time."""
        finalizer = self._open.pop(core, None)
        if finalizer is not None:
            finalizer.detach()

    def clear(self) -> None:
        """Remove all objects, which belong to another process after a fork."""
        for core in list(self._open):
            self.unregister(core)

    async def close(self) -> None:
        """Close all objects concurrently, then end all other tasks of the loop."""
        asyncio.get_running_loop().set_default_executor(_AtOnce())
        closing = [asyncio.ensure_future(core.close()) for core in self._open]
        self.clear()
        rest = asyncio.all_tasks() - {asyncio.current_task(), *closing}
        await _wait(closing)
        for task in rest:
            task.cancel()
        await _wait(rest)


async def _wait(tasks: set[asyncio.Task[None]] | list[asyncio.Task[None]]) -> None:
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=EXIT_S)
        for task in done:
            with contextlib.suppress(asyncio.CancelledError):
                task.exception()  # retrieved, so that asyncio does not log it


class _AtOnce(ThreadPoolExecutor):
    """An executor that runs each call at once in the calling thread, since Python starts no threads at the exit."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call ``fn`` at once."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  as an executor does
            future.set_exception(error)
        return future
