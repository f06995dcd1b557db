"""A guest that really runs, of this Python and of the oldest one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import PATIENCE_S, until
from tests.rigs.breadth import thorough
from tests.rigs.pythons import PYTHON_3_6

if TYPE_CHECKING:
    from hermes_exec.backend import BackendTraits, Channel, Receiver

Scenario = Callable[[Link], Awaitable[None]]
Live = Callable[[Scenario], None]


class Place(LocalBackend):
    """This machine, seen by the given interpreter; an old one cannot take our compiled code.

    The way to it is open while ``way`` is set.
    """

    def __init__(self, python: str = "") -> None:
        self.way = asyncio.Event()
        self.way.set()
        self._python = python
        self._channels: list[Channel] = []

    @property
    def traits(self) -> BackendTraits:
        traits = super().traits
        return replace(traits, pythons=(self._python,), same_python=False) if self._python else traits

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        await self.way.wait()
        self._channels.append(await super().spawn(argv, receiver, env=env))
        return self._channels[-1]

    async def close(self, *, keep: bool = False) -> None:
        """Wait for the processes behind channels that were cut: they end with their guest."""
        for channel in self._channels:
            await asyncio.to_thread(vars(channel)["_process"].wait, 20)


@pytest.fixture(params=["this python", pytest.param("python 3.6", marks=thorough)])
def backend(request: pytest.FixtureRequest) -> Place:
    if request.param == "this python":
        return Place()
    if not PYTHON_3_6:
        pytest.skip("no Python 3.6 on this machine. Try: HERMES_EXEC_PYTHON36=/path/to/python3.6")
    return Place(PYTHON_3_6)


@pytest.fixture
def live(backend: Place) -> Live:
    """Run a scenario with a link to a new guest, and close the link."""

    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            link = Link(backend, env={}, cwd=None)
            await link.open()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await scenario(link)
            finally:
                await link.close()
                await backend.close()
            assert b"Traceback" not in vars(link)["_attempt"].stderr  # of a fault in the guest's loop

        asyncio.run(whole())

    return run


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """Wait for what nobody tells of, a minute at most."""
    return until
