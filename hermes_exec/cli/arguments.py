"""How the words of a command line are read."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from hermes_exec.terminal.limits import Limits

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(s|m|h|d|)\Z", re.ASCII)
_SIZE = re.compile(r"([0-9]+)\s*(|k|m|g|t)(i?b)?\Z", re.ASCII | re.IGNORECASE)
_MEBIBYTES = {"": 1 << 20, "k": 1 << 10, "m": 1, "g": 1 << 10, "t": 1 << 20}
_LIMITS = {
    "cpu": "cpu_s",
    "memory": "memory_mib",
    "processes": "processes",
    "file-size": "file_size_mib",
    "open-files": "open_files",
}
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


def limits(words: list[str]) -> Limits | None:
    """Limits of ``memory=2G``, ``cpu=10m``, ``processes=64``, ``file-size=1G`` and ``open-files=256``.

    Raises:
        UsageError: one of them is no limit.
    """
    from hermes_exec.terminal.limits import Limits

    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in _LIMITS or not equals:
            raise UsageError(f"{word!r} is no limit", remedy=", ".join(f"{known}=…" for known in _LIMITS))
        field = _LIMITS[name]
        if field.endswith("_s"):
            found[field] = seconds(value)
        elif field.endswith("_mib"):
            found[field] = _mebibytes(word, value)
        elif value.isascii() and value.isdigit():
            found[field] = int(value)
        else:
            raise UsageError(f"{word!r}: should be a whole number")
    return Limits(**found) if found else None


def _mebibytes(word: str, text: str) -> int:
    match = _SIZE.match(text.strip())
    if match is None:
        raise UsageError(f"{word!r} is no size", remedy="512M or 2G")
    unit = match[2].lower()
    number = int(match[1])
    return number * _MEBIBYTES[unit] if unit in "mgt" and unit else -(-number // _MEBIBYTES[unit])
