"""Write tests/durations.json, by which the suite is spread over its workers, from what the last run measured."""

from __future__ import annotations

import json

from hermes_dev.place import CACHE, ROOT, DevError

_KNOWN = ROOT / "tests" / "durations.json"
_MEASURED = CACHE / "durations.json"  # written by tests/rigs/shards.py
_LEAST_S = 3.0
"""Shorter units balance by themselves."""


def write_durations() -> int:
    """Keep the longest units; those that the last run did not have stay as they were.

    Raises:
        DevError: no run with workers was made in this checkout.
    """
    try:
        measured: dict[str, float] = json.loads(_MEASURED.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DevError("no whole run was made here. Try: ./dev test --provision") from None
    known: dict[str, float] = json.loads(_KNOWN.read_text(encoding="utf-8")) if _KNOWN.exists() else {}
    kept = {unit: seconds for unit, seconds in known.items() if (ROOT / unit.partition("::")[0]).exists()}
    merged = kept | measured
    longest = {unit: round(seconds) for unit, seconds in sorted(merged.items()) if seconds >= _LEAST_S}
    _KNOWN.write_text(json.dumps(longest, indent=1) + "\n", encoding="utf-8")
    return 0
