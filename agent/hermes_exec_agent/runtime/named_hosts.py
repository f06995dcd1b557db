"""The hosts that texts name."""

from __future__ import annotations

import re

_HOST = re.compile(r"(?:(?<=://)|(?<![\w.@-]))((?:[a-z0-9-]+\.)+[a-z0-9-]+|localhost|\[[0-9a-f:]+\])", re.IGNORECASE)


def find_hosts(text: str) -> set[str]:
    """Return the hosts that a text names, in lower case: in addresses, and as words such as ``example.org``."""
    return {each.lower() for each in _HOST.findall(text)}
