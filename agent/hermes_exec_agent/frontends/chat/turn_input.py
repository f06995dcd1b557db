"""What the user types during a turn: lines, which the caller queues, and an incomplete one.

The terminal stays as `Keyboard.hold_input` sets it: keys are not echoed, and Ctrl-C sends its signal.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import get_typeahead
from prompt_toolkit.keys import Keys
from prompt_toolkit.utils import is_dumb_terminal

from hermes_exec_agent.frontends.chat.keyboard import Keyboard

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from prompt_toolkit.key_binding import KeyPress

_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
"""Let the terminal mark pasted text, which keeps its lines."""


class TurnInput:
    """Reads the keyboard while a turn runs, and edits one line."""

    def __init__(self, show: Callable[[str], None], enter: Callable[[str], None]) -> None:
        """``show`` receives the incomplete line after each change, ``enter`` each complete one."""
        self._show = show
        self._enter = enter
        self._text = ""
        self._escaped = False
        """Whether the last key was Escape, which Alt sends before another key."""
        self._input = create_input(sys.stdin)
        self.leaves = False
        """Whether Ctrl-D was pressed on an empty line, or the terminal is gone."""

    def take_text(self) -> str:
        """Return the incomplete line, once."""
        text, self._text = self._text, ""
        return text

    @contextmanager
    def read(self) -> Generator[None]:
        """Read within the block, but for questions; begin with the keys that the last prompt left."""
        for key in get_typeahead(self._input):
            self._press(key)
        self.resume()
        Keyboard.share(self)
        try:
            yield
        finally:
            Keyboard.share(None)
            self.suspend()

    def resume(self) -> None:
        """Start to read."""
        _write(_PASTE_ON)
        asyncio.get_running_loop().add_reader(self._input.fileno(), self._read)

    def suspend(self) -> None:
        """Stop to read, and let the terminal send pasted text unmarked, as a question takes it."""
        asyncio.get_running_loop().remove_reader(self._input.fileno())
        _write(_PASTE_OFF)

    def _read(self) -> None:
        for key in self._input.read_keys():
            self._press(key)
        if self._input.closed:
            self.leaves = True
            self.suspend()

    def _press(self, key: KeyPress) -> None:
        escaped, self._escaped = self._escaped, key.key == Keys.Escape
        match key.key:
            case Keys.ControlM if not escaped and not self._text.endswith("\\"):
                self._complete()
            case Keys.ControlM | Keys.ControlJ:
                self._text = (self._text if escaped else self._text.removesuffix("\\")) + "\n"
            case Keys.ControlH:
                self._text = self._text[:-1]
            case Keys.ControlU:
                self._text = ""
            case Keys.ControlW:
                self._text = self._text.rstrip().rpartition(" ")[0]
            case Keys.ControlD:
                self.leaves = self.leaves or not self._text
            case Keys.ControlC:  # pressed while the prompt had the keyboard; the turn handles it once it waits
                asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
            case Keys.BracketedPaste:
                self._text += key.data.replace("\r\n", "\n").replace("\r", "\n")
            case str() as letter if len(letter) == 1:
                self._text += letter
            case _:
                return  # keys that move the cursor have no meaning here
        self._show(self._text)

    def _complete(self) -> None:
        line = self.take_text()
        if line.strip():
            self._enter(line)


def _write(sequence: str) -> None:
    if not is_dumb_terminal():
        sys.stdout.write(sequence)
        sys.stdout.flush()
