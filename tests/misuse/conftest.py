"""Tests of what people write by mistake; nothing of theirs is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rigs.coroutines import pytest_pyfunc_call

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(autouse=True)
def _own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
