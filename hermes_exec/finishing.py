"""Work that must not stop half done when the task that waits for it is cancelled: making a place, and ending it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")
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
