"""Short texts of others, such as descriptions, names and summaries, as a model may read them.

A description is written by the author of a skill, and a name by the maker of a file. Neither may begin a line, a
heading or a message of its own in what a model reads: each is one bounded line, between quotes that it cannot end.
"""

from __future__ import annotations

import re

_MOST = 400
_PLAIN = re.compile(r"[A-Za-z0-9_./~+@=%,:-]+( [A-Za-z0-9_./~+@=%,:-]+)*")
"""Names that need no quotes: nothing in them could be taken for anything else."""


def flatten(text: str, most: int = _MOST) -> str:
    """``text`` as one printable line of at most ``most`` characters; what is not printable becomes ``?``."""
    flat = " ".join(text.split())
    line = flat if flat.isprintable() else "".join(each if each.isprintable() else "?" for each in flat)
    return line if len(line) <= most else f"{line[: most - 1]}…"


def quote(text: str, most: int = _MOST) -> str:
    """The same between double quotes, with backslashes before those that are in it."""
    escaped = flatten(text, most).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def quote_name(text: str, most: int = _MOST) -> str:
    """A name or a path: as it is where it is a plain one, else quoted."""
    return text if len(text) <= most and _PLAIN.fullmatch(text) else quote(text, most)
