"""``./dev bench``: run the benchmarks, print their table, and write it to docs/benchmarks.md on request."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.figures import Figure, Table, as_json, show
from benchmarks.groups import GROUPS, measured

_PAGE = Path(__file__).parent.parent / "docs/benchmarks.md"
_OF_ITS_OWN = ("bridges", "fleet", "gateway", "learning", "mcp", "memory", "recall", "reviews")
"""Groups that have a part of the page for themselves, so that they can be measured alone."""


def main() -> int:
    """Run the benchmarks that the command line names."""
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"{', '.join(GROUPS)}; all if left out")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds and sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures for machines")
    parser.add_argument("--docs", action="store_true", help="write the table to docs/benchmarks.md")
    chosen = parser.parse_args()
    part = 10 if chosen.quick else 1
    if unknown := set(chosen.groups) - set(GROUPS):
        parser.error(f"no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    main_table = [name for name in GROUPS if name not in _OF_ITS_OWN]
    if chosen.docs and 0 < len(set(main_table) & set(chosen.groups)) < len(main_table):
        parser.error(
            f"--docs would leave groups out of the main table; name no group, all of {', '.join(main_table)}, "
            f"or only groups of {', '.join(_OF_ITS_OWN)}"
        )
    results: dict[str, list[Figure | Table]] = {}
    # A process for each group, so that none pays for what another one has left in memory.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as processes:
        for name in GROUPS:
            if not chosen.groups or name in chosen.groups:
                print(f"{name} …", file=sys.stderr, flush=True)
                place = name if name in _OF_ITS_OWN else "benchmarks"
                results.setdefault(place, []).extend(processes.submit(measured, name, part).result())
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}; medians."
    for place, each in results.items():
        text = f"{show(each)}\n\n{machine}"
        print(text)
        if chosen.docs:
            write_page(text, place=place)
    if chosen.json:
        chosen.json.write_text(as_json([figure for each in results.values() for figure in each]) + "\n")
    return 0


def write_page(text: str, page: Path = _PAGE, place: str = "benchmarks") -> None:
    """Replace a generated part of docs/benchmarks.md."""
    part = re.compile(f"(<!-- {place} -->\n).*?(<!-- end of {place} -->)", re.DOTALL)
    page.write_text(part.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page.read_text()))


if __name__ == "__main__":
    sys.exit(main())
