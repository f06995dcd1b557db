"""How much the suite does: all of it when it was provisioned or a test was named, less in the plain run.

The plain run starts no engine, leaves out what is marked ``thorough``, and takes samples of the rest: always the same.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

WHOLE = os.environ.get("HERMES_DEV_SUITE") != "plain"
"""Whether engines are started and the long tests run; ``./dev test`` alone has to end within minutes."""

_OF_PARAMETERS = 6
"""Of the parameters of a test, one in so many is tried."""
_OF_PLACES = 10
"""Of a place that is not this machine, one behaviour in so many is shown."""
_OF_TESTS = dict.fromkeys(
    ("bubblewrap", "build", "chat", "cli", "daytona", "deploy", "gate", "http", "modal", "models", "policies", "pool",
     "runtime", "sandbox", "shared", "skills", "tools"), 4
)  # fmt: skip
"""Of the tests below a folder, one in so many is run; of those that are not named, each."""

thorough = pytest.mark.skipif(not WHOLE, reason="takes long. Try: ./dev test --provision, or name this test")
"""Marks what the plain run leaves out."""


def leave_out(why: str) -> None:
    """Leave the calling module out of the plain run; called in its body, it spares the collecting, too."""
    if not WHOLE:
        pytest.skip(f"{why}. Try: ./dev test --provision, or name this test", allow_module_level=True)


def sampled(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """What the plain run takes of ``items``, and what it does not: of each group the first, and then one in so many."""
    taken: list[pytest.Item] = []
    left: list[pytest.Item] = []
    seen: Counter[str] = Counter()
    for item in items:
        if WHOLE or thorough.mark in item.iter_markers():
            taken.append(item)
            continue
        group, one_in = _group(item)
        (left if seen[group] % one_in else taken).append(item)
        seen[group] += 1
    return taken, left


def _group(item: pytest.Item) -> tuple[str, int]:
    module, folder = item.nodeid.partition("::")[0], item.path.parent.name
    if folder == "conformance" and item.path.name != "test_local.py":
        return module, _OF_PLACES
    if folder in _OF_TESTS:
        return module, _OF_TESTS[folder]
    return item.nodeid.partition("[")[0], _OF_PARAMETERS


def examples(number: int) -> int:
    """How many examples a property is tried with."""
    return number if WHOLE else max(number // 5, 10)
