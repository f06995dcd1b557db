"""Results and lists as HTML, for notebooks. Output and names come from targets, so all of it is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_TEXT = 20_000
"""Characters of an output that are shown, from its head and its tail."""
MOST_ROWS = 200
"""Rows of a table that are shown."""
_PRE = "margin:0; padding:2px 6px; white-space:pre-wrap"


def format_text(text: str) -> str:
    """Return untrusted text for HTML: escaped, with visible control characters, without its middle if it is long."""
    if len(text) > MOST_TEXT:
        half = MOST_TEXT // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
    return escape("".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text))


def format_line(text: str) -> str:
    """Return untrusted text for one line of HTML."""
    return format_text(text).replace("\n", r"\n").replace("\t", r"\t")


def format_output(text: str, *, failed: bool = False) -> str:
    """Return an output as a block of its own; empty for no output."""
    if not text:
        return ""
    colour = "; border-left:3px solid #c33" if failed else ""
    return f'<pre style="{_PRE}{colour}">{format_text(text)}</pre>'


def format_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; rows after the 200th are counted only."""
    head = "".join(f"<th>{format_line(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{format_line(cell)}</td>' for cell in row)}</tr>" for row in rows[:MOST_ROWS])
    left_out = len(rows) - MOST_ROWS
    more = f"<p>… and {left_out:,} more</p>" if left_out > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
