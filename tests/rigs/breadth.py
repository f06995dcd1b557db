"""How much the suite does: all of it when it was provisioned or a test was named, less in the plain run."""

from __future__ import annotations

import os

import pytest

WHOLE = os.environ.get("HERMES_DEV_SUITE") != "plain"
"""Whether engines are started and the long tests run; ``./dev test`` alone has to end within minutes."""

thorough = pytest.mark.skipif(not WHOLE, reason="takes long. Try: ./dev test --provision, or name this test")
"""Marks what the plain run leaves out."""


def examples(number: int) -> int:
    """How many examples a property is tried with."""
    return number if WHOLE else max(number // 5, 10)
