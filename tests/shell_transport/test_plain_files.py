"""Whole files, read and written without a guest."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import TransferError
from hermes_exec.transport.shell import ShellTransport, scripts
from hermes_exec.transport.shell.target import ShellTarget
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

In = Callable[[Callable[[ShellTransport], Awaitable[None]]], None]


@pytest.fixture
def inside(tools: dict[str, str], tmp_path: Path) -> In:
    def run(scenario: Callable[[ShellTransport], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(PATIENCE_S):
                carrier = await ShellTransport.open(LocalBackend(), env=tools, cwd=str(tmp_path))
                await scenario(carrier)
                await carrier.close()

        asyncio.run(whole())
        assert not list(tmp_path.rglob(".hermes-exec-*"))

    return run


@pytest.mark.parametrize("data", [b"", b"text\n", bytes(range(256)) * 40_000], ids=["none", "text", "10 MB"])
def test_a_file_comes_back_as_it_was_written(inside: In, tmp_path: Path, data: bytes) -> None:
    async def scenario(carrier: ShellTransport) -> None:
        await carrier.write("file", data)
        assert (tmp_path / "file").read_bytes() == data
        assert await carrier.read(tmp_path / "file") == data

    inside(scenario)


@pytest.mark.parametrize("name", ["-n", "with space", "$x", "quo'te", "new\nline", "trailing\n", "\udcff"])
def test_any_name_will_do(inside: In, tmp_path: Path, name: str) -> None:
    async def scenario(carrier: ShellTransport) -> None:
        await carrier.write(name, b"data")
        assert os.listdir(tmp_path) == [name]
        assert await carrier.read(name) == b"data"

    inside(scenario)


def test_a_file_that_is_replaced_keeps_its_permissions(inside: In, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("old")
    (tmp_path / "script").chmod(0o751)

    async def scenario(carrier: ShellTransport) -> None:
        await carrier.write("script", b"new")
        assert (tmp_path / "script").read_bytes() == b"new"
        assert (tmp_path / "script").stat().st_mode & 0o777 == 0o751

    inside(scenario)


def test_whoever_has_the_old_file_open_goes_on_reading_it(inside: In, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old content")

    async def scenario(carrier: ShellTransport) -> None:
        with (tmp_path / "file").open() as reader:
            await carrier.write("file", b"new")
            assert reader.read() == "old content"

    inside(scenario)


@pytest.mark.parametrize(
    ("path", "number"),
    [("missing", errno.ENOENT), ("missing/file", errno.ENOENT), (".", errno.EISDIR), ("/", errno.EISDIR)],
)
def test_what_cannot_be_read_says_why(inside: In, path: str, number: int) -> None:
    async def scenario(carrier: ShellTransport) -> None:
        with pytest.raises(TransferError, match=f"cannot read .*: {os.strerror(number)}") as caught:
            await carrier.read(path)
        assert isinstance(caught.value, FileNotFoundError if number == errno.ENOENT else IsADirectoryError)
        assert caught.value.errno == number

    inside(scenario)


@pytest.mark.parametrize(
    ("path", "number"),
    [("missing/file", errno.ENOENT), (".", errno.EISDIR), ("/", errno.EISDIR), ("/proc/file", errno.EIO)],
)
def test_what_cannot_be_written_says_why(inside: In, path: str, number: int) -> None:
    async def scenario(carrier: ShellTransport) -> None:
        with pytest.raises(TransferError) as caught:
            await carrier.write(path, b"data")
        assert caught.value.errno in {number, errno.EACCES if number == errno.EIO else number}

    inside(scenario)


def test_data_that_breaks_off_changes_nothing(tools: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")

    async def scenario() -> None:
        place = await ShellTarget.probe(LocalBackend(), tools, None)
        words = (str(tmp_path / "file"), str(tmp_path / "beside"), "10", "")
        reply = await place.run_script(scripts.STORE, *words, data=b"too short")
        assert reply.exit.code == 1

    asyncio.run(scenario())
    assert (tmp_path / "file").read_text() == "old"
    assert not (tmp_path / "beside").exists()
