"""What a turn shows while it runs: the interface, and its plain form for pipes and simple terminals."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from hermes_exec_agent.frontends.chat.safe_text import escape_text, to_line
from hermes_exec_agent.runtime.turn_report import call_title
from hermes_exec_agent.runtime.updates import CallEnded, Compacted, Delegated, Replied, Retried, Text, Thought, Warned

if TYPE_CHECKING:
    from hermes_exec_agent.models.messages import ToolCall
    from hermes_exec_agent.runtime.updates import Update
    from hermes_exec_agent.tools.envelope import Envelope

OUTCOME_MESSAGES = {
    "budget": "stopped: this turn's budget is spent",
    "stopped": "stopped: no progress",
    "length": "the reply was cut at its greatest length",
    "filtered": "the provider filtered the reply",
    "empty": "the model said nothing, however often it was asked",
    "interrupted": "interrupted",
}
"""What is said of a turn that did not simply end with its answer."""
COMPACTION_MESSAGES = {
    "cleared": "old results were cleared to make room",
    "summarised": "the conversation was summed up to make room",
    "listed": "no model could sum the conversation up, so it was cut to a list of what was done",
}
"""What is said of a conversation that filled its model's window."""
_LONG_S = 5.0
"""So long a wait is told."""
SCRIPTED = "[scripted] "
"""Stands before every reply that nobody thought of."""


class TurnDisplay(Protocol):
    """Shows a turn. `begin`, then any number of the others, then `end`, whatever happened."""

    def begin(self, *, scripted: bool) -> None:
        """A turn begins."""
        ...

    def update(self, update: Update) -> None:
        """Something happened in it."""
        ...

    def print_line(self, text: str) -> None:
        """A line of a tool's own, shown as it stands."""
        ...

    def show_thoughts(self, *, shown: bool) -> None:
        """Show what the model thinks in full from now on, or fold it."""
        ...

    def pause(self) -> None:
        """Stop whatever moves: a question follows."""
        ...

    def end(self) -> None:
        """The turn is over."""
        ...


class PlainDisplay:
    """The reply on standard output, everything else on standard error."""

    def __init__(self, *, quiet: bool = False) -> None:
        """``quiet`` leaves out what is not the reply."""
        self._quiet = quiet
        self._label = ""
        self._labelled = False
        """Whether this reply's label was written."""
        self._open = False
        """Whether the last line of the reply has no end yet."""
        self._unfolded = False
        self._thought: list[str] = []

    def begin(self, *, scripted: bool) -> None:
        """A turn begins."""
        self._label = SCRIPTED if scripted else ""
        self._labelled = False

    def update(self, update: Update) -> None:
        """Write it at once, so that whoever reads the pipe sees the reply as it comes."""
        if isinstance(update, Thought):
            if self._unfolded:
                self._thought.append(update.text)
            return
        if isinstance(update, Retried):
            self._thought = []  # it is void
        self._show_thought()
        if isinstance(update, Text):
            if update.text and not self._labelled:
                self._labelled = True
                self._write(self._label)
            self._write(escape_text(update.text))
            return
        if isinstance(update, Replied):
            self.pause()  # the program's list may follow
        void, self._labelled = self._labelled, False
        if said := describe_update(update, void=void):
            self.pause()
            self.print_line(said)

    def show_thoughts(self, *, shown: bool) -> None:
        """What the model thinks goes to standard error, once it is whole; folded, it is left out."""
        self._unfolded = shown

    def print_line(self, text: str) -> None:
        """A line on standard error."""
        self.pause()
        if not self._quiet:
            print(escape_text(text), file=sys.stderr, flush=True)

    def pause(self) -> None:
        """End the line."""
        if self._open:
            self._write("\n")

    def end(self) -> None:
        """The turn is over."""
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
    """Shows nothing of a turn: what is wanted is its end."""

    def begin(self, *, scripted: bool) -> None:
        """Nothing."""

    def update(self, update: Update) -> None:
        """Nothing."""

    def show_thoughts(self, *, shown: bool) -> None:
        """Nothing."""

    def print_line(self, text: str) -> None:
        """Nothing."""

    def pause(self) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


def describe_update(update: Update, *, void: bool = False) -> str:
    """One line about something that is no text of the reply; empty where there is nothing to say.

    ``void``: text of a reply was shown that does not hold any more, if it is asked for again.
    """
    if isinstance(update, CallEnded):
        return f"{describe_call(update.call)}  ({describe_outcome(update.envelope, update.duration_s)})"
    if isinstance(update, Delegated):
        return f"delegate_task: {describe_update(update.update)}"
    if isinstance(update, Warned):
        return f"warning: {to_line(update.content, 200)}"
    if isinstance(update, Retried):
        same = update.reason.startswith(f"{update.model}:")
        again = "it is asked again" if same else f"{escape_text(update.model)} is asked instead"
        if update.wait_s >= _LONG_S:
            again += f" in {update.wait_s:.0f} s"
        return f"{to_line(update.reason, 300)}; {again}{', and what stood above is void' if void else ''}"
    if isinstance(update, Compacted):
        return f"{COMPACTION_MESSAGES[update.how]}: {update.before:,} tokens became {update.after:,}"
    return ""


def describe_call(call: ToolCall) -> str:
    """What a tool was asked for, safe to show."""
    return escape_text(call_title(call))


def describe_outcome(envelope: Envelope, duration_s: float) -> str:
    """Where a call ran and how it ended."""
    parts = [to_line(envelope.place)]
    if envelope.error is not None:
        parts.append(to_line(f"{envelope.error.type}: {envelope.error.message}", 200))
    elif envelope.exit_code is not None:
        parts.append(f"exit code {envelope.exit_code}")
    elif not envelope.ok:
        parts.append("failed")
    return ", ".join([*parts, f"{duration_s:.1f} s"])
