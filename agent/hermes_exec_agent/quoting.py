"""Quote untrusted texts, such as descriptions, names, summaries and pages, for a model.

The author of a skill writes its description, and any user may name a file. Neither text may start a line, a heading or
a message of its own in a prompt: a short one becomes one bounded line, between quotes that it cannot close, and each
line of a longer one gets a mark.
"""

from __future__ import annotations

import re

_MOST = 400
_PLAIN = re.compile(r"[A-Za-z0-9_./~+@=%,:-]+( [A-Za-z0-9_./~+@=%,:-]+)*")
"""Names that need no quotes, as they have no character with a meaning elsewhere."""


def flatten(text: str, most: int = _MOST) -> str:
    """Return ``text`` as one line of at most ``most`` characters; unprintable ones become ``?``."""
    flat = " ".join(text.split())
    line = flat if flat.isprintable() else "".join(each if each.isprintable() else "?" for each in flat)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def quote(text: str, most: int = _MOST) -> str:
    """Return the text as `flatten` does, between double quotes, with quotes and backslashes in it escaped."""
    escaped = flatten(text, most).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def quote_lines(text: str) -> str:
    """Return a longer text with ``>`` before each of its lines, so that none of them can pass for the program's."""
    return "\n".join(f"> {_to_plain(line)}".rstrip() for line in text.splitlines())


def _to_plain(line: str) -> str:
    return line if line.isprintable() else "".join(each if each.isprintable() else " " for each in line)


def quote_name(text: str) -> str:
    """Return a name or path unchanged if it is plain, else quoted."""
    return text if len(text) <= _MOST and _PLAIN.fullmatch(text) else quote(text)
