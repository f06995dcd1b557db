"""The places of deploy/examples/hermes.toml, opened as they stand, by servers that speak the vendors' protocols."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec_backends.daytona import DaytonaBackend
from tests.rigs import daytona_rig, modal
from tests.rigs.breadth import thorough
from tests.rigs.daytona_server import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.rigs.daytona_sandbox import Sandbox
    from tests.rigs.daytona_server import Daytona

EXAMPLE = Path(__file__).parents[2] / "deploy/examples/hermes.toml"


@pytest.fixture
def as_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is the user's own file."""
    folder = tmp_path / "config" / "hermes_exec"
    folder.mkdir(parents=True)
    (folder / "hermes.toml").write_bytes(EXAMPLE.read_bytes())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def worked_in(target: str, created: Callable[[], Any]) -> Any:
    """What ``created`` tells of the sandbox in which a command ran."""

    async def work() -> Any:
        async with hermes_exec.open(target) as terminal:
            result = await terminal.run("echo from $((6 * 7))")
            assert (result.stdout, result.exit_code) == (b"from 42\n", 0)
            return created()

    return asyncio.run(work())


def made_since(sandboxes: Mapping[str, Sandbox], before: set[str]) -> list[Sandbox]:
    """Those that were not there before."""
    return [each for name, each in sandboxes.items() if name not in before]


@thorough
@pytest.mark.usefixtures("as_shipped")
def test_the_place_with_a_gpu_is_what_it_says_and_works() -> None:
    server = modal.server()
    server.call("heal")
    before = {each["id"] for each in server.call("alive")}
    one = worked_in("gpu", lambda: next(each for each in server.call("alive") if each["id"] not in before))
    assert one["definition"]["resources"]["gpu_config"] == {"gpu_type": "A10G", "count": 1}
    assert one["definition"]["timeout_secs"] == 3600
    assert one["id"] not in {each["id"] for each in server.call("alive")}


@thorough
@pytest.mark.usefixtures("as_shipped")
def test_the_place_from_a_snapshot_is_what_it_says_and_works(monkeypatch: pytest.MonkeyPatch) -> None:
    async def prepare(service: Daytona) -> None:
        async with hermes_exec.open(DaytonaBackend(daytona_rig.profile(service)), audit=False) as terminal:
            await terminal.snapshot("daytona-small")

    for service in daytona_rig.checked():
        asyncio.run(prepare(service))
        monkeypatch.setenv("DAYTONA_API_KEY", KEY)
        monkeypatch.setenv("DAYTONA_API_URL", service.api_url)
        sandboxes, before = service.sandboxes, set(service.sandboxes)
        (one,) = worked_in("desk", functools.partial(made_since, sandboxes, before))
        assert one.wanted["snapshot"] == "daytona-small"
        assert set(service.sandboxes) == before
