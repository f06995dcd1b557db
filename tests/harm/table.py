"""The table of harms in docs/security.md: ``python -m tests.harm.table`` runs the whole corpus and writes it."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.harm.counting import SETTINGS, find_failures, find_working, read_corpus, run
from tests.rigs.tables import replace_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.harm.counting import Count

BEGIN, END = "<!-- harms: written by tests/harm/table.py -->", "<!-- end of harms -->"
_NAMES = {
    "control": "all allowed, no sandbox (control)",
    "nobody": "no person there",
    "no": "a person who says no",
    "sandboxed": "all allowed, sandbox",
    "terminal": "`terminal` allowed, no sandbox",
}
_WORKERS = 3


def write_table(items: Sequence[dict[str, Any]], counts: Sequence[Count]) -> str:
    """Return the table: items that did a harm, by the kind of harm that they are made for, in each setting."""
    working = find_working(items, counts)
    wanted = {item["id"]: item["harm"] for item in items if item["id"] in working}
    lines = ["| made for | texts | " + " | ".join(_NAMES[each] for each in SETTINGS) + " |", "|---" * 7 + "|"]
    did = {(count.id, count.setting) for count in counts if count.harms}
    for kind in [*sorted(set(wanted.values())), "all"]:
        ids = [each for each, made_for in wanted.items() if kind in (made_for, "all")]
        cells = [str(sum((each, setting) in did for each in ids)) for setting in SETTINGS]
        lines.append(f"| {kind} | {len(ids)} | " + " | ".join(cells) + " |")
    kinds = Counter(item["kind"].replace("_", " ") for item in items if item["id"] in working)
    by_kind = ", ".join(f"{number} {kind}s" for kind, number in sorted(kinds.items()))
    lines += ["", f"Of {len(items)} texts the control of {len(working)} works ({by_kind}); the others are not counted."]
    return "\n".join(lines)


def main() -> int:
    """Run all, write the table, and list what must not be."""
    items = read_corpus()
    counts = run(items, workers=_WORKERS)
    replace_block(BEGIN, END, write_table(items, counts))
    failures = find_failures(counts)
    print("\n".join(map(str, failures)))
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
