"""The terminal's keys while no prompt reads them."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Generator

_IFLAG, _LFLAG = 0, 3


class Keyboard:
    """Standard input, where it is a terminal; of anything else nothing is read.

    While a turn runs, what is typed is not shown and waits for the next prompt. A question in between is answered by
    what is typed after it was asked, never by what was typed before.
    """

    _found: ClassVar[list[Any] | None] = None
    """The terminal's settings as we found them, while they are ours."""

    def __init__(self) -> None:
        self._stdin = sys.stdin.fileno()

    @contextmanager
    def hold_input(self) -> Generator[None]:
        """For turns: keys, Ctrl-D too, are kept as they are typed. Ctrl-C is the signal that it always is."""
        if not os.isatty(self._stdin):
            yield
            return
        Keyboard._found = termios.tcgetattr(self._stdin)
        held = termios.tcgetattr(self._stdin)
        held[_LFLAG] &= ~(termios.ECHO | termios.ICANON)
        held[_IFLAG] &= ~termios.ICRNL  # Enter stays Enter for the prompt, which tells it from Ctrl-J
        termios.tcsetattr(self._stdin, termios.TCSANOW, held)
        try:
            yield
        finally:
            self.restore()

    @classmethod
    def restore(cls) -> None:
        """Leave the terminal as it was found; also for who ends the program at once."""
        found, cls._found = cls._found, None
        if found is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, found)

    async def read_line(self) -> str:
        """The next line, inside of `lines`; empty at the end of the input."""
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            if not typed.done():
                typed.set_result(os.read(self._stdin, 4096))  # a terminal gives one line at a time

        loop.add_reader(self._stdin, read)
        try:
            return (await typed).decode(errors="replace")
        finally:
            loop.remove_reader(self._stdin)

    @contextmanager
    def line_mode(self) -> Generator[None]:
        """For a question: keys make lines, and what was typed before is dropped."""
        before = termios.tcgetattr(self._stdin)
        lines = termios.tcgetattr(self._stdin)
        lines[_LFLAG] |= termios.ECHO | termios.ICANON
        lines[_IFLAG] |= termios.ICRNL
        termios.tcsetattr(self._stdin, termios.TCSANOW, lines)
        termios.tcflush(self._stdin, termios.TCIFLUSH)
        try:
            yield
        finally:
            termios.tcsetattr(self._stdin, termios.TCSANOW, before)
