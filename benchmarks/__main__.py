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

from benchmarks.figures import Figure, as_json, table
from benchmarks.groups import GROUPS, measured

_PAGE = Path(__file__).parent.parent / "docs/benchmarks.md"
_PLACE = re.compile(r"(<!-- benchmarks -->\n).*?(<!-- end of benchmarks -->)", re.DOTALL)


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
    figures: list[Figure] = []
    # A process for each group, so that none pays for what another one has left in memory.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as processes:
        for name in GROUPS:
            if not chosen.groups or name in chosen.groups:
                print(f"{name} …", file=sys.stderr, flush=True)
                figures += processes.submit(measured, name, part).result()
    text = table(figures)
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}; medians."
    print(f"{text}\n\n{machine}")
    if chosen.json:
        chosen.json.write_text(as_json(figures) + "\n")
    if chosen.docs:
        write_page(f"{text}\n\n{machine}")
    return 0


def write_page(text: str, page: Path = _PAGE) -> None:
    """Replace the generated part of docs/benchmarks.md."""
    page.write_text(_PLACE.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page.read_text()))


if __name__ == "__main__":
    sys.exit(main())
