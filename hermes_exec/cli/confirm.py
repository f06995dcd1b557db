"""Ask the user at the terminal to confirm."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_ANSWERS = {"y": True, "yes": True, "n": False, "no": False, "": False}


def confirm(question: str) -> bool:
    """Ask a question and return whether the answer is yes. An empty line and the end of the input mean no.

    Ctrl-C raises `KeyboardInterrupt` at any moment: ``input()`` misses one between its prompt and its read, and the
    handler of asyncio delivers it only after an answer.
    """
    with _interruptible() as woken:
        while True:
            print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
            select.select([sys.stdin, woken], [], [])
            answer = sys.stdin.readline().strip().lower()
            if answer in _ANSWERS:
                return _ANSWERS[answer]
            print("Please answer y or n.", file=sys.stderr)


@contextmanager
def _interruptible() -> Generator[int]:
    """Let SIGINT raise. The descriptor becomes readable with the signal, so no wait can begin too late."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.set_wakeup_fd(writing)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGINT, handler)
        os.close(reading)
        os.close(writing)
