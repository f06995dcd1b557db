"""Results on standard output: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from hermes_exec.cli.console import escape_controls
from hermes_exec.cli.global_flags import flags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

COLOURS = {"ok": "green", "warning": "yellow", "missing": "red", "failed": "red", "no": "red", "yes": "green"}
"""The colours of cells, by their text."""
PROSE = ("ABOUT", "CAN", "FOUND", "MEANING", "TRY", "WHY")
"""The titles of columns that hold sentences or lists."""


def show_json(value: object) -> None:
    """Print a JSON document in UTF-8: indented on a terminal, else in one line."""
    _print_json(value, indent=2 if sys.stdout.isatty() else None)


def to_iso(seconds: float) -> str:
    """Return a time, in seconds since 1970, as ISO 8601 in UTC with milliseconds."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_times(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a copy of ``row`` for JSON: its times of these names, in seconds since 1970, as ISO 8601."""
    times = {name: to_iso(value) for name in names if isinstance(value := row.get(name), int | float)}
    return {**row, **times}


def print_json_line(value: object) -> None:
    """Print a JSON document in UTF-8 as one line of several."""
    _print_json(value, indent=None)


def _print_json(value: object, *, indent: int | None) -> None:
    import json

    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # a name that is not text, or a stream with a smaller character set
        text = json.dumps(value, indent=indent)
    print(flags.clean(text), flush=True)


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, drop: Sequence[str] = ()) -> None:
    """Print a table. On a pipe, at least two spaces separate the columns, and no cell is cut.

    On a terminal that is too narrow, cells are cut, those of `PROSE` are wrapped between words, and those of
    ``drop`` are left out, the first one first. ``drop`` also names columns that are left out if they are empty.
    """
    clean = [[escape_controls(flags.clean(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_on_terminal(heads, clean, drop)
        return
    for line in align_columns([heads, *clean]):
        print(line)


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as lines, with each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def make_console(stream: TextIO) -> Console:
    """Return a rich console for a terminal."""
    from rich.console import Console

    return Console(file=stream, highlight=False, soft_wrap=False)


def _print_on_terminal(heads: Sequence[str], rows: Sequence[Sequence[str]], drop: Sequence[str]) -> None:
    from rich.cells import cell_len
    from rich.text import Text

    from hermes_exec.cli.table_layout import GAP, cut_cell, fit_columns, wrap_cell

    console = make_console(sys.stdout)
    layout = fit_columns(heads, rows, console.width, drop=drop, wrap=PROSE, measure=cell_len)
    for number, row in enumerate([heads, *rows]):
        cells = [
            wrap_cell(row[at], width, cell_len) if heads[at] in PROSE else [cut_cell(row[at], width, cell_len)]
            for at, width in zip(layout.columns, layout.widths, strict=True)
        ]
        for at in range(max(map(len, cells))):
            line = Text()
            for cell, width in zip(cells, layout.widths, strict=True):
                text = cell[at] if at < len(cell) else ""
                line.append(text, style="bold" if number == 0 else COLOURS.get(text, ""))
                line.append(" " * (width - cell_len(text) + GAP))
            line.rstrip()
            console.print(line, no_wrap=True, crop=False, overflow="ignore")
