"""Output that waits on disk: in order, whole, and plainly cut off where the disk is full."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.guest.core.wire import CHUNK, WINDOW
from hermes_exec.guest.streams.output_stream import OutputStream, Spool

if TYPE_CHECKING:
    from hermes_exec.testing import SuiteTarget
    from tests.faults.rig import CuttingBackend

DISK = 3_000_001


@pytest.fixture
def small_disk() -> Generator[None]:
    """Files cannot grow beyond a size, as on a disk that is full."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK, usual[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, usual)


class Ready:
    """An event loop whose descriptors are read when the test says so."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}

    def on_read(self, fd: int, call: Callable[[], None]) -> None:
        self.readers[fd] = call

    def ignore_read(self, fd: int) -> None:
        self.readers.pop(fd, None)


def test_a_spool_gives_back_what_it_took_in_order(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    data = os.urandom(3 * CHUNK + 5)
    for start in range(0, len(data), 100_000):
        assert spool.put(data[start : start + 100_000])
    taken = b""
    while spool.size:
        taken += spool.take()
    spool.close()
    assert taken == data
    assert not list(tmp_path.iterdir())


def test_what_a_full_disk_does_not_take_waits_in_memory_and_in_order(tmp_path: Path, small_disk: None) -> None:
    spool = Spool(str(tmp_path))
    pieces = [os.urandom(CHUNK) for _ in range(12)]
    taken = 0
    while spool.put(pieces[taken]):
        taken += 1
    assert spool.full
    assert spool.size == CHUNK * (taken + 1)
    back = b""
    while spool.size:
        back += spool.take()
    spool.close()
    assert back == b"".join(pieces[: taken + 1])


def test_an_outlet_on_a_full_disk_says_so_once_and_loses_nothing_that_it_read(tmp_path: Path, small_disk: None) -> None:
    told: list[bool] = []
    loop = Ready()
    outlet = OutputStream(loop, lambda _: None, 1, 1)  # type: ignore[arg-type]  # the two calls that it makes
    outlet.on_disk_full = lambda: told.append(True)
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    os.set_blocking(theirs, False)
    outlet.read_from(ours)
    outlet.spool_to(lambda: str(tmp_path))
    written = read = 0
    while ours in loop.readers:
        while True:
            try:
                written += os.write(theirs, b"".join(b"%07d\n" % n for n in range(written // 8, written // 8 + 512)))
            except BlockingIOError:
                break
        loop.readers[ours]()
    assert told == [True]
    assert written >= WINDOW + DISK
    outlet.resume(0)
    data = b""
    while chunk := outlet.next_chunk():
        data += chunk
        outlet.on_consumed(len(data))
        read += len(chunk)
    outlet.close()
    os.close(ours)
    os.close(theirs)
    assert read >= WINDOW + DISK
    assert data == b"".join(b"%07d\n" % n for n in range(read // 8 + 1))[:read]


def test_a_full_disk_ends_the_command_and_says_why(
    place: SuiteTarget, backend: CuttingBackend, small_disk: None
) -> None:
    async def fill() -> None:
        async with place.fresh() as terminal, terminal.stream(["cat", "/dev/zero"], grace_s=0.1) as stream:
            await anext(stream)
            backend.gate.clear()
            backend.channel.cut_after(0, None)
            await asyncio.sleep(1)
            backend.gate.set()
            events = [event async for event in stream]
            result = events[-1].result
            assert result is not None
            assert "disk was full" in result.note
            assert not result.ok

    place.run(fill(), 30)
