"""Escaping of text from models and tools, which could move the cursor of a terminal."""

from __future__ import annotations

import shutil
import textwrap

_JOINERS = "\u200c\u200d"
"""Zero-width joiners, which Persian text and composed emoji need."""
_KEPT = frozenset(_JOINERS + "\n\t")


def escape_text(text: str) -> str:
    """Escape characters that are neither printable nor a line break or tab."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return "".join(each if each in _KEPT or each.isprintable() else ascii(each)[1:-1] for each in text)


def to_line(text: str, most: int = 100) -> str:
    """Return ``text`` as one escaped line of at most ``most`` characters."""
    flat = " ".join(escape_text(text).split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"


def wrap_words(text: str, indent: int = 0) -> str:
    """Break lines that are wider than the terminal between words, and indent what continues a line."""
    width = max(shutil.get_terminal_size().columns - 1, 2 * indent, 20)
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
        if len(line) > width
        else line
        for line in text.split("\n")
    )
