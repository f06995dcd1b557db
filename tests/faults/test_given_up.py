"""Output that nobody takes any more, of which a part waits on the place's disk since a connection broke."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.files.requests import FileRequests, FileStream
from hermes_exec.guest.core.wire import WINDOW
from hermes_exec.testing.place import link, wait_until
from tests.faults.rig import guest_pid

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.testing import SuiteTarget
    from tests.faults.rig import CuttingBackend


class GivenUp(Exception):
    """Somebody stops in the middle."""


def test_a_transfer_that_is_given_up_ends_though_more_waits_on_the_disk_than_may_be_sent(
    place: SuiteTarget, backend: CuttingBackend, tmp_path: Path
) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(4 * WINDOW))

    async def half_read(terminal: Terminal) -> None:
        guest = await guest_pid(terminal)
        async with FileRequests(link(terminal), None).stream("read", large, offset=0, length=None) as stream:
            await wait_until(lambda: _received(stream, WINDOW))
            backend.gate.clear()
            link(terminal).break_connection()
            await stream.take()
            await wait_until(lambda: _on_disk(guest, 2 * WINDOW))
            before = stream.call.received[1]
            backend.gate.set()
            await wait_until(lambda: _received(stream, before + 1))
            raise GivenUp

    async def work() -> None:
        async with place.fresh() as terminal:
            with pytest.raises(GivenUp):
                await half_read(terminal)

    place.run(work(), 20)


async def _received(stream: FileStream, size: int) -> bool:
    return stream.call.received[1] >= size


async def _on_disk(pid: int, size: int) -> bool:
    """Whether the files that a process has open have that many bytes."""
    found = [file.stat() for file in Path(f"/proc/{pid}/fd").iterdir() if file.exists()]
    return sum(each.st_size for each in found if stat.S_ISREG(each.st_mode)) >= size
