"""Signals that come while the main thread drives an event loop are noted first, and acted upon later.

Python runs a signal's handler in the main thread, between any two instructions. One that raises, as the
one of Ctrl-C does, would raise in the midst of whatever the loop is at: in another thread's call, in a
frame that is half parsed.
"""

from __future__ import annotations

import _signal  # its functions are a tenth of the price of those of `signal`, which make enums
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Handler = Callable[[int, FrameType | None], Any]

_RAISING = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP")
"""Signals whose handlers are known to raise: Ctrl-C, ends of services, time limits of test suites."""
_NUMBERS = tuple(int(getattr(_signal, name)) for name in _RAISING if hasattr(_signal, name))


def run_undisturbed(work: Callable[[], None], noted: Callable[[], None]) -> None:
    """Run ``work`` in the main thread; raise what the handler of a signal that came meanwhile raises.

    ``noted`` is called when one comes, between any two instructions of ``work``, and makes it return soon.
    Only handlers written in Python are put off, and they are in their places again afterwards.
    """
    handlers: dict[int, Handler] = {}
    came: list[tuple[int, FrameType | None]] = []
    working = True

    def note(number: int, frame: FrameType | None) -> None:
        if working:
            came.append((number, frame))
            noted()
        else:  # while the handlers are being put back
            handlers[number](number, frame)

    try:
        for number in _NUMBERS:
            handler = _signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                _signal.signal(number, note)
        work()
    finally:
        working = False
        for number, handler in handlers.items():
            _signal.signal(number, handler)
    for number, frame in came:
        handlers[number](number, frame)
