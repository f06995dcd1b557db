"""The keyboard while no prompt reads it."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator

_IFLAG, _LFLAG = 0, 3


class KeyReader(Protocol):
    """Reads the keyboard, but for questions."""

    def suspend(self) -> None:
        """Stop to read."""
        ...

    def resume(self) -> None:
        """Start to read again."""
        ...


class Keyboard:
    """Standard input, if it is a terminal; other input is not read.

    Keys typed during a turn are not echoed. A question accepts only keys typed after it was asked, and nothing else
    receives those.
    """

    _reader: ClassVar[KeyReader | None] = None
    """The other reader of the keyboard."""
    _found: ClassVar[list[Any] | None] = None
    """The original settings of the terminal, while they are changed."""

    def __init__(self) -> None:
        self._stdin = sys.stdin.fileno()

    @contextmanager
    def hold_input(self) -> Generator[None]:
        """Keep typed keys, Ctrl-D included, in the input queue during turns. Ctrl-C still sends its signal.

        The inner one of two nested blocks ends it.
        """
        if not os.isatty(self._stdin):
            yield
            return
        Keyboard._found = Keyboard._found or termios.tcgetattr(self._stdin)
        held = termios.tcgetattr(self._stdin)
        held[_LFLAG] &= ~(termios.ECHO | termios.ICANON)
        held[_IFLAG] &= ~termios.ICRNL  # the prompt distinguishes Enter from Ctrl-J
        termios.tcsetattr(self._stdin, termios.TCSANOW, held)
        try:
            yield
        finally:
            self.restore()

    @classmethod
    def restore(cls) -> None:
        """Restore the original settings of the terminal; also called before an immediate exit."""
        found, cls._found = cls._found, None
        if found is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, found)

    @classmethod
    def share(cls, reader: KeyReader | None) -> None:
        """Suspend ``reader`` during questions from now on; None if there is no other reader."""
        cls._reader = reader

    async def read_line(self) -> str:
        """Return the next line, within `lines`; empty at the end of the input."""
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
        """Read whole lines for a question, and discard keys typed before it."""
        reader = Keyboard._reader
        if reader is not None:
            reader.suspend()
        before = termios.tcgetattr(self._stdin)
        lines = termios.tcgetattr(self._stdin)
        lines[_LFLAG] |= termios.ECHO | termios.ICANON
        lines[_IFLAG] |= termios.ICRNL
        termios.tcsetattr(self._stdin, termios.TCSANOW, lines)
        termios.tcflush(self._stdin, termios.TCIFLUSH)
        try:
            yield
        finally:
            if reader is None:
                termios.tcsetattr(self._stdin, termios.TCSANOW, before)
            else:
                termios.tcsetattr(self._stdin, termios.TCSAFLUSH, before)  # the rest of an answer is not a message
                reader.resume()
