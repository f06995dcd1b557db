"""The Modal of the tests, terminals in sandboxes of it, and what is left there."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

import hermes_exec
from hermes_exec_backends.modal import ModalBackend
from tests.rigs import modal
from tests.rigs.bounded import PATIENCE_S, within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
    from contextlib import AbstractAsyncContextManager

    from hermes_exec.terminal.terminal import Terminal
    from tests.rigs.apart import Apart


class Opened(Protocol):
    """``async with opened(gpu="A100") as terminal``: a terminal in a sandbox with these options."""

    def __call__(self, **options: Any) -> AbstractAsyncContextManager[Terminal]: ...


@pytest.fixture
def server() -> Generator[Apart]:
    """The server, whole and with nothing alive at the start; what is not modelled fails the test."""
    made = modal.server()
    made.call("heal")
    for sandbox in made.call("alive"):
        made.call("finish", sandbox["id"], "TERMINATED", 137)
    made.call("forget_problems")
    yield made
    made.call("heal")
    assert made.call("problems") == []


@pytest.fixture
def opened(server: Apart) -> Opened:
    @contextlib.asynccontextmanager
    async def open_one(*, lease_s: float = 60.0, carrier: Any = None, **options: Any) -> AsyncGenerator[Terminal]:
        backend = ModalBackend(modal.profile(**options))
        async with hermes_exec.open(backend, audit=False, lease_s=lease_s, carrier=carrier) as terminal:
            yield terminal

    return open_one


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a test's coroutine, within a bounded time."""
    return within(55)


def ran(server: Apart, name: str = "once") -> int:
    """How many lines commands have written to /tmp/``name``, in all sandboxes that ever were, seen from outside."""
    files = [Path(sandbox["root"], "tmp", name) for sandbox in server.call("sandboxes")]
    return sum(len(file.read_text().splitlines()) for file in files if file.exists())


def wait_until_none_is_alive(server: Apart, within_s: float = PATIENCE_S) -> None:
    """Return once nothing costs anything any more."""
    give_up = time.monotonic() + within_s
    while left := server.call("alive"):
        assert time.monotonic() < give_up, f"still alive: {left}"
        time.sleep(0.05)
