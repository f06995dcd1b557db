"""What a turn shows on a terminal: the reply as it comes, and each tool in a line with a glimpse of its output.

What the model thinks is dimmed, and folded to a line once it is whole, unless the person wants to see all of it.
"""

from __future__ import annotations

import sys
import time
from functools import cached_property
from typing import TYPE_CHECKING

from hermes_exec_agent.frontends.chat.display import SCRIPTED, describe_call, describe_outcome, describe_update
from hermes_exec_agent.frontends.chat.safe_text import escape_text, to_line
from hermes_exec_agent.runtime.updates import CallEnded, CallStarted, Delegated, Replied, Retried, Text, Thought

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.live import Live

    from hermes_exec_agent.runtime.updates import Update

_GLIMPSE = 4
"""Lines of a tool's output that are shown; the record has all of it."""
_A_SECOND = 8
_TAIL = 200
"""Characters of a thought that still comes, which are looked at for the line that is shown of it."""
_UNFOLD = "  (/reasoning show)"
_FENCES = ("```", "~~~")


class ScreenDisplay:
    """The display of an interactive chat.

    Finished paragraphs are printed and stay; only what is still being said, or waited for, is drawn again and again.
    """

    def __init__(self, console: Console | None = None) -> None:
        """``console`` is standard output, if left out."""
        self._given = console
        self._live: Live | None = None
        self._said = ""
        """Of the reply, what is not printed yet."""
        self._scripted = False
        self._labelled = False
        self._spoke = False
        """Whether something of this reply was shown."""
        self._unfolded = False
        self._thought: list[str] = []
        self._tail = ""
        self._thinks_since = 0.0
        self._waiting: _Waiting | None = None
        """What is drawn while a thought comes."""

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return self._given or Console(file=sys.stdout, highlight=False)

    def begin(self, *, scripted: bool) -> None:
        """A turn begins: the model is waited for."""
        self._scripted = scripted
        self._labelled = not scripted
        self._wait("thinking")

    def update(self, update: Update) -> None:
        """Show it."""
        if isinstance(update, Thought):
            self._think(update.text)
            return
        if isinstance(update, Retried):
            self._thought = []  # it is void, too
        self._fold()
        if isinstance(update, Text):
            self._say(update.text)
        elif isinstance(update, Retried):
            # What is not printed yet goes without a word.
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
        elif isinstance(update, Delegated):
            self._note(describe_update(update), style="dim")
            self._wait("delegate_task")
        elif said := describe_update(update):
            self._note(said)

    def show_thoughts(self, *, shown: bool) -> None:
        """Show what the model thinks in full from now on, or fold it to a line."""
        self._unfolded = shown

    def print_line(self, text: str) -> None:
        """A line of a tool's own, as it stands."""
        self.pause()
        self._console.print(escape_text(text), markup=False, highlight=False, style="cyan", soft_wrap=True)

    def pause(self) -> None:
        """Print what is unfinished as it is, and move nothing."""
        self._fold()
        self._flush()

    def end(self) -> None:
        """The turn is over."""
        self._fold()
        self._flush()

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
        """Print a thought that is whole, or a line about it."""
        from rich.text import Text as Styled

        thought, self._thought, self._tail = escape_text("".join(self._thought)).strip(), [], ""
        if not thought:
            return
        self._stop()
        head = f"▸ thought {time.monotonic() - self._thinks_since:.0f} s"
        if self._unfolded:
            self._console.print(Styled(f"{head}\n{thought}", style="dim"))
        else:
            room = max(self._console.width - len(head) - len(_UNFOLD) - 3, 20)
            self._console.print(Styled(f"{head}: {to_line(thought, room)}{_UNFOLD}", style="dim"), soft_wrap=True)
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

    def _draw(self, what: RenderableType) -> None:
        if self._live is None:
            from rich.live import Live

            self._live = Live(what, console=self._console, transient=True, refresh_per_second=_A_SECOND)
            self._live.start()
        else:
            self._live.update(what)

    def _stop(self) -> None:
        if self._live is not None:
            live, self._live = self._live, None
            live.update("")  # or what was taller than the screen would leave its head behind
            live.stop()


class _Waiting:
    """What is waited for, and for how many seconds."""

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
    """What is finished of a text that still comes, and the rest: a paragraph ends at an empty line outside of code."""
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
    from rich.markdown import Markdown

    return Markdown(said, hyperlinks=False)  # where a link leads is shown, not hidden behind its text
