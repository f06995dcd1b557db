"""Positive controls of the hostile acts: ``python -m tests.rigs.controls`` runs each without a sandbox, and records it.

An act that does nothing without a sandbox proves nothing about one. So each runs as root in a throw-away virtual
machine (``vm``), where everything that the acts look for is planted. An act works there if it says so, if a listener is
reached, if it makes its marks, or if only a clock ends it; an act on the kernel also if the kernel itself takes the
call, and refuses nothing but its arguments. The working ones are listed in ``corpus/controls.json``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.rigs import hostile, vm

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "gate" / "corpus" / "hostile.jsonl"
LIST = CORPUS.with_name("controls.json")
_SECONDS = 1500.0
_DRIVER = Path(__file__).with_name("controls_driver.py")


def read_controls() -> dict[str, str]:
    """Return how each act works without a sandbox, by its id."""
    found: dict[str, str] = json.loads(LIST.read_text(encoding="utf-8"))
    return found


def counted_acts() -> list[dict[str, Any]]:
    """Return the acts whose control works; the others prove nothing."""
    working = read_controls()
    return [item for item in hostile.acts(CORPUS) if item["id"] in working]


def run(items: list[dict[str, Any]]) -> dict[str, str]:
    """Run acts in a throw-away virtual machine; return how each works there, empty if it does not."""
    with tempfile.TemporaryDirectory(prefix="hx-controls-", dir="/var/tmp") as folder:
        share = Path(folder)
        (share / "items.json").write_text(json.dumps(items), encoding="utf-8")
        (share / "driver.py").write_text(_DRIVER.read_text(encoding="utf-8"), encoding="utf-8")
        done = vm.run(["/usr/bin/python3", "-I", "/share/driver.py"], share, seconds=_SECONDS)
        if done.code:
            raise RuntimeError(done.err[-2000:])
        lines = (share / "found").read_text(encoding="utf-8").splitlines()
        return {each["id"]: each["works"] for each in map(json.loads, lines)}


def main(only: list[str]) -> int:
    """Run all acts, or those named, and record which work."""
    items = [item for item in hostile.acts(CORPUS) if not only or item["id"] in only]
    found = run(items)
    known = read_controls() if LIST.exists() else {}
    for item in items:
        known.pop(item["id"], "")
    known |= {name: how for name, how in found.items() if how}
    LIST.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")
    print(f"controls: {sum(map(bool, found.values()))} of {len(items)}")
    print("without:", ", ".join(item["id"] for item in items if not found.get(item["id"])) or "none")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
