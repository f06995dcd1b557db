"""The SDK in use is the one whose wire format is recorded; an upgrade shows here what it changes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.rigs.wire_daytona import daytona_contract

RECORDED = Path(__file__).with_name("contract.json")


def test_the_sdk_speaks_as_it_was_recorded() -> None:
    recorded: dict[str, str] = json.loads(RECORDED.read_text(encoding="utf-8"))
    now = daytona_contract()
    changed = [
        f"{key}: {recorded.get(key, 'not there')} -> {now.get(key, 'gone')}"
        for key in sorted(recorded.keys() | now.keys())
        if recorded.get(key) != now.get(key)
    ]
    assert not changed, (
        "the SDK has changed; after looking at each: "
        "python -m tests.rigs.wire_daytona > tests/daytona/contract.json\n" + "\n".join(changed)
    )
