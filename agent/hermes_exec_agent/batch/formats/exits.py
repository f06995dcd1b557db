"""Exits of the person's code: one in a task ends that task, where asyncio would end the loop, and the shard with it."""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

_contains = ContextVar("contains", default=False)
"""Whether tasks that begin here are of the person's code; tasks inherit it from the one that starts them."""


@contextlib.contextmanager
def contain_exits() -> Generator[None]:
    """Let tasks that the block starts fail with a ``RuntimeError`` in place of ``SystemExit``."""
    loop = asyncio.get_running_loop()
    factory: Any = loop.get_task_factory()
    if not isinstance(factory, _TaskFactory):
        loop.set_task_factory(cast("Any", _TaskFactory(factory)))  # versions of Python differ in its type
    token = _contains.set(True)
    try:
        yield
    finally:
        _contains.reset(token)


def is_cancelling() -> bool:
    """Whether the current task was requested to end, so that a ``CancelledError`` is not from the person's code."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _TaskFactory:
    """Starts tasks as ``inner`` does."""

    def __init__(self, inner: Callable[..., asyncio.Task[Any]] | None) -> None:
        self._inner = inner or _start_task

    def __call__(self, loop: Any, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        if not _contains.get():
            return self._inner(loop, work, **options)
        task = self._inner(loop, _fail_on_exit(work), **options)
        task.add_done_callback(lambda _: work.close())  # it did not begin if the task was cancelled before
        return task


def _start_task(loop: Any, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(work, loop=loop, **options)


async def _fail_on_exit(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
