"""Text of a model or of a tool, made safe to show: neither may move a terminal's cursor."""

from __future__ import annotations

_JOINERS = "\u200c\u200d"
"""Zero-width, but letters of Persian and faces of families need them."""
_KEPT = frozenset(_JOINERS + "\n\t")


def escape_text(text: str) -> str:
    """``text`` with everything escaped that is neither printable, a line break nor a tab."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return "".join(each if each in _KEPT or each.isprintable() else ascii(each)[1:-1] for each in text)


def to_line(text: str, most: int = 100) -> str:
    """``text`` as one line of at most ``most`` characters, safe to show."""
    flat = " ".join(escape_text(text).split())
    return flat if len(flat) <= most else f"{flat[: most - 1]}…"
