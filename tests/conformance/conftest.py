"""The plain run shows every behaviour on this machine, and of the other places some."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.rigs.breadth import sampled

if TYPE_CHECKING:
    import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sampled([item for item in items if item.path.parent == HERE and item.path.name != "test_local.py"])
