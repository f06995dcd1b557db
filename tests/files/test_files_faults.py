"""Broken connections, lost guests, full disks and changed minds: a file is the old or the new one, whole."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import OutcomeUnknown, TransferError
from hermes_exec.files import Files
from hermes_exec.files.upload import RESUMABLE
from tests.rigs.processes import children

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Generator

    from hermes_exec_backends.local.channel import ProcessChannel
    from tests.files.conftest import Rig, Told

MIB = 1 << 20


def plant(root: Path) -> None:
    for number in range(400):
        path = root / f"d{number % 7}/{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(64) * number)
    (root / "big").write_bytes(os.urandom(10 * MIB))


def guest(rig: Rig) -> int:
    """The guest's process: the only child of its keeper, which is the channel's process."""
    channel: ProcessChannel = vars(rig.link)["_channel"]
    keeper: subprocess.Popen[bytes] = vars(channel)["_process"]
    (pid,) = children(keeper.pid)
    return pid


def workers(rig: Rig) -> list[int]:
    return children(guest(rig))


def kill_workers(rig: Rig) -> None:
    for pid in workers(rig):
        os.kill(pid, signal.SIGKILL)


class At:
    """A progress callback that acts when so much is done, again and again."""

    def __init__(self, act: Callable[[], object], *, every: int, times: int = 1) -> None:
        self._act = act
        self._every = every
        self._next = every
        self.left = times
        self.first: tuple[int, ...] | None = None

    def __call__(self, *numbers: int) -> None:
        self.first = self.first or numbers
        if numbers[0] >= self._next and self.left:
            self._next = numbers[0] + self._every
            self.left -= 1
            self._act()


@pytest.mark.parametrize("name", [".", "big"])
def test_cuts_while_sending_lose_and_repeat_nothing(each_rig: Rig, name: str) -> None:
    plant(each_rig.here)
    cuts = At(each_rig.link.break_connection, every=2 * MIB, times=4)
    each_rig.run(each_rig.files.upload(each_rig.here / name, "out", progress=cuts))
    assert cuts.left <= 1
    if name == ".":
        assert each_rig.tree(each_rig.there / "out") == each_rig.tree(each_rig.here)
    else:
        assert (each_rig.there / "out").read_bytes() == (each_rig.here / "big").read_bytes()


@pytest.mark.parametrize("name", [".", "big"])
def test_cuts_while_receiving_lose_and_repeat_nothing(each_rig: Rig, name: str) -> None:
    plant(each_rig.there)
    cuts = At(each_rig.link.break_connection, every=2 * MIB, times=4)
    each_rig.run(each_rig.files.download(name, each_rig.here / "out", progress=cuts))
    assert cuts.left <= 1
    if name == ".":
        assert each_rig.tree(each_rig.here / "out") == each_rig.tree(each_rig.there)
    else:
        assert (each_rig.here / "out").read_bytes() == (each_rig.there / "big").read_bytes()


@pytest.mark.parametrize("delay_ms", [0, 1, 3, 7, 12, 20, 35, 60])
def test_a_cut_at_any_moment_of_a_round_trip_changes_nothing(rig: Rig, delay_ms: int) -> None:
    plant(rig.here)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        for step in (
            lambda: rig.files.upload(rig.here, "up"),
            lambda: rig.files.sync(rig.here, "up"),
            lambda: rig.files.write("one", b"1" * 100_000),
            lambda: rig.files.download("up", rig.base / "down"),
            lambda: rig.files.sync(rig.base / "down", "up", direction="down", delete=True),
        ):
            cut = loop.call_later(delay_ms / 1000, rig.link.break_connection)
            await step()
            cut.cancel()
        assert await rig.files.exists("up")  # a link that is whole again can be closed at once

    rig.run(scenario())
    assert rig.tree(rig.base / "down") == rig.tree(rig.here)
    assert (rig.there / "one").read_bytes() == b"1" * 100_000


def upload_until_the_guest_is_killed(rig: Rig, source: Path) -> None:
    kill = At(lambda: os.kill(guest(rig), signal.SIGKILL), every=16 * MIB)
    with pytest.raises(OutcomeUnknown):
        rig.run(rig.files.upload(source, "out", progress=kill))
    rig.link.detach()
    rig.open()


@pytest.mark.parametrize("verify", [True, False])
def test_an_upload_goes_on_after_the_guest_was_lost(rig: Rig, told: Told, verify: bool) -> None:
    source = rig.here / "a"
    source.write_bytes(os.urandom(40 * MIB))
    upload_until_the_guest_is_killed(rig, source)
    (part,) = rig.unfinished
    there = part.stat().st_size
    assert there >= 8 * MIB
    rig.run(rig.files.upload(source, "out", verify=verify, progress=told))
    assert told.all[0][0] > there
    assert (rig.there / "out").read_bytes() == source.read_bytes()


def test_an_upload_of_another_content_begins_anew(rig: Rig) -> None:
    source = rig.here / "a"
    source.write_bytes(os.urandom(40 * MIB))
    upload_until_the_guest_is_killed(rig, source)
    source.write_bytes(os.urandom(20 * MIB))
    rig.run(rig.files.upload(source, "out"))
    assert (rig.there / "out").read_bytes() == source.read_bytes()


def test_a_tree_whose_receiver_was_killed_has_whole_files_and_sync_goes_on(rig: Rig) -> None:
    for number in range(60):
        path = rig.here / f"top/{number:02}/inner"
        path.mkdir(parents=True)
        (path / "a").write_bytes(os.urandom(MIB // 2))
        (path.parent / "b").write_bytes(os.urandom(1000))
    kill = At(lambda: kill_workers(rig), every=16 * MIB)
    with pytest.raises(TransferError, match="killed"):
        rig.run(rig.files.upload(rig.here, "out", progress=kill))
    arrived = {path: entry for path, entry in rig.tree(rig.there / "out").items() if ".hx-" not in path}
    sent = rig.tree(rig.here)
    files = [path for path, entry in arrived.items() if entry[0] == "file"]
    assert len(files) >= 16
    assert all(arrived[path] == sent[path] for path in files)
    assert len(rig.unfinished) <= 2  # a file, or a folder and what is in it
    rig.run(rig.files.sync(rig.here, "out", delete=True))
    assert rig.tree(rig.there / "out") == sent


def part_of(rig: Rig, source: Path) -> Path:
    """Where an upload of this name keeps its unfinished file."""
    upload_until_the_guest_is_killed(rig, source)
    (part,) = rig.unfinished
    return part


@pytest.mark.parametrize("trick", ["link", "second name", "open to others", "folder"])
def test_an_unfinished_file_that_is_not_ours_alone_is_not_used(rig: Rig, trick: str) -> None:
    source = rig.here / "a"
    source.write_bytes(os.urandom(40 * MIB))
    part = part_of(rig, source)
    precious = rig.base / "precious"
    part.rename(precious)
    if trick == "link":
        part.symlink_to(precious)
    elif trick == "second name":
        part.hardlink_to(precious)
    elif trick == "open to others":
        part.write_bytes(precious.read_bytes())
        part.chmod(0o666)
    else:
        part.mkdir()
    before = precious.read_bytes()
    rig.run(rig.files.upload(source, "out"))
    assert (rig.there / "out").read_bytes() == source.read_bytes()
    assert precious.read_bytes() == before
    assert not (rig.there / "out").is_symlink()
    part.rmdir() if trick == "folder" else part.unlink()


def test_two_uploads_of_one_path_at_once_leave_one_of_them_whole(rig: Rig) -> None:
    sources = [rig.here / "a", rig.here / "b"]
    for source in sources:
        source.write_bytes(os.urandom(RESUMABLE + 3 * MIB))

    async def scenario() -> None:
        await asyncio.gather(*(rig.files.upload(source, "out") for source in sources))

    rig.run(scenario())
    assert (rig.there / "out").read_bytes() in [source.read_bytes() for source in sources]


@pytest.mark.parametrize("name", [".", "big"])
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_a_cancelled_transfer_leaves_nothing_unfinished(rig: Rig, up: bool, name: str) -> None:
    plant(rig.here)
    (rig.here / "big").write_bytes(os.urandom(30 * MIB))
    out = rig.base / "out"
    if name == "big":
        out.write_bytes(b"old")

    async def scenario() -> None:
        move = rig.files.upload if up else rig.files.download
        begun = asyncio.Event()
        transfer = asyncio.create_task(move(rig.here / name, out, progress=At(begun.set, every=0)))
        await begun.wait()
        transfer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await transfer
        assert not rig.unfinished

    rig.run(scenario())
    if name == "big":
        assert out.read_bytes() == b"old"


def test_a_terminal_that_is_closed_in_an_upload_leaves_nothing_unfinished(rig: Rig) -> None:
    source = rig.here / "a"
    source.write_bytes(os.urandom(30 * MIB))

    async def scenario() -> None:
        begun = asyncio.Event()
        upload = asyncio.create_task(rig.files.upload(source, "out", progress=At(begun.set, every=0)))
        await begun.wait()
        await rig.link.close()
        with pytest.raises(Exception, match="closed"):
            await upload
        assert not rig.unfinished

    rig.run(scenario())
    assert not (rig.there / "out").exists()


def test_a_worker_that_is_killed_is_an_error_and_is_replaced(rig: Rig) -> None:
    os.mkfifo(rig.there / "pipe")
    (rig.there / "a").write_bytes(b"1")

    async def scenario() -> None:
        blocked = asyncio.create_task(rig.files.read("pipe"))
        while not workers(rig):
            await asyncio.sleep(0.01)
        await rig.files.read("a")
        kill_workers(rig)
        with pytest.raises(TransferError) as caught:
            await blocked
        assert caught.value.errno == errno.EIO
        while workers(rig):  # until it has seen that the others are gone, too
            await asyncio.sleep(0.01)
        assert await rig.files.read("a") == b"1"

    rig.run(scenario())


@contextmanager
def files_of_at_most(size: int, pid: int = 0) -> Generator[None]:
    """A stand-in for a full disk: the kernel refuses to make any file larger."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("operation", ["write", "append", "upload a file", "upload a tree"])
def test_a_place_that_can_take_no_more_keeps_the_old_file(rig: Rig, operation: str) -> None:
    old = rig.there / "t/big"
    old.parent.mkdir()
    old.write_bytes(b"old")
    plant(rig.here)
    data = (rig.here / "big").read_bytes()
    calls: dict[str, Callable[[], Any]] = {
        "write": lambda: rig.files.write("t/big", data),
        "append": lambda: rig.files.write("t/big", data, append=True),
        "upload a file": lambda: rig.files.upload(rig.here / "big", "t/big"),
        "upload a tree": lambda: rig.files.upload(rig.here, "t"),
    }
    rig.run(rig.files.exists("t"))
    (worker,) = workers(rig)
    with files_of_at_most(MIB, worker), pytest.raises(TransferError) as caught:
        rig.run(calls[operation]())
    assert caught.value.errno == errno.EFBIG
    assert old.read_bytes() == b"old"
    assert not rig.unfinished
    rig.run(calls[operation]())
    assert old.read_bytes() == (b"old" + data if operation == "append" else data)


@pytest.mark.parametrize("name", [".", "big"])
def test_a_side_of_ours_that_can_take_no_more_keeps_the_old_file(rig: Rig, name: str) -> None:
    plant(rig.there)
    out = rig.here / "out"
    if name == "big":
        out.write_bytes(b"old")
    with files_of_at_most(MIB), pytest.raises(TransferError, match=r"\(on this side\)") as caught:
        rig.run(rig.files.download(name, out))
    assert caught.value.errno == errno.EFBIG
    assert not rig.unfinished
    if name == "big":
        assert out.read_bytes() == b"old"
    else:
        assert not (out / "big").exists()


def resident(pid: int | str = "self") -> int:
    for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("size", [200 * MIB, pytest.param(1 << 30, marks=pytest.mark.soak)])
def test_memory_stays_flat_on_both_sides(rig: Rig, size: int) -> None:
    source = rig.here / "a"
    with source.open("wb") as file:
        file.truncate(size)
    rig.run(rig.files.write("warm", b"x" * 9 * MIB))
    pids: list[int | str] = ["self", guest(rig), *workers(rig)]
    before = {pid: resident(pid) for pid in pids}
    most = dict(before)

    def look(*numbers: int) -> None:
        for pid in pids:
            most[pid] = max(most[pid], resident(pid))

    rig.run(rig.files.upload(source, "b", progress=look))
    rig.run(rig.files.download("b", rig.here / "c", progress=look))
    assert (rig.here / "c").stat().st_size == size
    assert {pid: most[pid] - before[pid] for pid in pids if most[pid] - before[pid] > 40 * MIB} == {}


def test_a_reader_that_waits_makes_the_place_wait(rig: Rig) -> None:
    size = 64 * MIB
    with (rig.there / "a").open("wb") as file:
        file.truncate(size)
    requests = vars(rig.files)["_requests"]

    async def scenario() -> None:
        async with requests.stream("read", "a", offset=0, length=None) as stream:
            first = await stream.take()
            (worker,) = workers(rig)
            sent = -1
            while sent != (now := read_so_far(worker)):
                sent = now
                await asyncio.sleep(0.2)  # until it has stood still
            assert sent < 16 * MIB
            assert len(first) + len(await stream.read_all()) == size
            await stream.call.result()

    rig.run(scenario())


def read_so_far(pid: int) -> int:
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text("ascii").splitlines())
    return int(fields["rchar"])


def test_files_of_a_second_client_of_the_guest_work_too(rig: Rig) -> None:
    from hermes_exec.transport.link import Link

    async def scenario() -> bytes:
        link = Link(vars(rig)["_backend"], env={}, cwd=str(rig.there))
        identity = rig.link.identity
        await link.attach(identity, identity["interpreter"])
        try:
            await rig.files.write("a", b"1")
            return await Files(link).read("a")
        finally:
            await link.close()

    assert rig.run(scenario()) == b"1"
