"""Large files that a vendor pours into a pipe of the place, of whom nothing is believed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import PlaceUnavailable
from hermes_exec.guest.files import staging
from tests.files.conftest import PYTHONS, planted, rig_by

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator

    from tests.files.conftest import Rig, Told

PIECE = 1 << 20
SIZE = staging.WORTH + 12345


class Vendor:
    """One with a stream of its own into this machine, which fails as it is told."""

    piece = PIECE

    def __init__(self) -> None:
        self.poured = 0
        self.breaks_after: int | None = None
        """Bytes of a file after which it takes no more."""
        self.says_so = True
        """Whether it says then that it broke."""
        self.damages = False
        self.adds = b""
        self.hangs = asyncio.Event()
        """Set once something is in the pipe and nothing more will be, where that is wanted."""
        self.hangs_after: int | None = None

    async def pour(self, path: str, pieces: AsyncIterator[bytes | memoryview]) -> None:
        pipe = os.open(path, os.O_WRONLY)
        try:
            async for piece in pieces:
                if self.breaks_after is not None and self.poured >= self.breaks_after:
                    break
                if self.hangs_after is not None and self.poured >= self.hangs_after:
                    self.hangs.set()
                    await asyncio.Event().wait()
                await self._write(pipe, bytes(piece)[::-1] if self.damages else bytes(piece))
                self.poured += len(piece)
            await self._write(pipe, self.adds)
        finally:
            os.close(pipe)
        if self.breaks_after is not None and self.says_so:
            raise PlaceUnavailable("no more")

    @staticmethod
    async def _write(pipe: int, data: bytes) -> None:
        while data:
            data = data[await asyncio.to_thread(os.write, pipe, data) :]

    async def fetch(self, path: str) -> AsyncGenerator[bytes]:
        yield Path(path).read_bytes()


@pytest.fixture
def vendor() -> Vendor:
    return Vendor()


@pytest.fixture(params=PYTHONS)
def poured(request: pytest.FixtureRequest, tmp_path: Path, vendor: Vendor) -> Generator[Rig]:
    """A rig whose place has that vendor, and nothing left of it in the end."""
    for rig in rig_by(request.param, tmp_path, vendor):
        yield rig
        assert not list(Path("/var/tmp", f"hx-{rig.link.guest['id']}").glob("inflow-*"))


@pytest.fixture
def data() -> bytes:
    return os.urandom(SIZE)


def test_an_upload_arrives_whole_by_the_pipe(
    poured: Rig, vendor: Vendor, data: bytes, carried: list[int], told: Told
) -> None:
    source = planted(poured.here / "file", data)
    poured.run(poured.files.upload(source, poured.there / "file", progress=told))
    assert poured.tree(poured.there) == poured.tree(poured.here)
    assert vendor.poured == SIZE
    assert sum(carried) < 2000
    assert told.all[-1] == (SIZE, SIZE, 1, 1)
    assert len(told.all) > 3


def test_content_is_written_by_the_pipe(poured: Rig, vendor: Vendor, data: bytes, carried: list[int]) -> None:
    poured.run(poured.files.write("file", data))
    assert (poured.there / "file").read_bytes() == data
    assert vendor.poured == SIZE
    assert sum(carried) < 2000


@pytest.mark.parametrize("says_so", [True, False], ids=["told", "silent"])
@pytest.mark.parametrize("after", [0, 5 << 20, SIZE], ids=["nothing", "amid", "all"])
def test_what_did_not_get_through_comes_by_the_channel(
    poured: Rig, vendor: Vendor, data: bytes, after: int, says_so: bool
) -> None:
    vendor.breaks_after, vendor.says_so = after, says_so
    source = planted(poured.here / "file", data)
    poured.run(poured.files.upload(source, poured.there / "file"))
    assert poured.tree(poured.there) == poured.tree(poured.here)
    poured.run(poured.files.write("other", data))
    assert (poured.there / "other").read_bytes() == data


def test_an_upload_goes_on_behind_what_came_by_the_pipe(
    poured: Rig, vendor: Vendor, data: bytes, carried: list[int]
) -> None:
    vendor.breaks_after = 5 << 20
    poured.run(poured.files.upload(planted(poured.here / "file", data), poured.there / "file"))
    assert (poured.there / "file").read_bytes() == data
    assert SIZE - vendor.poured <= sum(carried) < SIZE - vendor.poured + 2000


def test_damaged_content_never_gets_the_name(poured: Rig, vendor: Vendor, data: bytes) -> None:
    vendor.damages = True
    old = planted(poured.there / "file", b"old")
    source = planted(poured.here / "file", data)
    with pytest.raises(OSError, match="hash"):
        poured.run(poured.files.upload(source, old, verify=False))
    with pytest.raises(OSError, match="hash"):
        poured.run(poured.files.write(old, data))
    assert old.read_bytes() == b"old"


def test_what_comes_too_much_is_no_part_of_the_file(poured: Rig, vendor: Vendor, data: bytes) -> None:
    vendor.adds = b"and more"
    poured.run(poured.files.write("file", data))
    assert (poured.there / "file").read_bytes() == data


@pytest.mark.parametrize("by", ["upload", "write"])
def test_a_cancelled_transfer_leaves_the_old_file_and_no_pipe(
    poured: Rig, vendor: Vendor, data: bytes, by: str
) -> None:
    source = planted(poured.here / "file", data)
    goal = planted(poured.there / "file", b"old")
    vendor.hangs_after = 2 * PIECE

    async def scenario() -> None:
        work = poured.files.upload(source, goal) if by == "upload" else poured.files.write(goal, data)
        transfer = asyncio.ensure_future(work)
        await vendor.hangs.wait()
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer

    poured.run(scenario())
    assert goal.read_bytes() == b"old"


def test_a_place_that_cannot_take_it_says_why(poured: Rig, data: bytes) -> None:
    with pytest.raises(FileNotFoundError):
        poured.run(poured.files.write("no/such/folder", data))
    (poured.there / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        poured.run(poured.files.upload(planted(poured.here / "file", data), "folder"))
