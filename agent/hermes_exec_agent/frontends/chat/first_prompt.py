"""The first prompt, which is on the screen before the line editor is loaded."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hermes_exec_agent.frontends.chat.keyboard import Keyboard

if TYPE_CHECKING:
    from collections.abc import Generator

PROMPT_SIGN = "you> "
_BOLD, _PLAIN, _ERASE = "\x1b[1m", "\x1b[0m", "\x1b[K"


@contextmanager
def show_first_prompt() -> Generator[None]:
    """Show the prompt of a chat at a terminal, and keep the keys that are typed until the line editor reads them.

    The cursor stays at the begin of the line, so that the editor draws over the prompt, and so does a line of text.
    """
    with Keyboard().hold_input():
        sys.stdout.write(f"{_BOLD}{PROMPT_SIGN}{_PLAIN}\r")
        sys.stdout.flush()
        try:
            yield
        except BaseException:
            with suppress(OSError):
                sys.stdout.write(_ERASE)  # removes the prompt if nothing was drawn over it
                sys.stdout.flush()
            raise
