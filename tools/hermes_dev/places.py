"""Write the table of targets in docs/conformance.md from the results of the last conformance run."""

from __future__ import annotations

import json
import re
from typing import Any

from hermes_dev.place import CACHE, ROOT, DevError

_PAGE = ROOT / "docs/conformance.md"
_RESULTS = CACHE / "conformance.json"  # written by tests/rigs/columns.py
_PLACE = re.compile(r"(<!-- places -->\n).*?(<!-- end of places -->)", re.DOTALL)


def write_table() -> int:
    """Write the table to docs/conformance.md.

    Raises:
        DevError: there are no results of a conformance run, or a behaviour failed in it.
    """
    try:
        shown: dict[str, dict[str, Any]] = json.loads(_RESULTS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DevError("no conformance run was made here. Try: ./dev test --provision") from None
    if failed := [name for name, seen in shown.items() if seen["failed"]]:
        raise DevError(f"behaviours failed on {', '.join(failed)}. Try: ./dev test tests/conformance")
    rows = ["| target | behaviours shown | declared as missing |", "|---|---|---|"]
    for name, seen in sorted(shown.items()):
        if seen["passed"]:
            lacks = ", ".join(lack.replace("_", " ") for lack in sorted(seen["lacks"]))
            rows.append(f"| {name} | {seen['passed']} | {lacks or 'nothing'} |")
    text = _PAGE.read_text(encoding="utf-8")
    table = "\n".join(rows)
    _PAGE.write_text(_PLACE.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text), encoding="utf-8")
    return 0
