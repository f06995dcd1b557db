"""The patterns of ``rules.toml``."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path


@functools.cache
def patterns(kind: str) -> dict[str, re.Pattern[str]]:
    """The compiled patterns of a kind, ``commands`` or ``words``, by name."""
    rules: dict[str, str] = tomllib.loads(Path(__file__).with_name("rules.toml").read_text("utf-8"))[kind]
    loose = re.IGNORECASE | re.MULTILINE if kind == "words" else re.RegexFlag(0)
    return {name: re.compile(rule, re.MULTILINE if name == "credentials" else loose) for name, rule in rules.items()}
