"""Results on standard output: tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from hermes_exec.cli.console import printable
from hermes_exec.cli.global_flags import flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

MARKS = {"ok": "green", "warning": "yellow", "missing": "red", "failed": "red", "no": "red", "yes": "green"}
"""Words that stand alone in a cell and have a colour there."""


def show_json(value: object) -> None:
    """One JSON document: in lines for people, in one line for programs. It is UTF-8, whatever names are in it."""
    import json

    indent = 2 if sys.stdout.isatty() else None
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding)
    except UnicodeEncodeError:  # a name that is no text, or a stream that takes less than all text
        text = json.dumps(value, indent=indent)
    print(flags.clean(text), flush=True)


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; on a pipe its columns are separated by at least two spaces, and nothing is cut."""
    clean = [[printable(flags.clean(cell)) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(heads, clean)
        return
    for line in columns([heads, *clean]):
        print(line)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def console(stream: TextIO) -> Console:
    """Rich, for a terminal."""
    from rich.console import Console

    return Console(file=stream, highlight=False, soft_wrap=False)


def _rich_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=MARKS.get(cell, "")) for cell in row))
    console(sys.stdout).print(table)
