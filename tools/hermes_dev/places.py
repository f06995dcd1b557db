"""Write the README's table of places from what the last conformance run showed."""

from __future__ import annotations

import json
import re
from typing import Any

from hermes_dev.place import CACHE, ROOT, DevError

_README = ROOT / "README.md"
_SHOWN = CACHE / "conformance.json"  # written by tests/rigs/columns.py
_PLACE = re.compile(r"(<!-- places -->\n).*?(<!-- end of places -->)", re.DOTALL)


def write_table() -> int:
    """Put the table into the README.

    Raises:
        DevError: no conformance run has left its counts here, or one of its columns failed.
    """
    try:
        shown: dict[str, dict[str, Any]] = json.loads(_SHOWN.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DevError("no conformance run was made here. Try: ./dev test --provision") from None
    if failed := [name for name, seen in shown.items() if seen["failed"]]:
        raise DevError(f"behaviours failed on {', '.join(failed)}. Try: ./dev test tests/conformance")
    rows = ["| place | behaviours shown | says that it lacks |", "|---|---|---|"]
    for name, seen in sorted(shown.items()):
        if seen["passed"]:
            lacks = ", ".join(lack.replace("_", " ") for lack in sorted(seen["lacks"]))
            rows.append(f"| {name} | {seen['passed']} | {lacks or 'nothing'} |")
    text = _README.read_text(encoding="utf-8")
    table = "\n".join(rows)
    _README.write_text(_PLACE.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text), encoding="utf-8")
    return 0
