"""The wire formats that the clouds' SDKs speak, recorded: an upgrade that changes one is a readable difference.

    python -m tests.rigs.wire_contract            # say what differs from what is recorded
    python -m tests.rigs.wire_contract --record   # record what the installed SDKs speak

Record in the commit that raises an SDK's version, after the rig models what has changed.
"""

from __future__ import annotations

import importlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("wire")
PARTS = {
    "daytona": "tests.rigs.wire_daytona:daytona_contract",
    "modal": "tests.rigs.wire_modal:modal_contract",
}
"""By the name of the distribution: what tells of its wire format, as ``path -> description``."""


def spoken(part: str) -> dict[str, str]:
    """What the installed SDK speaks."""
    module, _, name = PARTS[part].partition(":")
    contract: dict[str, str] = getattr(importlib.import_module(module), name)()
    return contract


def recorded(part: str) -> dict[str, Any]:
    """What is recorded: the ``version`` of the SDK, and its ``wire`` format."""
    content: dict[str, Any] = json.loads((FOLDER / f"{part}.json").read_text(encoding="utf-8"))
    return content


def differences(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """What was removed, added or changed, a line each."""
    lines = [f"- {path}: {before[path]}" for path in sorted(before.keys() - now.keys())]
    lines += [f"+ {path}: {now[path]}" for path in sorted(now.keys() - before.keys())]
    changed = sorted(path for path in before.keys() & now.keys() if before[path] != now[path])
    return lines + [f"! {path}: {before[path]} -> {now[path]}" for path in changed]


def main(arguments: list[str]) -> int:
    """Say what differs, or record it."""
    failed = 0
    for part in PARTS:
        if arguments == ["--record"]:
            FOLDER.mkdir(exist_ok=True)
            content = {"version": version(part), "wire": dict(sorted(spoken(part).items()))}
            (FOLDER / f"{part}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            continue
        for line in differences(recorded(part)["wire"], spoken(part)):
            failed = 1
            print(f"{part}: {line}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
