"""Sandboxes of bubblewrap, and an ordinary user."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import hermes_exec
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.profiles import BubblewrapProfile
from tests.rigs.bounded import PATIENCE_S

if TYPE_CHECKING:
    from hermes_exec.result import Result
    from tests.conftest import Require


class Inside(Protocol):
    """``inside("id -u", network="host")``: what a command gives in a new sandbox with these options."""

    def __call__(self, command: str, **options: Any) -> Result: ...


@pytest.fixture
def inside(require: Require) -> Inside:
    require("bwrap", "makes the sandbox")

    def run(command: str, **options: Any) -> Result:
        backend = BubblewrapBackend(BubblewrapProfile.model_validate(options))

        async def once() -> Result:
            async with asyncio.timeout(PATIENCE_S), hermes_exec.open(backend, audit=False) as terminal:
                return await terminal.run(command)

        return asyncio.run(once())

    return run


@pytest.fixture
def somebody(require: Require) -> int:
    """A user that nobody else is."""
    require("root", "becomes an ordinary user", usable=os.geteuid() == 0)
    return 61_500 + os.getpid() % 300
