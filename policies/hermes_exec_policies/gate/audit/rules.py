"""The patterns of ``rules.toml``."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path


@functools.cache
def patterns(kind: str) -> dict[str, re.Pattern[str]]:
    """The compiled patterns of a kind, ``commands``, ``words`` or ``secrets``, by name."""
    rules: dict[str, str] = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))[kind]
    loose = re.IGNORECASE | re.MULTILINE if kind == "words" else re.MULTILINE
    return {name: re.compile(rule, re.MULTILINE if name == "credentials" else loose) for name, rule in rules.items()}


@functools.cache
def reached() -> dict[str, str]:
    """What no skill needs of Python's library: the code of a finding, by the full name."""
    table: dict[str, list[str]] = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))["reaches"]
    return {name: code for code, names in table.items() for name in names}
