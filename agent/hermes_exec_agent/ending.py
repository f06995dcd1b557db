"""What has to be done to its end, however often whoever waits for it is cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


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
