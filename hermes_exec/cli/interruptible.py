"""Run a command so that Ctrl-C, a quit, a hang-up and ``kill`` end what it started before it ends itself."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

from hermes_exec.cli.console import BROKEN_PIPE, say

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run(work: Coroutine[Any, Any, int]) -> int:
    """Give what ``work`` gives, or 128 + N after signal N, which cancels it. A second signal ends us at once.

    Where nobody reads our output any more, that is the end too: 141, as for any program.
    """
    try:
        return asyncio.run(_guarded(work))
    except BrokenPipeError:
        return BROKEN_PIPE


async def _guarded(work: Coroutine[Any, Any, int]) -> int:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work)
    caught: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        # A handler of Python's own kind also runs while the loop is busy; the loop's would have to wait.
        if caught:
            say("left at once, while the place was still ending what ran there")
            os._exit(128 + number)
        caught.append(number)
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup, and a shell's background, want it ignored
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
