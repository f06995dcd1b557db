"""Large files that a vendor moves beside the channel, of whom nothing is believed."""

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
    from collections.abc import AsyncGenerator, Generator

    from tests.files.conftest import Rig, Told

PIECE = 1 << 20
SIZE = staging.WORTH + 12345
PIECES = -(-SIZE // PIECE)


class Vendor:
    """One whose files are this machine's, which fails as it is told."""

    piece = PIECE

    def __init__(self) -> None:
        self.put_pieces = 0
        self.fetched = 0
        self.refuses: set[int] = set()
        """Pieces, by their order, that it does not take."""
        self.elsewhere = False
        """Whether what it makes is not seen in the place."""
        self.damages = False
        self.never_ends = False
        self.breaks_after: int | None = None
        """Bytes of a file after which no more come."""
        self.hangs = asyncio.Event()
        """Set once the piece ``hangs_at`` was asked for, which is not answered."""
        self.hangs_at = 0
        self.last = ""
        """Where the last piece was to go that is not there."""

    async def put(self, path: str, data: bytes) -> None:
        self.put_pieces += 1
        if self.put_pieces == self.hangs_at:
            self.last = path
            self.hangs.set()
            await asyncio.Event().wait()
        if self.put_pieces in self.refuses:
            self.last = path
            raise PlaceUnavailable("not this one")
        if not self.elsewhere:
            Path(path).write_bytes(data[::-1] if self.damages else data)

    def lands(self) -> None:
        """Make the file of that piece after all, and the folders above it, as Daytona's daemon does."""
        Path(self.last).parent.mkdir(parents=True, exist_ok=True)
        Path(self.last).write_bytes(b"late")

    async def fetch(self, path: str) -> AsyncGenerator[bytes]:
        content = Path(path).read_bytes()
        if self.damages:
            content = content[::-1]
        for start in range(0, len(content), PIECE // 4):
            if self.breaks_after is not None and start >= self.breaks_after:
                raise ConnectionError("no more")
            part = content[start : start + PIECE // 4]
            self.fetched += len(part)
            yield part
            await asyncio.sleep(0)
        if self.elsewhere:
            yield b"and more"
        while self.never_ends:
            self.fetched += 1
            yield b"+"
            await asyncio.sleep(0)


@pytest.fixture
def vendor() -> Vendor:
    return Vendor()


@pytest.fixture(params=PYTHONS)
def beside(request: pytest.FixtureRequest, tmp_path: Path, vendor: Vendor) -> Generator[Rig]:
    """A rig whose place has that vendor, and nothing left of it in the end."""
    for rig in rig_by(request.param, tmp_path, vendor):
        yield rig
        shelves = Path("/var/tmp", f"hx-{rig.link.guest['id']}").glob("shelf-*")
        assert not [shelf for shelf in shelves if shelf.is_dir() or shelf.stat().st_size]


@pytest.fixture
def data() -> bytes:
    return os.urandom(SIZE)


def test_an_upload_arrives_whole_beside_the_channel(
    beside: Rig, vendor: Vendor, data: bytes, carried: list[int], told: Told
) -> None:
    source = planted(beside.here / "file", data)
    beside.run(beside.files.upload(source, beside.there / "file", progress=told))
    assert beside.tree(beside.there) == beside.tree(beside.here)
    assert vendor.put_pieces == PIECES
    assert sum(carried) < 2000
    assert told.all[-1] == (SIZE, SIZE, 1, 1)
    assert len(told.all) > 3


def test_a_download_arrives_whole_beside_the_channel(
    beside: Rig, vendor: Vendor, data: bytes, carried: list[int], told: Told
) -> None:
    source = planted(beside.there / "file", data)
    beside.run(beside.files.download(source, beside.here / "file", progress=told))
    assert beside.tree(beside.there) == beside.tree(beside.here)
    assert vendor.fetched == SIZE
    assert sum(carried) < 2000
    assert told.all[-1] == (SIZE, SIZE, 1, 1)


def test_content_is_written_and_read_beside_the_channel(
    beside: Rig, vendor: Vendor, data: bytes, carried: list[int]
) -> None:
    beside.run(beside.files.write("file", data))
    assert beside.run(beside.files.read("file")) == data
    assert (vendor.put_pieces, vendor.fetched) == (PIECES, SIZE)
    assert sum(carried) < 2000


def test_small_files_and_parts_of_large_ones_are_left_to_the_channel(beside: Rig, vendor: Vendor, data: bytes) -> None:
    beside.run(beside.files.write("small", data[:1000]))
    assert beside.run(beside.files.read("small")) == data[:1000]
    planted(beside.there / "file", data)
    assert beside.run(beside.files.read("file", 5, 9 << 20)) == data[5:]
    os.mkfifo(beside.there / "pipe")
    (beside.here / "empty").write_bytes(b"")
    beside.run(beside.files.upload(beside.here / "empty", beside.there / "empty"))
    beside.run(beside.files.download(beside.there / "empty", beside.here / "again"))
    assert (beside.here / "again").read_bytes() == b""
    assert (vendor.put_pieces, vendor.fetched) == (0, 0)


@pytest.mark.parametrize("refused", [{1}, {3, 4}, {PIECES}, set(range(1, PIECES + 1))], ids=["1", "3+4", "last", "all"])
def test_pieces_that_the_vendor_refuses_go_by_the_channel(
    beside: Rig, vendor: Vendor, data: bytes, refused: set[int], carried: list[int]
) -> None:
    vendor.refuses = refused
    source = planted(beside.here / "file", data)
    beside.run(beside.files.upload(source, beside.there / "file"))
    assert beside.tree(beside.there) == beside.tree(beside.here)
    assert sum(carried) < len(refused) * PIECE + 2000
    vendor.put_pieces = 0
    beside.run(beside.files.write("other", data))
    assert (beside.there / "other").read_bytes() == data


def test_a_vendor_whose_files_the_place_does_not_see_is_done_without(beside: Rig, vendor: Vendor, data: bytes) -> None:
    vendor.elsewhere = True
    source = planted(beside.here / "file", data)
    beside.run(beside.files.upload(source, beside.there / "file"))
    beside.run(beside.files.write("other", data))
    assert (beside.there / "file").read_bytes() == (beside.there / "other").read_bytes() == data
    assert beside.run(beside.files.read("other")) == data


def test_damaged_pieces_never_get_the_name(beside: Rig, vendor: Vendor, data: bytes) -> None:
    vendor.damages = True
    old = planted(beside.there / "file", b"old")
    source = planted(beside.here / "file", data)
    with pytest.raises(OSError, match="hash"):
        beside.run(beside.files.upload(source, old, verify=False))
    with pytest.raises(OSError, match="hash"):
        beside.run(beside.files.write(old, data))
    assert old.read_bytes() == b"old"


@pytest.mark.parametrize("after", [None, 0, 5 << 20], ids=["damaged", "nothing", "broken"])
def test_what_the_vendor_does_not_bring_whole_comes_by_the_channel(
    beside: Rig, vendor: Vendor, data: bytes, after: int | None
) -> None:
    vendor.damages, vendor.breaks_after = after is None, after
    source = planted(beside.there / "file", data)
    beside.run(beside.files.download(source, beside.here / "file"))
    assert beside.tree(beside.there) == beside.tree(beside.here)
    assert beside.run(beside.files.read("file")) == data


def test_a_vendor_that_never_ends_is_left_after_the_first_byte_too_much(
    beside: Rig, vendor: Vendor, data: bytes
) -> None:
    vendor.never_ends = True
    planted(beside.there / "file", data)
    assert beside.run(beside.files.read("file")) == data
    assert vendor.fetched == SIZE + 1


def test_a_damaged_beginning_is_no_part_of_a_file(beside: Rig, vendor: Vendor, data: bytes) -> None:
    vendor.damages, vendor.breaks_after = True, 5 << 20
    source = planted(beside.there / "file", data)
    old = planted(beside.here / "file", b"old")
    assert beside.run(beside.files.read("file")) == data
    with pytest.raises(OSError, match="hash"):
        beside.run(beside.files.download(source, old))
    assert old.read_bytes() == b"old"


def test_a_download_that_breaks_goes_on_where_it_was(
    beside: Rig, vendor: Vendor, data: bytes, carried: list[int]
) -> None:
    vendor.breaks_after = 5 << 20
    planted(beside.there / "file", data)
    assert beside.run(beside.files.read("file")) == data
    assert SIZE - (5 << 20) <= sum(carried) < SIZE - (5 << 20) + 2000


def test_an_upload_whose_connection_breaks_goes_on(beside: Rig, vendor: Vendor, data: bytes) -> None:
    vendor.refuses = {2, 5}
    source = planted(beside.here / "file", data)
    cuts = iter([PIECE, 4 * PIECE, 6 * PIECE])
    next_cut = next(cuts)

    def cut(done: int, *_: int) -> None:
        nonlocal next_cut
        if done >= next_cut:
            next_cut = next(cuts, 1 << 40)
            beside.link.break_connection()

    beside.run(beside.files.upload(source, beside.there / "file", progress=cut))
    assert beside.tree(beside.there) == beside.tree(beside.here)


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_a_transfer_that_is_cancelled_leaves_the_old_file(beside: Rig, data: bytes, up: bool) -> None:
    source = planted((beside.here if up else beside.there) / "file", data)
    goal = planted((beside.there if up else beside.here) / "file", b"old")

    async def scenario() -> None:
        begun = asyncio.Event()
        move = beside.files.upload if up else beside.files.download

        def begin(*_: int) -> None:
            begun.set()

        transfer = asyncio.create_task(move(source, goal, progress=begin))
        await begun.wait()
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer

    beside.run(scenario())
    assert goal.read_bytes() == b"old"


@pytest.mark.parametrize("hangs_at", [2, PIECES], ids=["amid", "last"])
@pytest.mark.parametrize("by", ["upload", "write"])
def test_a_piece_that_lands_after_a_cancelled_upload_finds_no_place(
    beside: Rig, vendor: Vendor, data: bytes, by: str, hangs_at: int
) -> None:
    source = planted(beside.here / "file", data)
    goal = planted(beside.there / "file", b"old")

    async def scenario() -> None:
        vendor.hangs_at = hangs_at
        work = beside.files.upload(source, goal) if by == "upload" else beside.files.write(goal, data)
        transfer = asyncio.ensure_future(work)
        await vendor.hangs.wait()
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer

    beside.run(scenario())
    with pytest.raises(FileExistsError):
        vendor.lands()
    assert goal.read_bytes() == b"old"


def test_a_piece_that_lands_after_it_was_given_up_finds_no_place(beside: Rig, vendor: Vendor, data: bytes) -> None:
    vendor.refuses = {2}
    beside.run(beside.files.write("file", data))
    with pytest.raises(FileExistsError):
        vendor.lands()
    assert (beside.there / "file").read_bytes() == data


def test_nothing_at_all_is_left_of_an_upload_whose_pieces_all_came(beside: Rig, data: bytes) -> None:
    beside.run(beside.files.write("file", data))
    assert not list(Path("/var/tmp", f"hx-{beside.link.guest['id']}").iterdir())


def test_an_unreadable_file_is_an_error_as_ever(beside: Rig, data: bytes) -> None:
    with pytest.raises(FileNotFoundError):
        beside.run(beside.files.read("missing"))
    with pytest.raises(FileNotFoundError):
        beside.run(beside.files.download("missing", beside.here / "file"))
    with pytest.raises(IsADirectoryError):
        beside.run(beside.files.read("."))
    with pytest.raises(FileNotFoundError):
        beside.run(beside.files.write("no/such/folder", data))
    (beside.there / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        beside.run(beside.files.upload(planted(beside.here / "file", data), "folder"))
