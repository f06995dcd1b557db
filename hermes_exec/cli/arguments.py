"""Parsers of option values: durations, variables and limits."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import UsageError
from hermes_exec.terminal.encoding import parse_duration, parse_number

if TYPE_CHECKING:
    from hermes_exec.terminal.limits import Limits

_SIZE = re.compile(r"([0-9]+)\s*(|k|m|g|t)(i?b)?\Z", re.ASCII | re.IGNORECASE)
_MEBIBYTES = {"": 1 << 20, "k": 1 << 10, "m": 1, "g": 1 << 10, "t": 1 << 20}
_LIMITS = {
    "cpu": "cpu_s",
    "memory": "memory_mib",
    "processes": "processes",
    "file-size": "file_size_mib",
    "open-files": "open_files",
}
_SINCE = "30s, 10m, 2h, 3d, 2026-01-31 or 2026-01-31T18:00"
__all__ = ["parse_duration", "parse_limits", "parse_since", "parse_variables"]


def parse_variables(args: list[str]) -> dict[str, str]:
    """Return the variables of ``NAME=VALUE`` arguments; ``NAME`` alone takes its value from this process.

    Raises:
        UsageError: this process has no such variable.
    """
    found: dict[str, str] = {}
    for arg in args:
        name, equals, value = arg.partition("=")
        if not equals:
            if name not in os.environ:
                raise UsageError(f"--env {name}: no variable of that name is set here", remedy="NAME=VALUE")
            value = os.environ[name]
        found[name] = value
    return found


def parse_since(text: str) -> float:
    """Return the seconds that have passed since a time span before now, or since a date with or without a time.

    Raises:
        UsageError: the text has another form, or the date is in the future.
    """
    try:
        passed_s = time.time() - datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        try:
            return parse_duration(text)
        except UsageError:
            raise UsageError(f"--since {text!r} is not a time", remedy=_SINCE) from None
    if passed_s <= 0:
        raise UsageError(f"--since {text} is in the future", remedy=_SINCE)
    return passed_s


def parse_limits(args: list[str]) -> Limits | None:
    """Return the limits of ``memory=2G``, ``cpu=10m``, ``processes=64``, ``file-size=1G`` and ``open-files=256``.

    Raises:
        UsageError: an argument is not a limit.
    """
    from hermes_exec.terminal.limits import Limits

    found: dict[str, Any] = {}
    for arg in args:
        name, equals, value = arg.partition("=")
        if name not in _LIMITS or not equals:
            raise UsageError(f"{arg!r} is not a limit", remedy=", ".join(f"{known}=…" for known in _LIMITS))
        field = _LIMITS[name]
        if field.endswith("_s"):
            found[field] = parse_duration(value)
        elif field.endswith("_mib"):
            found[field] = _parse_mebibytes(arg, value)
        elif (number := parse_number(value)) is not None:
            found[field] = number
        else:
            raise UsageError(f"{arg!r}: not a whole number", remedy=f"{name}=64")
    return Limits(**found) if found else None


def _parse_mebibytes(arg: str, text: str) -> int:
    match = _SIZE.match(text.strip())
    if match is None:
        raise UsageError(f"{arg!r}: not a size", remedy="512M or 2G")
    unit = match[2].lower()
    number = int(match[1])
    return number * _MEBIBYTES[unit] if unit in "mgt" and unit else -(-number // _MEBIBYTES[unit])
