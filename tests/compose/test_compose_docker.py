"""Docker in another place: what is said when there is no engine, and what is left behind."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends.docker import DockerBackend
from hermes_exec_backends.docker.tunnel import Tunnel
from hermes_exec_backends.local import LocalBackend
from hermes_exec_backends.profiles import DockerProfile
from tests.rigs.boxes import Box
from tests.rigs.docker_engine import BUSYBOX, engine

if TYPE_CHECKING:
    from pathlib import Path


def test_a_container_opens_inside_of_any_place_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = engine().profile(BUSYBOX)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    backend = DockerBackend.nest(profile, Box("outer"))
    before = len(engine().containers())

    async def run() -> tuple[bytes, str]:
        async with hermes_exec.open(backend, audit=False) as terminal:
            assert len(list(tmp_path.iterdir())) == 1
            return (await terminal.run("cat", stdin=b"x" * 3_000_000)).stdout, terminal.target

    output, target = asyncio.run(run())
    assert output == b"x" * 3_000_000
    assert target == f"docker:{profile.image}+box:outer"
    assert list(tmp_path.iterdir()) == []
    assert len(engine().containers()) == before


@pytest.mark.parametrize("program", [True, False], ids=["as it is", "without docker's program"])
def test_a_place_without_an_engine_is_named_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, program: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not program:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "python3").symlink_to(sys.executable)
        (tmp_path / "bin" / "sh").symlink_to("/bin/sh")
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    before = list(tmp_path.iterdir())
    profile = DockerProfile(image="x", engine=f"unix://{tmp_path}/none")
    with pytest.raises(PlaceUnavailable, match=r"box:outer: .*none") as caught:
        asyncio.run(DockerBackend.nest(profile, Box("outer")).open())
    assert "File " not in caught.value.what  # no traceback
    assert caught.value.place == "docker:x+box:outer"
    assert list(tmp_path.iterdir()) == before


def test_a_tunnel_needs_no_docker_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back is what was sent, and each direction ends by itself."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read())  # to its end
        writer.write(b"y" * 2_000_000)
        await writer.drain()
        writer.close()

    async def run() -> bytes:
        server = await asyncio.start_unix_server(answer, tmp_path / "engine")
        tunnel = Tunnel(LocalBackend(), f"unix://{tmp_path}/engine")
        await tunnel.open()
        try:
            reader, writer = await asyncio.open_unix_connection(tunnel.address.removeprefix("unix://"))
            writer.write(b"x" * 2_000_000)
            writer.write_eof()
            data = await reader.read()
            writer.close()
            return data
        finally:
            await tunnel.close()
            server.close()

    assert asyncio.run(run()) == b"y" * 2_000_000
    assert asked == [b"x" * 2_000_000]
