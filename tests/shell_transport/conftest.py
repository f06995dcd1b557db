"""Places without a Python: this machine with its own shell, and with nothing but busybox."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.terminal.terminal import Terminal
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.backend import Backend, BackendTraits, Channel, Receiver

Scenario = Callable[[Terminal], Awaitable[None]]


class Behind(LocalBackend):
    """This machine behind a shell text that gets the words to start, as an engine or a login shell does."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        return await super().spawn(["/bin/sh", "-c", self._text, "sh", *argv], receiver, env=env)


class Streams:
    """A receiver's streams, and nothing else of it."""

    def __init__(self, receiver: Receiver) -> None:
        self.on_data = receiver.on_data
        self.on_stderr = receiver.on_stderr
        self.on_close = receiver.on_close


class Silent(LocalBackend):
    """This machine, as a place that tells of no exit before the outputs are at their end."""

    @property
    def traits(self) -> BackendTraits:
        return replace(super().traits, reports_exit=False)

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        return await super().spawn(argv, Streams(receiver), env=env)


@pytest.fixture
def silent() -> Backend:
    return Silent()


@pytest.fixture
def behind() -> Callable[[str], Backend]:
    return Behind


@pytest.fixture(scope="session")
def busybox_folder(tmp_path_factory: pytest.TempPathFactory, require: Callable[..., str]) -> Path:
    """A folder of links to busybox, one a tool."""
    program = require("busybox", "the shell and tools of small images")
    folder = tmp_path_factory.mktemp("busybox")
    listed = subprocess.run([program, "--list"], check=True, capture_output=True, text=True)
    for name in listed.stdout.split():
        (folder / name).symlink_to(program)
    return folder


@pytest.fixture(params=["own shell", "busybox"])
def tools(request: pytest.FixtureRequest) -> dict[str, str]:
    """Variables that choose the shell and the programs of the place."""
    return {} if request.param == "own shell" else {"PATH": str(request.getfixturevalue("busybox_folder"))}


@pytest.fixture
def plain(tools: dict[str, str], tmp_path: Path) -> Callable[..., None]:
    """Runs a scenario in a plain terminal; afterwards no file of ours is left there."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def run(scenario: Scenario, backend: Backend | None = None, **options: Any) -> None:
        async def whole() -> None:
            env = {**tools, "TMPDIR": str(scratch), **options.pop("env", {})}
            place = backend or LocalBackend()
            opening = hermes_exec.open(place, env=env, carrier="plain", audit=False, **options)
            async with asyncio.timeout(PATIENCE_S), opening as terminal:
                await scenario(terminal)

        asyncio.run(whole())
        assert not list(scratch.iterdir())

    return run
