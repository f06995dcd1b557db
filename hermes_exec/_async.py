"""Cancellation and cleanup: work that ends before its canceller goes on, and calls that open something."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable
    from types import TracebackType

T = TypeVar("T")
P = ParamSpec("P")
M = TypeVar("M", bound=AbstractAsyncContextManager[Any])


async def settled(task: asyncio.Future[Any]) -> bool:
    """Wait until it has ended, whatever it ended with; gives whether the caller was cancelled meanwhile."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return cancelled


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Do it, and give what it gives. Where the caller is cancelled meanwhile, it is done first all the same.

    Raises:
        Exception: that of ``work``, if nobody cancelled the caller.
    """
    task = asyncio.ensure_future(work)
    if not await settled(task):
        return task.result()
    if not task.cancelled():
        task.exception()  # looked at, so that asyncio does not complain of it
    raise asyncio.CancelledError


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Do all of it side by side, and give what it gives in its order.

    Where one of it fails, or the caller is cancelled, the others are cancelled, and have ended when this ends.

    Raises:
        Exception: the first failure.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


class Opening(Coroutine[Any, Any, M]):
    """A coroutine in every respect (``create_task``, ``gather``), and the ``async with`` of what it gives."""

    __slots__ = ("_coroutine", "_opened")
    _opened: M

    def __init__(self, coroutine: Coroutine[Any, Any, M]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, M]:
        """Open it; closing is up to the caller."""
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        """See ``Coroutine``; tasks call it."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """See ``Coroutine``; tasks call it."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """See ``Coroutine``: it is not to be awaited any more."""
        self._coroutine.close()

    async def __aenter__(self) -> M:
        """Open it."""
        self._opened = await self._coroutine
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close what was opened."""
        return await self._opened.__aexit__(kind, error, trace)


def opens(function: Callable[P, Coroutine[Any, Any, M]]) -> Callable[P, Opening[M]]:
    """Let ``async with`` take what the coroutines of ``function`` give, without an ``await``."""

    @wraps(function)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Opening[M]:
        return Opening(function(*args, **kwargs))

    return opening


_FINISH_S = 10.0


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Do ``work`` to its end; who is cancelled meanwhile learns it after that.

    Raises:
        asyncio.CancelledError: the task was cancelled; ``work`` has ended, or was cancelled as well because it took
            seconds more, or because the task was cancelled once more.
    """
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing], timeout=_FINISH_S)
        raise
    finally:
        if not doing.done():
            doing.cancel()
        doing.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be left to be told


async def made(work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]]) -> T:
    """Give what ``work`` makes, unless the task is cancelled meanwhile: then ``undo`` is told of what was made.

    Raises:
        asyncio.CancelledError: the task was cancelled, and nothing is left, as far as ``finished`` says.
    """
    making = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        await finished(_undone(making, undo))
        raise


async def _undone(making: asyncio.Future[T], undo: Callable[[T], Awaitable[object]]) -> None:
    with contextlib.suppress(HermesError):
        await undo(await making)
