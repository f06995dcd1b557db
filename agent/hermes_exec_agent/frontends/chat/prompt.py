"""The prompt: history, several lines, completion of slash commands, and Ctrl-C."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.styles import Style

from hermes_exec.config.paths import make_private_folder
from hermes_exec_agent.frontends.chat.first_prompt import PROMPT_SIGN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from prompt_toolkit.application import Application
    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.key_binding import KeyPressEvent

_MORE = "· "
_AGAIN = "Ctrl-C once more leaves."
_STYLE = Style.from_dict({"sign": "bold ansicyan", "bottom-toolbar": "noreverse ansibrightblack"})


class Prompt:
    """Reads messages from the user."""

    def __init__(
        self,
        history: Path,
        commands: Mapping[str, str],
        status: Callable[[], str],
        *,
        shown: Callable[[], object] = lambda: None,
    ) -> None:
        """Create a prompt.

        Args:
            history: the file of the messages of before.
            commands: slash commands with their descriptions.
            status: returns the line below the prompt.
            shown: called once, after the first prompt is on the screen.
        """
        self._status = status
        self._leaving = False
        self._session: PromptSession[str] = PromptSession(
            history=_history(history),
            completer=_Commands(commands),
            key_bindings=self._keys(),
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: _MORE.rjust(width),  # noqa: ARG005  its shape
            bottom_toolbar=self._toolbar,
            style=_STYLE,
            enable_open_in_editor=True,
            search_ignore_case=True,
        )
        self._session.default_buffer.on_text_changed += self._stay
        self._shown = shown
        self._session.app.after_render += self._tell_shown

    def remember(self, line: str) -> None:
        """Add a line to the history that was typed elsewhere."""
        self._session.history.append_string(line)

    async def ask(self, begun: str = "") -> str:
        """Read one message, which may have several lines, and begins with ``begun``.

        Raises:
            EOFError: the user leaves: Ctrl-D, or Ctrl-C twice on an empty line.
        """
        self._leaving = False
        return await self._session.prompt_async(FormattedText([("class:sign", PROMPT_SIGN)]), default=begun)

    def _toolbar(self) -> FormattedText:
        return FormattedText([("", self._status())])

    def _tell_shown(self, app: Application[str]) -> None:
        app.after_render -= self._tell_shown
        self._shown()

    def _stay(self, _: Buffer) -> None:
        self._leaving = False

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        edits = has_focus(DEFAULT_BUFFER)  # and not the search of Ctrl-R, which has keys of its own

        @keys.add("enter", filter=edits)
        def enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.current_line_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
                buffer.delete_before_cursor()
                buffer.newline()
            elif buffer.text.strip():
                buffer.validate_and_handle()

        @keys.add("escape", "enter", filter=edits)
        @keys.add("c-j", filter=edits)
        def another_line(event: KeyPressEvent) -> None:
            event.current_buffer.newline()

        @keys.add("c-c", filter=edits)
        @keys.add("<sigint>")
        def clear_or_leave(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            elif self._leaving:
                event.app.exit(exception=EOFError)
            else:
                self._leaving = True
                run_in_terminal(lambda: print(_AGAIN))  # not every terminal shows the line below the prompt

        # The decorators bind them; this line uses the names, for type checkers.
        _ = (enter, another_line, clear_or_leave)
        return keys


class _History(FileHistory):
    """A history whose write errors, such as a full disk, do not end the chat."""

    def store_string(self, string: str) -> None:
        """Store an entry, and ignore write errors."""
        with contextlib.suppress(OSError):
            super().store_string(string)


def _history(path: Path) -> FileHistory | InMemoryHistory:
    try:
        return _History(create_private_file(path))
    except OSError:
        return InMemoryHistory()


class _Commands(Completer):
    """Completes the names of slash commands."""

    def __init__(self, commands: Mapping[str, str]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002  its shape
        """Yield the commands that begin with the typed text."""
        typed = document.text_before_cursor
        if typed.startswith("/") and typed.strip() == typed:
            for name, about in self._commands.items():
                if name.startswith(typed):
                    yield Completion(name, start_position=-len(typed), display_meta=about)


def create_private_file(path: Path) -> str:
    """Create ``path`` if needed, restrict it to this user, and return it."""
    make_private_folder(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    path.chmod(0o600)
    return str(path)
