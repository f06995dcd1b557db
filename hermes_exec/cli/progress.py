"""A progress display on standard error while bytes move, where a person looks at it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hermes_exec.cli.global_flags import flags

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.files.info import Progress


@contextmanager
def moving(label: str) -> Generator[Progress | None]:
    """Give what transfers call with their progress; None where nobody would see it."""
    if flags.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Display

    from hermes_exec.cli.console import printable
    from hermes_exec.cli.output import console

    about = TextColumn("{task.description}", markup=False)
    columns = (about, BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Display(*columns, console=console(sys.stderr), transient=True) as display:
        task = display.add_task(printable(label), total=None)

        def show(done: int, total: int, files: int, of: int) -> None:
            counted = f"{label} ({files}/{of})" if of > 1 else label
            display.update(task, completed=done, total=total, description=printable(counted))

        yield show


def size(count: int) -> str:
    """Bytes as people say them."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
