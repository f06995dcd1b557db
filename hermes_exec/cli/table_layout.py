"""The columns of a table that fit a terminal: narrowed, wrapped between words, or left out; a word is never split.

As in the lists of container tools, a cell that is too wide ends with ``…``. Prose may be wrapped instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GAP = 2
"""Spaces between two columns."""
_NARROW = 10
"""Characters to which a column is narrowed before another one is left out."""
_NARROW_PROSE = 20


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns to show, by their indices, and the width of each."""

    columns: tuple[int, ...]
    widths: tuple[int, ...]


def fit_columns(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    drop: Sequence[str] = (),
    wrap: Sequence[str] = (),
    measure: Callable[[str], int] = len,
) -> Layout:
    """Return the layout of a table for a terminal of ``width`` columns.

    Args:
        heads: the titles of the columns.
        rows: their cells.
        width: the columns of the terminal.
        drop: titles of columns that may be left out, the first one first.
        wrap: titles of columns of prose.
        measure: returns the columns that a text takes.
    """
    shown = list(range(len(heads)))
    natural = [max(measure(cells[at]) for cells in (heads, *rows)) for at in shown]
    least = [min(natural[at], max(measure(heads[at]), _NARROW_PROSE if heads[at] in wrap else _NARROW)) for at in shown]
    shown = [at for at in shown if heads[at] not in drop or any(row[at] for row in rows)]
    for title in drop:
        if _total([least[at] for at in shown]) <= width or len(shown) == 1:
            break
        shown = [at for at in shown if heads[at] != title]
    return Layout(tuple(shown), tuple(_narrow([natural[at] for at in shown], [least[at] for at in shown], width)))


def cut_cell(text: str, width: int, measure: Callable[[str], int] = len) -> str:
    """Return ``text`` in at most ``width`` columns; a longer one ends with ``…``."""
    if measure(text) <= width:
        return text
    while text and measure(text) >= width:
        text = text[:-1]
    return f"{text.rstrip()}…"


def wrap_cell(text: str, width: int, measure: Callable[[str], int] = len) -> list[str]:
    """Return the lines of ``text``, broken at spaces; a word that is too long is cut."""
    lines = [""]
    for word in text.split():
        candidate = f"{lines[-1]} {word}" if lines[-1] else word
        if measure(candidate) <= width:
            lines[-1] = candidate
        else:
            cut = cut_cell(word, width, measure)
            lines = [*lines, cut] if lines[-1] else [cut]
    return lines


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _narrow(widths: list[int], least: list[int], width: int) -> list[int]:
    """Take columns from the widest ones until the table fits, or none can be narrowed further."""
    while _total(widths) > width:
        at = max(range(len(widths)), key=lambda at: widths[at] if widths[at] > least[at] else 0)
        if widths[at] <= least[at]:
            break
        widths[at] -= 1
    return widths
