"""Results on standard output: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from hermes_exec.cli.console import escape_controls
from hermes_exec.cli.global_flags import flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

COLOURS = {"ok": "green", "warning": "yellow", "missing": "red", "failed": "red", "no": "red", "yes": "green"}
"""The colours of cells, by their text."""


def show_json(value: object) -> None:
    """Print a JSON document in UTF-8: indented on a terminal, else in one line."""
    _print_json(value, indent=2 if sys.stdout.isatty() else None)


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


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; on a pipe, at least two spaces separate the columns, and no cell is cut."""
    clean = [[escape_controls(flags.clean(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich_table(heads, clean)
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


def _print_rich_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    make_console(sys.stdout).print(table)
