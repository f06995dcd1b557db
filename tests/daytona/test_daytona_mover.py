"""Whole files by the vendor's file calls, of which nothing is believed."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from hermes_exec.errors import TransferError
from hermes_exec.files import bulk_transfer as files
from hermes_exec_backends.daytona import file_calls
from tests.rigs.daytona_faults import hang_up
from tests.rigs.daytona_rig import only

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.terminal.terminal import Terminal
    from tests.daytona.conftest import Opened
    from tests.rigs.daytona_server import Daytona

SIZE = 9_000_000
HALF = 5 << 20


def place(daytona: Daytona) -> Path:
    """The root of the only sandbox, as this machine sees it."""
    cell = only(daytona).cell
    assert cell is not None
    return cell.root


def left(daytona: Daytona) -> list[Path]:
    """What there is of pieces, or of files without a name of their own."""
    root = place(daytona)
    found = [*root.glob("var/tmp/hx-*/shelf-*/*"), *root.glob("srv/.hx-*")]
    return [path for path in found if path.is_file()]


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the first piece is there, no other is."""
    monkeypatch.setattr(files, "_AHEAD", 1)


def first(daytona: Daytona) -> Path:
    """The first piece of a file that is being sent."""
    (piece,) = place(daytona).glob("var/tmp/hx-*/shelf-*/0")
    return piece


async def moved(terminal: Terminal, by: str, source: Path) -> None:
    """Send that file to /srv/file, by either way."""
    if by == "write":
        await terminal.write("/srv/file", source.read_bytes())
    else:
        await terminal.upload(source, "/srv/file")


async def _half(response: web.StreamResponse, data: bytes) -> None:
    await response.write(data[:HALF])


async def _damaged(response: web.StreamResponse, data: bytes) -> None:
    await response.write(data[:-1] + bytes([data[-1] ^ 1]))


@pytest.mark.parametrize("says", [_half, _damaged], ids=["half", "damaged"])
def test_a_file_that_the_vendor_brings_in_part_or_damaged_arrives_whole(
    run: Any, daytona: Daytona, opened: Opened, says: Any, tmp_path: Path
) -> None:
    data = os.urandom(SIZE)

    async def instead(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(SIZE)})
        await response.prepare(request)
        await says(response, data)
        hang_up(request, "fin")
        return response

    run(_arrives_whole(daytona, opened, data, tmp_path / "file", instead=instead))


@pytest.mark.parametrize("status", [400, 403, 404])
def test_a_refusal_is_no_content(run: Any, daytona: Daytona, opened: Opened, tmp_path: Path, status: int) -> None:
    data = os.urandom(SIZE)

    run(_arrives_whole(daytona, opened, data, tmp_path / "file", status=status))


async def _arrives_whole(daytona: Daytona, opened: Opened, data: bytes, here: Path, **fault: Any) -> None:
    """Read and download a file while the vendor's call for it has a fault."""
    async with opened() as terminal:
        await terminal.run("true")
        (place(daytona) / "srv/file").write_bytes(data)
        met = daytona.fail("download_file", times=2, **fault)
        assert await terminal.read("/srv/file") == data
        await terminal.download("/srv/file", here)
        assert here.read_bytes() == data
        assert met.met == 2


def test_a_vendor_that_brings_more_than_there_is_is_done_without(run: Any, daytona: Daytona, opened: Opened) -> None:
    data = os.urandom(SIZE)

    async def instead(_: web.Request) -> web.StreamResponse:
        return web.Response(body=data + b"more")

    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            (place(daytona) / "srv/file").write_bytes(data)
            daytona.fail("download_file", instead=instead)
            assert await terminal.read("/srv/file") == data

    run(work())


def test_an_sdk_that_has_the_plain_request_elsewhere_is_asked_by_its_own_call(
    run: Any, daytona: Daytona, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_calls, "PLAIN", ("_api_client", "not_there"))
    data = os.urandom(SIZE)

    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            (place(daytona) / "srv/file").write_bytes(data)
            before = daytona.count("download_files"), daytona.count("download_file")
            assert await terminal.read("/srv/file") == data
            assert (daytona.count("download_files"), daytona.count("download_file")) == (before[0] + 1, before[1])
            daytona.fail("download_files", drop="rst")
            assert await terminal.read("/srv/file") == data

    run(work())


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize("by", ["write", "upload"])
def test_a_piece_that_the_vendor_changes_never_gets_the_name(
    run: Any, daytona: Daytona, opened: Opened, tmp_path: Path, by: str
) -> None:
    data = os.urandom(SIZE)
    (tmp_path / "file").write_bytes(data)

    async def change() -> None:
        piece = first(daytona)
        piece.write_bytes(piece.read_bytes()[::-1])

    async def work() -> None:
        async with opened() as terminal:
            await terminal.write("/srv/file", b"old")
            daytona.fail("upload_files", when="after", act=change)
            with pytest.raises(TransferError, match="hash"):
                await moved(terminal, by, tmp_path / "file")
            assert await terminal.read("/srv/file") == b"old"
            assert not left(daytona)

    run(work())


@pytest.mark.usefixtures("one_at_a_time")
def test_a_piece_that_the_vendor_cuts_off_is_taken_for_none(run: Any, daytona: Daytona, opened: Opened) -> None:
    data = os.urandom(SIZE)

    async def cut() -> None:
        os.truncate(first(daytona), 1000)

    async def work() -> None:
        async with opened() as terminal:
            daytona.fail("upload_files", when="after", act=cut)
            await terminal.write("/srv/file", data)
            assert await terminal.read("/srv/file") == data
            assert not left(daytona)

    run(work())


@pytest.mark.parametrize("by", ["write", "upload"])
def test_an_upload_that_is_cancelled_leaves_the_old_file_and_no_pieces(
    run: Any, daytona: Daytona, opened: Opened, tmp_path: Path, by: str
) -> None:
    data = os.urandom(SIZE)
    (tmp_path / "file").write_bytes(data)

    async def work() -> None:
        async with opened() as terminal:
            await terminal.write("/srv/file", b"old")
            loop, asked = asyncio.get_running_loop(), asyncio.Event()

            async def ask() -> None:
                loop.call_soon_threadsafe(asked.set)

            daytona.fail("upload_files", act=ask, delay_s=600.0, times=99)
            move = (
                terminal.write("/srv/file", data) if by == "write" else terminal.upload(tmp_path / "file", "/srv/file")
            )
            transfer = asyncio.ensure_future(move)
            await asked.wait()
            transfer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await transfer
            assert await terminal.read("/srv/file") == b"old"
            assert not left(daytona)

    run(work())
