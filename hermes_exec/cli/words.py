"""How the words of a command line are read."""

from __future__ import annotations

import os
import re

from hermes_exec.errors import UsageError

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(s|m|h|d|)\Z", re.ASCII)
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """Seconds of ``90``, ``1.5``, ``10m``, ``2h`` or ``1d``.

    Raises:
        UsageError: it is none of these.
    """
    match = _DURATION.match(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no duration", remedy="90, 1.5s, 10m, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2]]


def variables(words: list[str]) -> dict[str, str]:
    """Variables of ``NAME=VALUE``, and of ``NAME`` with the value that it has here.

    Raises:
        UsageError: a name without a value has none here either.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            if name not in os.environ:
                raise UsageError(f"--env {name}: no variable of that name is set here", remedy="NAME=VALUE")
            value = os.environ[name]
        found[name] = value
    return found
