"""The display of a running turn: the interface, and its plain form for pipes and simple terminals."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from hermes_exec_agent.frontends.chat.safe_text import escape_text, to_line
from hermes_exec_agent.runtime.turn_report import format_call
from hermes_exec_agent.runtime.updates import (
    CallEnded,
    Compacted,
    Delegated,
    Replied,
    Retried,
    Steered,
    Text,
    Thought,
    Warned,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from hermes_exec_agent.models.messages import ToolCall
    from hermes_exec_agent.runtime.updates import Update
    from hermes_exec_agent.tools.envelope import Envelope

OUTCOME_MESSAGES = {
    "budget": "stopped: this turn's budget is spent",
    "stopped": "stopped: no progress",
    "length": "the reply was cut at the maximum length",
    "filtered": "the provider filtered the reply",
    "empty": "the model sent no text, after several requests",
    "interrupted": "interrupted",
}
"""Messages for turns that did not end with an answer."""
COMPACTION_MESSAGES = {
    "cleared": "old results were removed from the context",
    "summarised": "the context was summarized",
    "listed": "no model could summarize the context, so it was cut to a list of actions",
}
"""Messages for a conversation that filled the context window of its model."""
_TITLE = 30
"""Characters of the title of a delegated task."""
_LONG_S = 5.0
"""Longer waits are shown."""
SCRIPTED = "[scripted] "
"""The prefix of every scripted reply."""
_D = TypeVar("_D", bound="Holding")
_P = ParamSpec("_P")


class TurnDisplay(Protocol):
    """Shows a turn. Callers call `begin`, then any of the other methods, and at last `end`, also after an error."""

    def begin(self, *, scripted: bool) -> None:
        """Start the display of a turn."""
        ...

    def update(self, update: Update) -> None:
        """Show an event of the turn."""
        ...

    def print_line(self, text: str) -> None:
        """Print a line of a tool, unchanged."""
        ...

    def print_beside(self, text: str) -> None:
        """Print a line of the program, unchanged; an unfinished reply goes on below it."""
        ...

    def show_typed(self, text: str) -> None:
        """Show what the user types during the turn."""
        ...

    def show_thoughts(self, *, shown: bool) -> None:
        """Show thoughts of the model in full from now on, or fold them."""
        ...

    def hold(self) -> AbstractContextManager[None]:
        """Show nothing within the block, because a question is on the screen; show it afterwards."""
        ...

    def end(self) -> None:
        """End the display of the turn."""
        ...


class Holding:
    """A display that can be held while a question is on the screen."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] | None = None
        """What is shown after the question; None without one."""

    @contextmanager
    def hold(self) -> Generator[None]:
        """Show nothing within the block, because a question is on the screen; show it afterwards."""
        self.pause()
        self.held = []
        try:
            yield
        finally:
            held, self.held = self.held, None
            for show in held:
                show()

    def pause(self) -> None:
        """End the line, and stop animations."""


def wait_for_answer(show: Callable[Concatenate[_D, _P], None]) -> Callable[Concatenate[_D, _P], None]:
    """Let a method of a display wait until no question is on the screen."""

    @wraps(show)
    def delay(self: _D, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if self.held is None:
            show(self, *args, **kwargs)
        else:
            self.held.append(partial(show, self, *args, **kwargs))

    return delay


class PlainDisplay(Holding):
    """Prints the reply on standard output, and everything else on standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        """``quiet`` omits everything but the reply."""
        super().__init__()
        self._quiet = quiet
        self._label = ""
        self._labelled = False
        """Whether the label of this reply was written."""
        self._open = False
        """Whether the last line of the reply is incomplete."""
        self._unfolded = False
        self._thought: list[str] = []

    def begin(self, *, scripted: bool) -> None:
        """Start the display of a turn."""
        self._label = SCRIPTED if scripted else ""
        self._labelled = False

    @wait_for_answer
    def update(self, update: Update) -> None:
        """Print an event at once, so that the reader of a pipe receives the reply as it arrives."""
        if isinstance(update, Thought):
            if self._unfolded:
                self._thought.append(update.text)
            return
        if isinstance(update, Retried):
            self._thought = []  # the reply was discarded
        self._show_thought()
        if isinstance(update, Text):
            if update.text and not self._labelled:
                self._labelled = True
                self._write(self._label)
            self._write(escape_text(update.text))
            return
        if isinstance(update, Replied):
            self.pause()  # a line of the program may follow
        void, self._labelled = self._labelled, False
        if text := describe_update(update, void=void):
            self.pause()
            self.print_line(text)

    def show_thoughts(self, *, shown: bool) -> None:
        """Print complete thoughts of the model on standard error, or omit them."""
        self._unfolded = shown

    @wait_for_answer
    def print_line(self, text: str) -> None:
        """Print a line on standard error."""
        self.pause()
        if not self._quiet:
            print(escape_text(text), file=sys.stderr, flush=True)

    def print_beside(self, text: str) -> None:
        """Print a line on standard error."""
        self.print_line(text)

    def show_typed(self, text: str) -> None:
        """Do nothing, as nothing is redrawn."""

    def pause(self) -> None:
        """End the line."""
        if self._open:
            self._write("\n")

    def end(self) -> None:
        """End the display of the turn."""
        self.pause()

    def _show_thought(self) -> None:
        thought, self._thought = "".join(self._thought).strip(), []
        if thought:
            self.print_line(f"thought: {thought}")

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._open = not text.endswith("\n")


class SilentDisplay:
    """Shows nothing of a turn."""

    def begin(self, *, scripted: bool) -> None:
        """Do nothing."""

    def update(self, update: Update) -> None:
        """Do nothing."""

    def show_thoughts(self, *, shown: bool) -> None:
        """Do nothing."""

    def print_line(self, text: str) -> None:
        """Do nothing."""

    def print_beside(self, text: str) -> None:
        """Do nothing."""

    def show_typed(self, text: str) -> None:
        """Do nothing."""

    @contextmanager
    def hold(self) -> Generator[None]:
        """Do nothing."""
        yield

    def end(self) -> None:
        """Do nothing."""


def describe_update(update: Update, *, void: bool = False) -> str:
    """Describe an event in one line; empty for events without a line of their own.

    ``void`` is whether text of the reply was shown that a retry discards.
    """
    if isinstance(update, CallEnded):
        return f"{describe_call(update.call)}  ({describe_outcome(update.envelope, update.duration_s)})"
    if isinstance(update, Delegated):
        which = f"{to_line(update.task)} {to_line(update.title, _TITLE)}: " if update.task else ""
        return f"  {which}{describe_update(update.update)}"
    if isinstance(update, Warned):
        return f"warning: {to_line(update.content, 200)}"
    if isinstance(update, Steered):
        return f"the model reads: {to_line(update.content, 200)}"
    if isinstance(update, Retried):
        same = update.reason.startswith(f"{update.model}:")
        again = "the request is repeated" if same else f"{escape_text(update.model)} is asked instead"
        if update.wait_s >= _LONG_S:
            again += f" in {update.wait_s:.0f} s"
        return f"{to_line(update.reason, 300)}; {again}{', and the reply above is discarded' if void else ''}"
    if isinstance(update, Compacted):
        return f"{COMPACTION_MESSAGES[update.how]}: {update.before:,} tokens became {update.after:,}"
    return ""


def describe_call(call: ToolCall) -> str:
    """Describe the call of a tool, escaped for a terminal."""
    return escape_text(format_call(call))


def describe_outcome(envelope: Envelope, duration_s: float) -> str:
    """Describe the target and the result of a call."""
    parts = [to_line(envelope.place)]
    if envelope.error is not None:
        parts.append(to_line(f"{envelope.error.type}: {envelope.error.message}", 200))
    elif envelope.exit_code is not None:
        parts.append(f"exit code {envelope.exit_code}")
    elif not envelope.ok:
        parts.append("failed")
    return ", ".join([*parts, f"{duration_s:.1f} s"])
