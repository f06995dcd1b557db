"""The smallest backend that a third party can write: the methods of the contract and nothing optional.

CONTRIBUTING.md shows this file as the example of a backend.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

import pytest

import hermes_exec
from hermes_exec.backend import Backend, Channel, Check, Receiver
from hermes_exec.errors import Unsupported
from hermes_exec.testing.output import OutputSuite
from hermes_exec.testing.running import RunningSuite
from hermes_exec.testing.sessions import SessionsSuite
from hermes_exec_backends.local.channel import ProcessChannel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.profile import Profile


class ShellBackend(Backend):
    """Child processes of /bin/sh on this machine."""

    type: ClassVar[str] = "shell-example"

    @property
    def target(self) -> str:
        """The name alone: it has no options."""
        return self.type

    @classmethod
    def from_profile(cls, profile: Profile) -> ShellBackend:
        """Create the backend."""
        return cls()

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        """Report that /bin/sh exists, as POSIX requires."""
        return [Check("sh", "ok", "/bin/sh")]

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        """Start ``argv`` through the shell."""
        search_path = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp"}
        return ProcessChannel(["/bin/sh", "-c", 'exec "$@"', "sh", *argv], receiver, {**search_path, **(env or {})})

    async def close(self, *, keep: bool = False) -> None:
        """Nothing is left."""


class TestSmallestBackend(RunningSuite, OutputSuite, SessionsSuite):
    """It passes the conformance suite; three of its topics are enough here."""

    @pytest.fixture
    def backend(self) -> Backend:
        return ShellBackend()


def test_every_optional_operation_is_refused_with_one_line() -> None:
    async def scenario() -> None:
        async with hermes_exec.open(ShellBackend(), audit=False) as terminal:
            assert not terminal.capabilities.features
            for operation in (terminal.snapshot, terminal.suspend, terminal.resume):
                with pytest.raises(Unsupported, match="shell-example: no "):
                    await operation()

    asyncio.run(scenario())
