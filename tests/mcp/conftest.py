"""Servers and clients of the Model Context Protocol, as processes of their own, with a person's folders of one test."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from mcp import Client, StdioServerParameters

from tests.cli.conftest import COMMAND, cli, nap, running, until
from tests.rigs.bounded import within

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.cli.conftest import Cli

__all__ = ["cli", "nap", "running", "until"]


class Serving(Protocol):
    """``async with serving("--on", "local") as client``: the SDK's own client of ``mcp serve`` over its pipes."""

    def __call__(self, *words: str, mode: str = "auto") -> AbstractAsyncContextManager[Client]: ...


@pytest.fixture
def run() -> Callable[[Awaitable[Any]], Any]:
    """Run a test's coroutine, within a bounded time."""
    return within(100)


@pytest.fixture
def serving(cli: Cli) -> Serving:
    @asynccontextmanager
    async def serve(*words: str, mode: str = "auto") -> AsyncGenerator[Client]:
        program, *rest = COMMAND
        server = StdioServerParameters(
            command=program, args=[*rest, "mcp", "serve", *words], env=cli.env, cwd=str(cli.cwd)
        )
        async with Client(server, mode=mode) as client:
            yield client

    return serve
