"""What is seen of the demo while it works: a progress line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_exec.cli.console import printable
from hermes_exec.cli.global_flags import flags

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.progress import Progress, TaskID

_PERCENT = re.compile(rb"\[\s*(\d{1,3})%\]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Display:
    """Steps and output as lines on standard error. Nothing at all with ``--quiet``."""

    def __init__(self) -> None:
        self._rest = b""
        self._began = time.perf_counter()

    def step(self, place: str, what: str) -> None:
        """What is done now, and where."""
        self._line(f"{place}: {what}")

    def output(self, data: bytes) -> None:
        """What a command there printed."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(f"    {_COLOURS.sub('', line.decode('utf-8', 'replace'))}")

    def bytes(self, done: int, total: int, *_: int) -> None:
        """How far a transfer is."""

    def over(self) -> None:
        """No more comes for this place."""
        if self._rest:
            self.output(b"\n")

    def _line(self, text: str) -> None:
        if not flags.quiet:
            print(printable(flags.clean(text)), file=sys.stderr, flush=True)


class LiveDisplay(Display):
    """Output scrolls by above a line that says what is done, how far it is and how long it has taken."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._task: TaskID | None = None

    def step(self, place: str, what: str) -> None:
        """What is done now, and where."""
        self.over()
        self._task = self._progress.add_task(printable(f"{place}: {what}"), total=None)

    def output(self, data: bytes) -> None:
        """What a command there printed; a suite that counts itself moves the bar."""
        percents = _PERCENT.findall(data)
        if percents and self._task is not None:
            self._progress.update(self._task, completed=int(percents[-1]), total=100)
        super().output(data)

    def bytes(self, done: int, total: int, *_: int) -> None:
        """How far a transfer is."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total)

    def over(self) -> None:
        """The step has ended."""
        super().over()
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None

    def _line(self, text: str) -> None:
        from rich.text import Text

        self._progress.console.print(Text(printable(flags.clean(text)), style="dim"))


@contextmanager
def displayed() -> Generator[Display]:
    """The display that fits where standard error goes."""
    if flags.quiet or not sys.stderr.isatty():
        yield Display()
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from hermes_exec.cli.output import console

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(sys.stderr), transient=True) as progress:
        display = LiveDisplay(progress)
        yield display
        display.over()
