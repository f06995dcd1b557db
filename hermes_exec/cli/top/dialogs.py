"""The screens over the tables of ``top``: the text of a row, which may grow, and the question before an end."""

from __future__ import annotations

import asyncio
import codecs
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, ClassVar, Self

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, RichLog, Static

from hermes_exec.cli.console import escape_controls
from hermes_exec.cli.global_flags import flags
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from textual.app import ComposeResult

    from hermes_exec.terminal.job import Job

_TAIL = 256 << 10
"""Bytes at the end of a log that are shown first."""
_MOST_LINES = 10_000
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


class TextScreen(Screen[None]):
    """Lines that may still grow. Their colours are left out, and control characters are escaped."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("end", "end", "End"),
    ]

    def __init__(self, title: str, lines: AsyncGenerator[str]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    @classmethod
    def of_job(cls, job: Job, title: str) -> Self:
        """Show the end of the log of a job, and follow it."""
        return cls(title, _follow(job))

    @classmethod
    def of_lines(cls, read: Callable[[], Sequence[str]], title: str) -> Self:
        """Show the lines that ``read`` returns, which is called in a thread."""

        async def lines() -> AsyncGenerator[str]:
            for line in await asyncio.to_thread(read):
                yield line

        return cls(title, lines())

    def compose(self) -> ComposeResult:
        """Create the text."""
        yield Static(Text(escape_controls(flags.clean(self._title)), style="bold"))
        yield RichLog(max_lines=_MOST_LINES, wrap=True, markup=False, highlight=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self.query_one(RichLog).focus()
        self.run_worker(self._read())

    def action_end(self) -> None:
        """Scroll to the end."""
        self.query_one(RichLog).scroll_end(animate=False)

    async def _read(self) -> None:
        log = self.query_one(RichLog)
        try:
            async with aclosing(self._lines) as lines:
                async for line in lines:
                    log.write(Text(escape_controls(_COLOURS.sub("", flags.clean(line)).replace("\t", "    "))))
        except HermesError as error:
            log.write(Text(escape_controls(flags.clean(str(error)))))


async def _follow(job: Job) -> AsyncGenerator[str]:
    """Yield the lines of a log, the last one without its end as soon as it is written."""
    status = await job.status()
    size = status.stdout_bytes + status.stderr_bytes
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    async with aclosing(job.logs(-_TAIL if size > _TAIL else 0, follow=True)) as events:
        async for event in events:
            *lines, rest = (rest + decoder.decode(event.data)).split("\n")
            for line in lines:
                yield line.removesuffix("\r")
    if rest:
        yield rest
    yield f"[{(await job.status()).state.value}]"


class ConfirmScreen(ModalScreen[bool]):
    """A question that is answered with y or n; Enter means no."""

    CSS = """
    ConfirmScreen { align: center middle; background: ansi_default; }
    ConfirmScreen > Vertical { width: 76; max-width: 100%; height: auto; border: round ansi_default; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", priority=True),
        Binding("n,escape,enter,q", "answer(False)", "No", priority=True),
    ]

    def __init__(self, question: str, detail: str) -> None:
        super().__init__()
        self._question = question
        self._detail = detail

    def compose(self) -> ComposeResult:
        """Create the question."""
        with Vertical():
            yield Static(Text(escape_controls(flags.clean(self._question)), style="bold"))
            yield Static(Text(escape_controls(flags.clean(" ".join(self._detail.split())))))
            yield Static("[y/N]", markup=False)

    def action_answer(self, confirmed: bool) -> None:  # noqa: FBT001  the signature of textual
        """Close with the answer."""
        self.dismiss(confirmed)
