"""A place whose channels break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import SuiteTarget
from tests.faults.rig import CuttingBackend

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture
def backend() -> CuttingBackend:
    return CuttingBackend()


@pytest.fixture
def place(backend: CuttingBackend) -> Generator[SuiteTarget]:
    place = SuiteTarget(backend, "guest")
    yield place
    place.close()
