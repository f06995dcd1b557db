"""This machine, with the guest."""

from __future__ import annotations

import pytest

from hermes_exec.backend import Backend
from hermes_exec.testing import Conformance
from hermes_exec_backends.local import LocalBackend


class TestLocal(Conformance):
    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend()
