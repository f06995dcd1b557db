"""A wait that is cancelled at the very moment at which its answer comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.guest.core.wire import STDOUT
from hermes_exec.terminal.job import Job, start_job
from hermes_exec.testing.place import link as link_of
from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import until, within

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from hermes_exec.testing import SuiteTarget
    from hermes_exec.transport.protocol import RunningCommand
    from tests.faults.rig import CuttingBackend

run = within(60)


class Cancels:
    """A sink that cancels a task as soon as bytes come; an answer that was sent with them is then read next."""

    def __init__(self) -> None:
        self.task: asyncio.Task[object] | None = None
        self.answered_then: bool | None = None

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        call.acknowledge(channel, len(data))
        if self.task is not None and self.answered_then is None:
            self.answered_then = self.task.done()
            self.task.cancel()


def test_it_ends_although_the_answer_finds_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    async def work() -> None:
        link = Link(LocalBackend(), env={}, cwd=None)
        await link.open()
        job = await start_job(link, "local", ["echo", "word"])
        await job.wait()
        cancels = Cancels()
        log = link.call("log", {"job": job.id, "stream": STDOUT}, cancels)
        # Both requests leave in one turn, so the guest's next words have the log's bytes before this answer.
        cancels.task = asyncio.ensure_future(link.call("jobs", {"job": job.id}).result())
        await asyncio.wait([cancels.task], timeout=20)
        assert cancels.task.cancelled()
        assert cancels.answered_then is False
        assert (await log.result())["end"] == len("word\n")
        await Job(link, job.id).prune()
        await link.close()

    run(work())


def test_while_the_place_is_out_of_reach_it_returns_before_the_lease_is_over(
    place: SuiteTarget, backend: CuttingBackend, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)

    async def scenario() -> None:
        terminal = await place.get_shared_terminal()
        backend.gate.clear()
        link_of(terminal).break_connection()
        await until(lambda: not link_of(terminal).connected)
        waits = [
            asyncio.ensure_future(each)
            for each in (
                terminal.run(["sh", "-c", f"touch {tmp_path}/ran; cat"], stdin=b"input"),
                terminal.read(tmp_path / "file"),
                terminal.upload(tmp_path / "file", tmp_path / "copy"),
                terminal.download(tmp_path / "file", tmp_path / "copied"),
            )
        ]
        await asyncio.sleep(0)
        for each in waits:
            each.cancel()
        _, pending = await asyncio.wait(waits, timeout=30)
        backend.gate.set()
        assert not pending
        assert all(each.cancelled() for each in waits)
        assert (await terminal.run(["echo", "on"])).stdout == b"on\n"
        assert [path.name for path in tmp_path.iterdir()] == ["file"], "what was cancelled began"

    place.run(scenario())
