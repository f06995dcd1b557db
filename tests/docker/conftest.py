"""The engine, and terminals in containers of it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import hermes_exec
from hermes_exec_backends.docker import DockerBackend
from tests.rigs.bounded import within
from tests.rigs.docker_engine import DEBIAN, Engine, engine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager

    from hermes_exec.terminal.terminal import Terminal


class Opened(Protocol):
    """``async with opened(read_only=True) as terminal``: a terminal in a new container with these options."""

    def __call__(
        self, image: str = DEBIAN, carrier: str | None = None, **options: Any
    ) -> AbstractAsyncContextManager[Terminal]: ...


@pytest.fixture
def dock() -> Engine:
    return engine()


@pytest.fixture
def opened(dock: Engine) -> Opened:
    @contextlib.asynccontextmanager
    async def open_one(image: str = DEBIAN, carrier: str | None = None, **options: Any) -> AsyncGenerator[Terminal]:
        backend = DockerBackend(dock.profile(image, **options))
        chosen: Any = carrier
        async with hermes_exec.open(backend, audit=False, carrier=chosen) as terminal:
            yield terminal

    return open_one


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a test's coroutine, within a bounded time."""
    return within(50)
