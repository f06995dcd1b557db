"""The rig's service, and terminals in its sandboxes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import hermes_exec
from hermes_exec_backends.daytona import DaytonaBackend
from tests.rigs import daytona_rig
from tests.rigs.bounded import within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
    from contextlib import AbstractAsyncContextManager

    from hermes_exec.terminal.terminal import Terminal
    from tests.rigs.daytona_server import Daytona


class Opened(Protocol):
    """``async with opened(network="blocked") as terminal``: a terminal in a new sandbox with these options."""

    def __call__(self, **options: Any) -> AbstractAsyncContextManager[Terminal]: ...


@pytest.fixture
def daytona() -> Generator[Daytona]:
    """The service; no test may leave a sandbox there."""
    for service in daytona_rig.checked():
        yield service
        left = [sandbox.name for sandbox in service.sandboxes.values()]
        service.do(service.clear())
        assert not left


@pytest.fixture
def backend(daytona: Daytona) -> Callable[..., DaytonaBackend]:
    """``backend(cpu=2)``: one with these options."""

    def make(**options: Any) -> DaytonaBackend:
        return DaytonaBackend(daytona_rig.profile(daytona, **options))

    return make


@pytest.fixture
def opened(backend: Callable[..., DaytonaBackend]) -> Opened:
    @contextlib.asynccontextmanager
    async def open_one(**options: Any) -> AsyncGenerator[Terminal]:
        async with hermes_exec.open(backend(**options), audit=False) as terminal:
            yield terminal

    return open_one


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a test's coroutine, within a bounded time."""
    return within(55)
