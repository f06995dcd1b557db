"""The conformance suite: tests of the required behaviours of every backend, which a backend joins with five lines.

    class TestMine(Conformance):
        @pytest.fixture
        def backend(self) -> Backend:
            return MyBackend()

docs/conformance.md describes how to run it, what it promises and how to add a behaviour. It needs pytest.
"""

from __future__ import annotations

import pytest

_TOPICS = (
    "running", "output", "input", "streams", "killing", "isolation", "sessions", "state", "machinery",
    "connection", "jobs", "interactive", "files", "ports", "limiting", "quiet",
)  # fmt: skip
pytest.register_assert_rewrite("hermes_exec.testing.place", *(f"hermes_exec.testing.{topic}" for topic in _TOPICS))

from hermes_exec.testing.behaviours import Behaviours, needs  # noqa: E402  failures show values from here on
from hermes_exec.testing.place import SuiteTarget  # noqa: E402  likewise
from hermes_exec.testing.suite import Conformance  # noqa: E402  likewise

__all__ = ["Behaviours", "Conformance", "SuiteTarget", "needs"]
