"""A progress bar for transfers, on standard error where that is a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_exec.cli.global_flags import flags

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.files.info import Progress


@contextmanager
def show_progress(label: str) -> Generator[Progress | None]:
    """Yield the callback for the progress of a transfer; None where no terminal shows it."""
    if flags.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Display

    from hermes_exec.cli.console import escape_controls
    from hermes_exec.cli.output import make_console

    about = TextColumn("{task.description}", markup=False)
    columns = (about, BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Display(*columns, console=make_console(sys.stderr), transient=True) as display:
        task = display.add_task(escape_controls(label), total=None)

        def show(done: int, total: int, files: int, of: int) -> None:
            counted = f"{label} ({files}/{of})" if of > 1 else label
            display.update(task, completed=done, total=total, description=escape_controls(counted))

        yield show


def format_size(count: int) -> str:
    """Format a number of bytes in B, KiB, MiB or GiB."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
