"""``jobs --watch``: print the jobs, then a line for each one that begins, changes its state or ends."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from hermes_exec.cli.console import escape_controls, note
from hermes_exec.cli.find_jobs import Guest, guests_with_jobs, refresh_guest
from hermes_exec.cli.global_flags import flags
from hermes_exec.cli.jobs import DROPPED, HEADS, job_row, job_to_json, pty_row, pty_to_json
from hermes_exec.cli.output import align_columns, print_json_line, to_iso
from hermes_exec.cli.table_layout import GAP, cut_cell, fit_columns
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.terminal.pty_status import PtyStatus

_EVERY_S = 1.0
"""Seconds between two looks at the jobs."""
_WIDTHS = (12, 12, 16, 16, 8, 10, 20)
"""The least widths of the columns, which do not move when longer rows follow."""
_LEAST_COMMAND = 20


async def watch_jobs(on: str | None, *, json: bool) -> int:
    """Print jobs and kept shells until the task is cancelled."""
    printer = _Printer(json=json)
    async with AsyncExitStack() as stack:
        guests: dict[str, Guest] = {}
        seen: set[str] = set()
        while True:
            for guest in await stack.enter_async_context(guests_with_jobs(on, known=seen)):
                guests[guest.record.id] = guest
                seen.add(guest.record.id)
            for id, guest in list(guests.items()):
                try:
                    await _look(guest, printer)
                except HermesError as error:
                    note(f"{guest.record.target}: its jobs are no longer watched: {error}")
                    del guests[id]
            await asyncio.sleep(_EVERY_S)


async def _look(guest: Guest, printer: _Printer) -> None:
    """Print what has changed in one guest since the last look."""
    await refresh_guest(guest)
    for job in guest.jobs:
        printer.show_job(guest.record.target, job)
    for shell in guest.ptys:
        printer.show_shell(guest.record.target, shell)


class _Printer:
    """Prints a row when its state differs from the one that was printed before."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._states: dict[tuple[str, str], object] = {}

    def show_job(self, target: str, job: JobStatus) -> None:
        """Print a job that is new or has changed."""
        state = (job.state, job.name, job.note, None if job.result is None else job.result.reason)
        if self._is_news((target, job.id), state):
            self._print(job_row(target, job), job_to_json(target, job))

    def show_shell(self, target: str, shell: PtyStatus) -> None:
        """Print a kept shell that is new or has changed."""
        if self._is_news((target, shell.name), (shell.ended, shell.views)):
            row = pty_row(target, shell)
            self._print(row, pty_to_json(target, shell))

    def _is_news(self, key: tuple[str, str], state: object) -> bool:
        is_news = self._states.get(key) != state
        if is_news and not self._states and not self._json:
            self._print_row(HEADS)
        self._states[key] = state
        return is_news

    def _print(self, row: list[str], data: dict[str, Any]) -> None:
        if self._json:
            print_json_line({"at": to_iso(time.time()), **data})
        else:
            self._print_row([escape_controls(flags.clean(cell)) for cell in row])

    def _print_row(self, row: list[str] | tuple[str, ...]) -> None:
        if sys.stdout.isatty():
            print(_fit_row(row), flush=True)
            return
        padded = [cell.ljust(width) for cell, width in zip(row, _WIDTHS, strict=False)]
        print(*align_columns([[*padded, *row[len(padded) :]]]), flush=True)


def _fit_row(row: Sequence[str]) -> str:
    """Return a line that fits the terminal, with cells cut and columns left out as in the list of ``jobs``."""
    from rich.cells import cell_len, set_cell_size

    columns = shutil.get_terminal_size().columns
    widths = [*_WIDTHS, max(columns - sum(_WIDTHS) - GAP * len(_WIDTHS), _LEAST_COMMAND)]
    layout = fit_columns(HEADS, [["x" * width for width in widths]], columns, drop=DROPPED)
    cells = [cut_cell(row[at], width, cell_len) for at, width in zip(layout.columns, layout.widths, strict=True)]
    padded = [set_cell_size(cell, width) for cell, width in zip(cells, layout.widths, strict=True)]
    return (" " * GAP).join(padded).rstrip()
