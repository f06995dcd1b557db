"""Work on local files off the event loop: one thread for one transfer, one step after the other."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

P = ParamSpec("P")
R = TypeVar("R")


class FileThread:
    """A thread that runs steps in the order in which they were submitted."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "hermes-exec-files")
        self._last: Callable[[], object] | None = None

    def submit(self, step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Start a step; its error is raised where the future is awaited, and ignored if it is not."""
        future = self._loop.run_in_executor(self._thread, lambda: step(*args, **kwargs))
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    async def run(self, step: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Start a step and wait for it."""
        return await self.submit(step, *args, **kwargs)

    async def acquire(self, close: Callable[[R], object], make: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Create an object that the last step closes with ``close``, also when the caller is cancelled."""

        def create() -> R:
            it = make(*args, **kwargs)
            self._last = lambda: close(it)
            return it

        return await self.submit(create)

    def set_final_step(self, step: Callable[[], object]) -> None:
        """Set a last step, which always runs."""
        self._last = step

    async def close(self) -> None:
        """Wait for the current step, run the last one and end the thread; also in a cancelled task."""
        done = self._loop.run_in_executor(self._thread, self._end)  # after the current step, which may set the last one
        self._thread.shutdown(wait=False)
        await asyncio.shield(done)

    def _end(self) -> None:
        if self._last is not None:
            self._last()


@contextlib.asynccontextmanager
async def open_file_thread() -> AsyncGenerator[FileThread]:
    """Provide a thread for the duration of a transfer."""
    hand = FileThread()
    try:
        yield hand
    finally:
        await hand.close()
