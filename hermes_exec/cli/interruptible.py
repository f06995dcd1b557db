"""Run a coroutine that SIGINT, SIGQUIT, SIGHUP and SIGTERM cancel, so that it cleans up before the process ends."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

from hermes_exec.cli.console import BROKEN_PIPE, say

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run(work: Coroutine[Any, Any, int], restore: Callable[[], object] = lambda: None) -> int:
    """Return the result of ``work``, or 128 + N after signal N, which cancels it. A second signal exits at once.

    ``restore`` is called before an exit at once, such as to restore the settings of the terminal.

    Returns 141 when the reader of our output has gone, as a shell shows it.
    """
    try:
        return asyncio.run(_run_cancellable(work, restore))
    except BrokenPipeError:
        return BROKEN_PIPE


async def _run_cancellable(work: Coroutine[Any, Any, int], restore: Callable[[], object]) -> int:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    caught: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        # A handler of the signal module also runs while the loop is busy; one of the loop would wait.
        if caught:
            restore()
            say("exited at once, before the cleanup in the target had ended")
            os._exit(128 + number)
        caught.append(number)
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup and background jobs of a shell ignore it
            signal.signal(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not caught:
            raise
        return 128 + caught[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
