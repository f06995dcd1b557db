"""Cancellation and cleanup for every package.

==================================  ======================================================================
``shield_to_completion(work)``      run ``work`` to completion; deliver a cancellation afterwards
``create_or_rollback(work, undo)``  return what ``work`` creates, or undo it when the caller is cancelled
``cancel_and_wait(tasks)``           cancel tasks, and wait until they are done
``gather_or_cancel(work)``          run all concurrently; the first failure cancels the others
``wait_done(task)``                 wait for a task; report whether the caller was cancelled meanwhile
``awaitable_context_manager``       let ``async with`` take a coroutine that opens something
==================================  ======================================================================
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from hermes_exec._arguments import check_call
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable
    from types import TracebackType

T = TypeVar("T")
P = ParamSpec("P")
M = TypeVar("M", bound=AbstractAsyncContextManager[Any])

CLEANUP_LIMIT_S = 10.0
"""Seconds that cleanup may take after the calling task was cancelled."""


async def wait_done(task: asyncio.Future[Any]) -> bool:
    """Wait until ``task`` is done, whatever its outcome; return whether the caller was cancelled meanwhile."""
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            cancelled = True
    return cancelled


async def cancel_and_wait(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel the tasks, and wait until they are done, whatever their outcomes."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def shield_to_completion(work: Coroutine[Any, Any, T], *, limit_s: float | None = CLEANUP_LIMIT_S) -> T:
    """Run ``work`` to completion and return its result. Cancellation is delivered after that.

    Args:
        work: what to run.
        limit_s: seconds that ``work`` may take after the caller was cancelled; then, or when the caller is cancelled
            once more, ``work`` is cancelled too. With None, it is always awaited.

    Raises:
        asyncio.CancelledError: the calling task was cancelled; ``work`` is done, or was cancelled (see ``limit_s``).
        Exception: the error of ``work``, unless the caller was cancelled.
    """
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve_error)
    if limit_s is None:
        if await wait_done(task):
            raise asyncio.CancelledError
        return task.result()
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=limit_s)
        raise
    finally:
        if not task.done():
            task.cancel()


def _retrieve_error(task: asyncio.Future[Any]) -> None:
    """Read the error of a task that is not awaited, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


async def create_or_rollback(work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]]) -> T:
    """Return what ``work`` creates. When the caller is cancelled meanwhile, call ``undo`` with it instead.

    Raises:
        asyncio.CancelledError: the calling task was cancelled, and nothing is left, within the limits of
            ``shield_to_completion``.
    """
    creating = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        await shield_to_completion(_roll_back(creating, undo))
        raise


async def _roll_back(creating: asyncio.Future[T], undo: Callable[[T], Awaitable[object]]) -> None:
    with contextlib.suppress(HermesError):
        await undo(await creating)


async def gather_or_cancel(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all of ``work`` concurrently and return the results in its order.

    When one fails, or the caller is cancelled, the others are cancelled, and are done when this returns.

    Raises:
        Exception: the first failure.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


class AwaitableContextManager(Coroutine[Any, Any, M]):
    """A coroutine that opens an object, and the ``async with`` of that object.

    It may be passed wherever a coroutine is taken (``create_task``, ``gather``).
    """

    __slots__ = ("_coroutine", "_opened")
    _opened: M

    def __init__(self, coroutine: Coroutine[Any, Any, M]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, M]:
        """Open the object; the caller closes it."""
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        """Forward to the coroutine; called by tasks."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Forward to the coroutine; called by tasks."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Close the coroutine, which is no longer awaited."""
        self._coroutine.close()

    async def __aenter__(self) -> M:
        """Open the object and enter it."""
        self._opened = await self._coroutine
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close the object."""
        return await self._opened.__aexit__(kind, error, trace)


def awaitable_context_manager(
    function: Callable[P, Coroutine[Any, Any, M]],
) -> Callable[P, AwaitableContextManager[M]]:
    """Let both ``await`` and ``async with`` take the coroutines of ``function``."""
    call = check_call(function)

    @wraps(function)
    def open_later(*args: P.args, **kwargs: P.kwargs) -> AwaitableContextManager[M]:
        return AwaitableContextManager(call(*args, **kwargs))

    return open_later
