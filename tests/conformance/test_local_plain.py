"""This machine, as if it had no Python: each command is a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec_backends.local import LocalBackend
from tests.rigs.agent_task import AgentTask

if TYPE_CHECKING:
    from hermes_exec.backend import Backend


class TestLocalPlain(Conformance, AgentTask):
    column = "`local`, no Python there"

    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend()

    @pytest.fixture
    def carrier(self) -> str:
        return "plain"
