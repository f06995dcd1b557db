"""This machine, as if it had no Python: each command is a process of its own."""

from __future__ import annotations

import pytest

from hermes_exec.backend import Backend
from hermes_exec.testing import Conformance
from hermes_exec_backends.local import LocalBackend


class TestLocalPlain(Conformance):
    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend()

    @pytest.fixture
    def carrier(self) -> str:
        return "plain"
