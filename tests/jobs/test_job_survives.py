"""What outlives what: jobs outlive links and the processes that started them, and nothing outlives jobs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import marshal
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_exec.errors import PlaceUnavailable, UsageError
from hermes_exec.terminal.guest_records import forget_guest, read_records
from hermes_exec.terminal.job import Job, list_jobs, prune_jobs, start_job
from hermes_exec.terminal.job_status import JobState
from hermes_exec.transport import bootstrap
from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend
from tests.jobs.conftest import names_in
from tests.rigs.processes import alive, parent

Bounded = Callable[[Awaitable[None]], None]
Soon = Callable[[Callable[[], object]], Awaitable[None]]

ORCHESTRATOR = """
import asyncio, os, sys
from hermes_exec.terminal.job import start_job
from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend

async def main():
    link = Link(LocalBackend(), env={}, cwd=None, lease_s=0.2)
    await link.open()
    job = await start_job(link, "local", sys.argv[1], stdin=True, name="kept")
    print(job.id, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


async def new_link(backend: LocalBackend, **options: Any) -> Link:
    link = Link(backend, env={}, cwd=None, **options)
    await link.open()
    return link


def only_file(folder: Path) -> str:
    (path,) = folder.iterdir()
    return path.read_text()


async def attached(backend: LocalBackend, identity: dict[str, Any]) -> Link:
    link = Link(backend, env={}, cwd=None)
    await link.attach(identity, str(identity["interpreter"]))
    return link


@pytest.mark.parametrize("goes", ["closes", "detaches", "lets its lease end"])
def test_a_job_outlives_the_link_that_started_it(
    backend: LocalBackend, goes: str, soon: Soon, bounded: Bounded
) -> None:
    async def scenario() -> None:
        first = await new_link(backend, lease_s=0.1 if goes == "lets its lease end" else 2.0)
        job = await start_job(first, "local", "echo one; read x; echo $x", stdin=True)
        identity = first.identity
        if goes == "closes":
            await first.close()
        else:
            first.detach()
        if goes == "lets its lease end":
            await asyncio.sleep(0.3)
        second = await attached(backend, identity)
        (status,) = await list_jobs(second)
        assert (status.id, status.state) == (job.id, JobState.RUNNING)
        again = Job(second, status.id)
        await again.write(b"two\n")
        assert (await again.wait()).stdout == b"one\ntwo\n"
        await again.prune()
        await second.close()
        await soon(lambda: not Path(identity["folder"]).exists())

    bounded(scenario())


@pytest.mark.parametrize("goes", ["closes", "lets its lease end"])
def test_a_job_that_is_not_kept_ends_with_the_link_that_started_it(
    backend: LocalBackend, goes: str, soon: Soon, bounded: Bounded
) -> None:
    async def scenario() -> None:
        first = await new_link(backend, lease_s=0.1 if goes == "lets its lease end" else 2.0)
        bound = await start_job(first, "local", "(sleep 1000 &); read x", stdin=True, keep=False)
        over = await start_job(first, "local", ["true"], keep=False)
        await over.wait()
        kept = await start_job(first, "local", ["sleep", "1000"])
        pid = (await bound.status()).pid
        second = await attached(backend, first.identity)
        assert len(await list_jobs(second)) == 3
        if goes == "closes":
            await first.close()
        else:
            first.detach()
        waiting = Job(second, bound.id).wait(30)
        with contextlib.suppress(UsageError):  # it is forgotten at its end
            await waiting
        assert [status.id for status in await list_jobs(second)] == [kept.id]
        assert not alive(pid)
        await Job(second, kept.id).kill()
        await Job(second, kept.id).prune()
        await second.close()
        await soon(lambda: not Path(second.identity["folder"]).exists())

    bounded(scenario())


def test_two_clients_see_one_job(backend: LocalBackend, bounded: Bounded) -> None:
    async def scenario() -> None:
        first = await new_link(backend)
        job = await start_job(first, "local", ["cat"], stdin=True)
        second = await attached(backend, first.identity)
        other = Job(second, job.id)
        waiting = asyncio.ensure_future(other.wait())
        await job.write(b"from the first ")
        await other.write(b"from the second")
        await job.close_stdin()
        assert (await waiting).stdout == b"from the first from the second"
        await other.prune()
        with pytest.raises(UsageError, match="no job"):
            await job.status()
        await second.close()
        await first.close()

    bounded(scenario())


def test_a_new_process_finds_the_job_of_a_killed_one(soon: Soon, bounded: Bounded) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATOR, "echo begun; read x; echo $x"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    ) as orchestrator:
        assert orchestrator.stdout is not None
        id = orchestrator.stdout.readline().strip()
        orchestrator.send_signal(signal.SIGKILL)

    async def kinds(job: Job) -> list[str]:
        return [event.kind async for event in job.logs()]

    async def scenario() -> None:
        (record,) = read_records()
        assert record.target == "local"
        link = await attached(LocalBackend(), record.identity)
        (status,) = await list_jobs(link)
        assert (status.id, status.name, status.state) == (id, "kept", JobState.RUNNING)
        job = Job(link, id)
        await job.write(b"after the crash\n")
        assert (await job.wait()).stdout == b"begun\nafter the crash\n"
        assert await kinds(job) == ["stdout"]
        await job.prune()
        assert read_records() == []
        await link.close()
        await soon(lambda: not Path(record.folder).exists())

    bounded(scenario())


def test_a_guest_without_clients_ends_when_its_jobs_are_forgotten(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, soon: Soon, bounded: Bounded
) -> None:
    keep_for(monkeypatch, "0.3")

    async def scenario() -> None:
        link = await new_link(backend)
        job = await start_job(link, "local", "read x", stdin=True)
        folder, spool = Path(link.guest["folder"]), f"/var/tmp/hx-{link.guest['id']}"
        assert names_in(spool) == [f"job-{job.id}"]
        await job.close_stdin()
        await link.close()
        await soon(lambda: not folder.exists())
        assert names_in(spool) is None

    bounded(scenario())


def keep_for(patch: pytest.MonkeyPatch, seconds: str) -> None:
    """Send guests that forget their ended jobs after ``seconds``: the real thing takes a day."""
    original = vars(bootstrap)["_module"]

    def module(name: str, *, with_source: bool) -> tuple[str, bytes, bytes]:
        name, code, source = original(name, with_source=with_source)
        if name == "jobs.service":
            source = original(name, with_source=True)[2]
            assert b"KEEP_S = 86400.0" in source
            source = source.replace(b"KEEP_S = 86400.0", f"KEEP_S = {seconds}".encode())
            code = marshal.dumps(compile(source, name, "exec"))
        return name, code, source

    bootstrap.part_payload.cache_clear()
    patch.setattr(bootstrap, "_module", module)


@pytest.fixture(autouse=True)
def _parts_as_they_are() -> Any:
    yield
    bootstrap.part_payload.cache_clear()


def test_an_ended_job_is_remembered_until_pruned(backend: LocalBackend, bounded: Bounded) -> None:
    async def scenario() -> None:
        first = await new_link(backend)
        job = await start_job(first, "local", "echo kept; exit 9")
        await job.wait()
        identity = first.identity
        await first.close()
        second = await attached(backend, identity)
        result = await Job(second, job.id).wait()
        assert (result.exit_code, result.stdout) == (9, b"kept\n")
        assert await prune_jobs(second) == [job.id]
        assert await list_jobs(second) == []
        await second.close()
        with pytest.raises(PlaceUnavailable, match="guest is gone") as raised:
            await attached(backend, identity)
        assert raised.value.guest_is_gone

    bounded(scenario())


def test_a_guest_is_gone_after_a_reboot_and_not_because_of_another_machine(
    backend: LocalBackend, bounded: Bounded
) -> None:
    async def scenario() -> None:
        link = await new_link(backend)
        for changed, is_gone in (({"boot": "another"}, True), ({"host": "where no guest is gone"}, False)):
            with pytest.raises(PlaceUnavailable) as raised:
                await attached(backend, {**link.identity, **changed})
            assert raised.value.guest_is_gone is is_gone
        await link.close()

    bounded(scenario())


def test_pruning_removes_the_log_and_spares_running_jobs(backend: LocalBackend, bounded: Bounded) -> None:
    async def scenario() -> None:
        link = await new_link(backend)
        ended = await start_job(link, "local", "echo text")
        running = await start_job(link, "local", "sleep 1000")
        await ended.wait()
        spool = f"/var/tmp/hx-{link.guest['id']}"
        assert await prune_jobs(link) == [ended.id]
        assert names_in(spool) == [f"job-{running.id}"]
        with pytest.raises(UsageError, match="kill it first"):
            await running.prune()
        await ended.prune()  # safe when forgotten already
        await running.kill(0.1)
        await running.prune()
        assert names_in(spool) == []
        await link.close()

    bounded(scenario())


def test_the_end_of_the_guest_ends_its_jobs(backend: LocalBackend, soon: Soon, bounded: Bounded) -> None:
    async def scenario() -> None:
        link = await new_link(backend)
        job = await start_job(link, "local", "trap '' TERM; setsid sleep 1000 & wait; sleep 1000")
        pid = (await job.status()).pid
        guest = parent(parent(pid))
        folder, spool = Path(link.guest["folder"]), f"/var/tmp/hx-{link.guest['id']}"
        link.detach()
        os.kill(guest, signal.SIGKILL)
        await soon(lambda: not folder.exists())
        assert not alive(pid)
        assert names_in(spool) is None

    bounded(scenario())


def test_the_record_comes_with_the_first_job_and_goes_with_the_last(
    backend: LocalBackend, state: Path, bounded: Bounded
) -> None:
    async def scenario() -> None:
        link = await new_link(backend)
        assert read_records() == []
        jobs = [await start_job(link, "docker:python:3.11", "true") for _ in range(2)]
        (record,) = read_records()
        assert (record.target, record.id) == ("docker:python:3.11", link.guest["id"])
        assert record.identity == link.identity
        for job in jobs:
            assert read_records() == [record]
            await job.wait()
            await job.prune()
        assert read_records() == []
        await link.close()

    bounded(scenario())


def test_a_job_that_starts_while_the_last_one_is_pruned_stays_recorded(backend: LocalBackend, bounded: Bounded) -> None:
    async def scenario() -> None:
        link = await new_link(backend)
        for _ in range(30):
            old = await start_job(link, "local", "true")
            await old.wait()
            new, _ = await asyncio.gather(start_job(link, "local", "true"), old.prune())
            assert [record.id for record in read_records()] == [link.guest["id"]]
            await new.wait()
            await new.prune()
        await link.close()

    bounded(scenario())


def test_a_record_that_is_removed_too_late_comes_back(backend: LocalBackend, bounded: Bounded) -> None:
    async def scenario() -> None:
        link = await new_link(backend)
        job = await start_job(link, "local", "true")
        (record,) = read_records()
        await forget_guest(link)  # what the last prune of another process does, a moment after our start
        assert read_records() == [record]
        await job.wait()
        await job.prune()
        await link.close()

    bounded(scenario())


def test_the_record_holds_no_environment(backend: LocalBackend, state: Path, bounded: Bounded) -> None:
    async def scenario() -> None:
        link = Link(backend, env={"TOKEN": "hunter2"}, cwd=None)
        await link.open()
        job = await start_job(link, "local", "true", env={"OTHER": "hunter3"})
        text = only_file(state)
        assert "hunter" not in text
        assert set(json.loads(text)) == {
            "id", "target", "created", "folder", "host", "boot", "python", "uid", "interpreter", "place",
        }  # fmt: skip
        await job.wait()
        await job.prune()
        await link.close()

    bounded(scenario())
