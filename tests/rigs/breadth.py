"""How much the suite does: all of it when it was provisioned or a test was named, less in the plain run."""

from __future__ import annotations

import os
import zlib

import pytest

WHOLE = os.environ.get("HERMES_DEV_SUITE") != "plain"
"""Whether engines are started and the long tests run; ``./dev test`` alone has to end within minutes."""

_ONE_IN = 10
"""Of a place that the plain run only samples, so many behaviours are left out for each that is shown."""

thorough = pytest.mark.skipif(not WHOLE, reason="takes long. Try: ./dev test --provision, or name this test")
"""Marks what the plain run leaves out."""


def leave_out(why: str) -> None:
    """Leave the calling module out of the plain run; called in its body, it spares the collecting, too."""
    if not WHOLE:
        pytest.skip(f"{why}. Try: ./dev test --provision, or name this test", allow_module_level=True)


def sampled(items: list[pytest.Item]) -> None:
    """Let the plain run show one behaviour in ten of each place among ``items``, always the same ones."""
    left_out = pytest.mark.skip(reason=f"one in {_ONE_IN} is shown of this place. Try: ./dev test --provision")
    for item in items:
        if not WHOLE and zlib.crc32(item.nodeid.encode()) % _ONE_IN:
            item.add_marker(left_out)


def examples(number: int) -> int:
    """How many examples a property is tried with."""
    return number if WHOLE else max(number // 5, 10)
