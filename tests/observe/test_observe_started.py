"""What the audit has of jobs and interactive programs."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.config.paths import audit_file
from hermes_exec.errors import UsageError
from hermes_exec.observe.history import AuditRecord, read_audit

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit that belongs to the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def recorded() -> list[AuditRecord]:
    return list(read_audit(audit_file(os.environ)))


def test_a_job_is_recorded_with_its_end_once_somebody_has_seen_it() -> None:
    async def scenario() -> None:
        async with hermes_exec.open("local") as terminal:
            job = await terminal.start("read -r line; printf 12345; exit 3", name="five", cwd="/", stdin=True)
            (begun,) = recorded()
            assert (begun.kind, begun.id, begun.session, begun.cwd, begun.finished) == (
                "job",
                job.id,
                "five",
                "/",
                False,
            )
            await job.write("go\n")
            await job.wait()
            await job.wait()
            await job.prune()
        (record,) = recorded()
        assert (record.finished, record.exit_code, record.stdout_bytes) == (True, 3, 5)

    asyncio.run(scenario())


def test_the_end_of_a_job_is_recorded_by_another_terminal_too() -> None:
    async def scenario() -> None:
        async with hermes_exec.open("local") as terminal:
            id = (await terminal.start("exit 4")).id
            job = await terminal.job(id)
            await job.wait()
            await job.prune()
        (record,) = recorded()
        assert (record.id, record.finished, record.exit_code) == (id, True, 4)

    asyncio.run(scenario())


def test_a_job_that_could_not_start_is_recorded_with_the_reason() -> None:
    async def scenario() -> None:
        async with hermes_exec.open("local") as terminal:
            with pytest.raises(UsageError):
                await terminal.start(["no-such-program"])
        (record,) = recorded()
        assert (record.kind, record.finished, record.exit_code) == ("job", True, None)
        assert "no-such-program" in record.error

    asyncio.run(scenario())


def test_an_interactive_program_is_recorded_with_its_end() -> None:
    async def scenario() -> None:
        async with hermes_exec.open("local") as terminal, await terminal.pty(["sh", "-c", "printf 123; exit 5"]) as pty:
            assert b"".join([data async for data in pty]) == b"123"
            await pty.wait()
        (record,) = recorded()
        assert (record.kind, record.command) == ("pty", "sh -c 'printf 123; exit 5'")
        assert (record.finished, record.exit_code, record.stdout_bytes) == (True, 5, 3)

    asyncio.run(scenario())


def test_an_interactive_program_that_was_left_running_has_no_end() -> None:
    async def scenario() -> None:
        async with hermes_exec.open("local") as terminal:
            pty = await terminal.pty(["sleep", "1000"])
            await pty.detach()
            (record,) = recorded()
            assert (record.kind, record.finished) == ("pty", False)

    asyncio.run(scenario())
