"""Modal's sandboxes, of both generations, by the SDK as it is and a server of the tests that speaks its protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.modal import ModalBackend
from tests.rigs import modal

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.backend import Backend


@pytest.fixture(scope="module", autouse=True)
def honest() -> Generator[None]:
    """What the SDK asked and the server does not model fails the run."""
    server = modal.server()
    yield
    assert server.call("problems") == []


class TestModal(Conformance):
    column = "`modal`"

    @pytest.fixture
    def backend(self) -> Backend:
        return ModalBackend(modal.profile())
