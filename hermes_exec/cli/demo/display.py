"""The progress of the demo: a progress bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_exec.cli.console import escape_controls
from hermes_exec.cli.global_flags import flags

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.progress import Progress, TaskID

_PERCENT = re.compile(rb"\[\s*(\d{1,3})%\]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Display:
    """Prints steps and output as lines on standard error; prints nothing with ``--quiet``."""

    def __init__(self) -> None:
        self._rest = b""
        self._began = time.perf_counter()

    def step(self, place: str, what: str) -> None:
        """Show the start of a step."""
        self._line(f"{place}: {what}")

    def output(self, data: bytes) -> None:
        """Show output of a command in the target."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(f"    {_COLOURS.sub('', line.decode('utf-8', 'replace'))}")

    def bytes(self, done: int, total: int, *_: int) -> None:
        """Show the progress of a transfer."""

    def finish(self) -> None:
        """Finish the display of this target."""
        if self._rest:
            self.output(b"\n")

    def _line(self, text: str) -> None:
        if not flags.quiet:
            print(escape_controls(flags.clean(text)), file=sys.stderr, flush=True)


class LiveDisplay(Display):
    """Scrolls the output above a line with the step, its progress and its duration."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self._progress = progress
        self._task: TaskID | None = None

    def step(self, place: str, what: str) -> None:
        """Show the start of a step."""
        self.finish()
        self._task = self._progress.add_task(escape_controls(f"{place}: {what}"), total=None)

    def output(self, data: bytes) -> None:
        """Show output of a command in the target; percentages in it move the bar."""
        percents = _PERCENT.findall(data)
        if percents and self._task is not None:
            self._progress.update(self._task, completed=int(percents[-1]), total=100)
        super().output(data)

    def bytes(self, done: int, total: int, *_: int) -> None:
        """Show the progress of a transfer."""
        if self._task is not None:
            self._progress.update(self._task, completed=done, total=total)

    def finish(self) -> None:
        """Finish the step."""
        super().finish()
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None

    def _line(self, text: str) -> None:
        from rich.text import Text

        self._progress.console.print(Text(escape_controls(flags.clean(text)), style="dim"))


@contextmanager
def open_display() -> Generator[Display]:
    """Yield the display that suits standard error."""
    if flags.quiet or not sys.stderr.isatty():
        yield Display()
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from hermes_exec.cli.output import make_console

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=make_console(sys.stderr), transient=True) as progress:
        display = LiveDisplay(progress)
        yield display
        display.finish()
