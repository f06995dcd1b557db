"""Modal's sandboxes, by the SDK as it is and a server of the tests that speaks its protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import Conformance
from hermes_exec.testing.connection import ConnectionSuite
from hermes_exec.testing.input import InputSuite
from hermes_exec.testing.isolation import IsolationSuite
from hermes_exec.testing.killing import KillingSuite
from hermes_exec.testing.output import OutputSuite
from hermes_exec.testing.quiet import QuietSuite
from hermes_exec.testing.running import RunningSuite
from hermes_exec_backends.modal import ModalBackend
from tests.rigs import modal
from tests.rigs.agent_task import AgentTask

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.backend import Backend


@pytest.fixture(scope="module", autouse=True)
def honest() -> Generator[None]:
    """What the SDK asked and the server does not model fails the run."""
    server = modal.server()
    yield
    assert server.call("problems") == []


class TestModal(Conformance, AgentTask):
    column = "`modal`"
    limit_s = 60.0  # each new sandbox takes a second on a busy machine

    @pytest.fixture
    def backend(self) -> Backend:
        return ModalBackend(modal.profile())


class TestModalFirstGeneration(RunningSuite, ConnectionSuite, IsolationSuite):
    """The vendor's older sandboxes differ in how they are made and found, and not in how their execs are reached."""

    @pytest.fixture
    def backend(self) -> Backend:
        return ModalBackend(modal.profile(generation="v1"))


class TestModalPlain(RunningSuite, OutputSuite, InputSuite, KillingSuite, IsolationSuite, QuietSuite, AgentTask):
    """Without those of streams: the SDK takes 64 MiB ahead of a reader that waits."""

    column = "`modal`, no Python there"
    limit_s = 60.0  # each command is an exec of its own

    @pytest.fixture
    def backend(self) -> Backend:
        return ModalBackend(modal.profile())

    @pytest.fixture
    def carrier(self) -> str:
        return "plain"
