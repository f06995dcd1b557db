"""What the tests of SSH share: one server for most of them, and a way to run something on a host."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec_backends.ssh import SshBackend
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.coroutines import pytest_pyfunc_call
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec.result import Result
    from hermes_exec_backends.profiles.ssh import SshProfile

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(scope="module")
def sshd() -> Generator[Sshd]:
    with Sshd() as sshd:
        yield sshd


async def said_on(profile: SshProfile, command: str | list[str], **options: Any) -> Result:
    """Open the host for one command."""
    async with asyncio.timeout(PATIENCE_S):
        async with hermes_exec.open(SshBackend(profile), audit=False, **options) as terminal:
            return await terminal.run(command)


def said(profile: SshProfile, command: str | list[str] = "echo in", **options: Any) -> str:
    """What one command prints on the host."""
    result = asyncio.run(said_on(profile, command, **options))
    assert result.exit_code == 0, result
    return result.stdout_text
