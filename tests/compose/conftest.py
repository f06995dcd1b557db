"""Boxes as a type that profiles and targets can name."""

from __future__ import annotations

import pytest

from hermes_exec.config import registry


@pytest.fixture(autouse=True)
def boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the boxes of tests/rigs to the types."""
    row = registry.BuiltInType("tests.rigs.boxes:BoxProfile", "tests.rigs.boxes:Box")
    monkeypatch.setitem(registry.BUILT_INS, "box", row)
