"""The display of a turn on a terminal: the reply as it arrives, and each tool with the beginning of its output.

Thoughts of the model are dimmed, and folded to one line when complete, unless the user unfolds them.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from hermes_exec_agent.frontends.chat.display import (
    SCRIPTED,
    Holding,
    describe_call,
    describe_outcome,
    describe_update,
    wait_for_answer,
)
from hermes_exec_agent.frontends.chat.safe_text import escape_text, to_line
from hermes_exec_agent.runtime.updates import CallEnded, CallStarted, Delegated, Replied, Retried, Text, Thought

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.live import Live

    from hermes_exec_agent.runtime.updates import Update

_GLIMPSE = 4
"""Lines of the output of a tool that are shown; the record has all of it."""
_A_SECOND = 8
_TAIL = 200
"""Characters at the end of an incomplete thought that its line is taken from."""
TYPED_SIGN = "> "
"""Before the line that is typed during a turn."""
_UNFOLD = "  (/reasoning show)"
_FENCES = ("```", "~~~")


class ScreenDisplay(Holding):
    """The display of an interactive chat.

    Finished paragraphs are printed and stay; only the unfinished paragraph or the spinner is redrawn.
    """

    def __init__(self, console: Console | None = None) -> None:
        """``console`` is standard output by default."""
        super().__init__()
        self._given = console
        self._live: Live | None = None
        self._said = ""
        """The part of the reply that is not printed yet."""
        self._scripted = False
        self._labelled = False
        self._spoke = False
        """Whether a part of this reply was shown."""
        self._unfolded = False
        self._thought: list[str] = []
        self._tail = ""
        self._thinks_since = 0.0
        self._waiting: _Waiting | None = None
        """The spinner while a thought arrives."""
        self._drawn: RenderableType = ""
        """What is redrawn, without the typed line."""
        self._typed = ""
        self._runs = False
        """Whether a turn runs."""

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return self._given or Console(file=sys.stdout, highlight=False)

    def begin(self, *, scripted: bool) -> None:
        """Start the display of a turn, with a spinner."""
        self._runs = True
        self._scripted = scripted
        self._labelled = not scripted
        self._wait("thinking")

    @wait_for_answer
    def update(self, update: Update) -> None:
        """Show an event of the turn."""
        if isinstance(update, Thought):
            self._think(update.text)
            return
        if isinstance(update, Delegated):
            self.print_beside(describe_update(update))
            return
        if isinstance(update, Retried):
            self._thought = []  # discarded with the reply
        self._fold()
        if isinstance(update, Text):
            self._say(update.text)
        elif isinstance(update, Retried):
            # Text that is not printed yet is dropped without a message.
            void, self._said, self._spoke = self._spoke, "", False
            self._note(describe_update(update, void=void))
            self._wait("thinking")
        elif isinstance(update, Replied):
            self._flush()
            self._spoke = False
            self._labelled = not self._scripted
            self._wait("thinking")
        elif isinstance(update, CallStarted):
            self._wait(describe_call(update.call))
        elif isinstance(update, CallEnded):
            self._call(update)
            self._wait("thinking")
        elif text := describe_update(update):
            self._note(text)

    def show_thoughts(self, *, shown: bool) -> None:
        """Show thoughts of the model in full from now on, or fold them to one line."""
        self._unfolded = shown

    @wait_for_answer
    def print_line(self, text: str) -> None:
        """Print a line of a tool, unchanged, above what is redrawn."""
        self._console.print(escape_text(text), markup=False, highlight=False, style="cyan", soft_wrap=True)

    @wait_for_answer
    def print_beside(self, text: str) -> None:
        """Print a line of the program above what is redrawn."""
        self._console.print(escape_text(text), markup=False, highlight=False, style="dim", soft_wrap=True)

    def show_typed(self, text: str) -> None:
        """Redraw the line that the user types, below everything else."""
        self._typed = text
        if self._live is not None:
            self._draw(self._drawn)

    @contextmanager
    def hold(self) -> Generator[None]:
        """Show nothing within the block, because a question is on the screen; show it, and what runs, afterwards."""
        with super().hold():
            yield
        if self._runs:
            self._draw(self._drawn if isinstance(self._drawn, _Waiting) else _Waiting("thinking"))

    def pause(self) -> None:
        """Print the unfinished part, and stop animations."""
        self._fold()
        self._flush()

    def end(self) -> None:
        """End the display of the turn."""
        self._runs = False
        self.pause()

    def _say(self, text: str) -> None:
        self._said += escape_text(text)
        done, self._said = split_finished(self._said)
        if done:
            self._stop()
            self._print(done)
        if self._said.strip():
            self._draw(_render_markdown(self._said))

    def _think(self, text: str) -> None:
        if not self._thought:
            self._flush()
            self._thinks_since = time.monotonic()
            self._waiting = _Waiting("thinking")
        self._thought.append(text)
        self._tail = (self._tail + text)[-_TAIL:]
        last = next((each for each in reversed(self._tail.splitlines()) if each.strip()), "")
        if self._waiting is not None:
            self._waiting.about = f"thinking: {to_line(last, _TAIL)}"
            self._draw(self._waiting)

    def _fold(self) -> None:
        """Print a complete thought, or one line of it."""
        from rich.text import Text as Styled

        thought, self._thought, self._tail = escape_text("".join(self._thought)).strip(), [], ""
        if not thought:
            return
        self._stop()
        head = f"▸ thought {time.monotonic() - self._thinks_since:.0f} s"
        if self._unfolded:
            self._console.print(Styled(f"{head}\n{thought}", style="dim"))
        else:
            room = self._console.width - len(head) - len(": ")
            unfold = _UNFOLD if room > 2 * len(_UNFOLD) else ""
            line = to_line(thought, max(room - len(unfold), 10))
            self._console.print(Styled(f"{head}: {line}{unfold}", style="dim"), soft_wrap=True)
        self._wait("thinking")

    def _flush(self) -> None:
        self._stop()
        rest, self._said = self._said, ""
        if rest.strip():
            self._print(rest)

    def _print(self, said: str) -> None:
        self._spoke = True
        if not self._labelled:
            self._labelled = True
            self._console.print(SCRIPTED.strip(), style="yellow", markup=False, highlight=False)
        self._console.print(_render_markdown(said))

    def _call(self, ended: CallEnded) -> None:
        from rich.text import Text as Styled

        self._flush()
        good = ended.envelope.ok and not ended.envelope.exit_code
        head = Styled("● ", style="green" if good else "red")
        head.append(describe_call(ended.call))
        head.append(f"  {describe_outcome(ended.envelope, ended.duration_s)}", style="dim")
        self._console.print(head)
        lines = ended.envelope.output.rstrip().splitlines()
        for each in lines[:_GLIMPSE]:
            self._console.print(Styled(f"  │ {to_line(each, self._console.width - 4)}", style="dim"))
        if len(lines) > _GLIMPSE:
            self._console.print(Styled(f"  │ … {len(lines) - _GLIMPSE} more lines", style="dim"))

    def _note(self, said: str, *, style: str = "yellow") -> None:
        self._flush()
        self._console.print(said, style=style, markup=False, highlight=False)

    def _wait(self, what: str) -> None:
        self._draw(_Waiting(what))

    def _draw(self, drawn: RenderableType) -> None:
        from rich.console import Group
        from rich.text import Text as Styled

        self._drawn = what = drawn
        if self._typed:
            line = Styled(f"{TYPED_SIGN}{to_line(self._typed[-self._console.width :], self._console.width - 4)}")
            what = Group(drawn, line)
        if self._live is None:
            from rich.live import Live

            self._live = Live(what, console=self._console, transient=True, refresh_per_second=_A_SECOND)
            self._live.start()
        else:
            self._live.update(what)

    def _stop(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.update("")  # else content taller than the screen leaves its top behind
            live.stop()


class _Waiting:
    """A spinner with the current step and its seconds."""

    def __init__(self, what: str) -> None:
        from rich.spinner import Spinner

        self.about = what
        self._began = time.monotonic()
        self._spinner = Spinner("dots")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text as Styled

        waited_s = int(time.monotonic() - self._began)
        said = Styled(f"{self.about}  ({f'{waited_s} s, ' if waited_s else ''}Ctrl-C interrupts)", style="dim")
        said.truncate(max(options.max_width - 3, 10), overflow="ellipsis")
        self._spinner.update(text=said)
        yield self._spinner


def split_finished(said: str) -> tuple[str, str]:
    """Split a text into finished paragraphs and the rest; an empty line outside code ends a paragraph."""
    fence = ""
    at = end = 0
    for each in said.splitlines(keepends=True):
        at += len(each)
        mark = next((mark for mark in _FENCES if each.lstrip().startswith(mark)), "")
        if fence:
            fence = "" if mark == fence else fence
        elif mark:
            fence = mark
        elif not each.strip() and each.endswith("\n"):
            end = at
    return said[:end], said[end:]


def _render_markdown(said: str) -> RenderableType:
    from hermes_exec_agent.frontends.chat.markdown import PlainMarkdown

    return PlainMarkdown(said, hyperlinks=False)  # the address of a link is shown, not hidden behind its text
