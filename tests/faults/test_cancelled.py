"""A wait that is cancelled at the very moment at which its answer comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.guest.wire import STDOUT
from hermes_exec.job import Job, start_job
from hermes_exec.link.link import Link
from hermes_exec_backends.local import LocalBackend
from tests.rigs.bounded import within

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from hermes_exec.carrier import Running

run = within(60)


class Cancels:
    """A sink that cancels a task as soon as bytes come; an answer that was sent with them is then read next."""

    def __init__(self) -> None:
        self.task: asyncio.Task[object] | None = None
        self.answered_then: bool | None = None

    def feed(self, call: Running, channel: int, data: bytes, /) -> None:
        call.consumed(channel, len(data))
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
