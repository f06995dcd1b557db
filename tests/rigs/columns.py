"""What each place showed in the conformance run; ``./dev generate --places`` writes it to docs/conformance.md.

A column is a class of tests/conformance with a ``column``: the place's name as people read it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / ".cache" / "conformance.json"
_LACKS = re.compile(r"says that it has no (\w+)")
_columns: dict[str, dict[str, Any]] = {}


def count(column: str, outcome: str, reason: str) -> None:
    """One behaviour was shown, was not, or is none that the place promises."""
    seen = _columns.setdefault(column, {"passed": 0, "failed": 0, "lacks": []})
    if outcome in seen:
        seen[outcome] += 1
    for lack in _LACKS.findall(reason):
        if lack not in seen["lacks"]:
            seen["lacks"].append(lack)


def write() -> None:
    """Keep what this run showed, beside what earlier ones did of other columns."""
    if _columns:
        known: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps({**known, **_columns}, indent=1), encoding="utf-8")
