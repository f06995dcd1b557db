"""What a terminal tells of each command, to the audit and to the log."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from typing import TYPE_CHECKING, Literal

import pytest

import hermes_exec
from hermes_exec.config.paths import audit_file
from hermes_exec.config.secrets import Secret
from hermes_exec.errors import UsageError
from hermes_exec.observe.history import AuditRecord, read_audit
from hermes_exec.observe.logs import LineFormatter
from hermes_exec.observe.redact import Redactor
from hermes_exec.testing.place import link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

Carrier = Literal["guest", "plain"]
pytestmark = pytest.mark.parametrize("carrier", ["guest", "plain"])


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An audit that belongs to the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return iter([None])


def blocking(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test on an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        async def work() -> None:
            await test(**fixtures)

        asyncio.run(work())

    return run


def recorded() -> list[AuditRecord]:
    return list(read_audit(audit_file(os.environ)))


@blocking
async def test_a_stream_is_recorded_with_the_bytes_of_both_outputs(carrier: Carrier) -> None:
    async with (
        hermes_exec.open("local", carrier=carrier) as terminal,
        terminal.stream("printf 12345; printf 123 >&2") as stream,
    ):
        async for _ in stream:
            pass
    (record,) = recorded()
    assert (record.exit_code, record.stdout_bytes, record.stderr_bytes) == (0, 5, 3)


@blocking
async def test_a_stream_that_nobody_reads_is_recorded_with_all_its_bytes(carrier: Carrier) -> None:
    async with (
        hermes_exec.open("local", carrier=carrier) as terminal,
        terminal.stream(["head", "-c", "6000000", "/dev/zero"]) as stream,
    ):
        await stream.result()
    (record,) = recorded()
    assert (record.exit_code, record.stdout_bytes) == (0, 6_000_000)


@blocking
async def test_a_command_that_is_refused_has_an_end(carrier: Carrier) -> None:
    async with hermes_exec.open("local", carrier=carrier) as terminal:
        with pytest.raises(UsageError):
            await terminal.run("true", cwd="/no/such")
        with pytest.raises(UsageError):
            async with terminal.stream(["true"], cwd="/no/such") as stream:
                await stream.result()
    assert [(record.finished, record.failed, "no folder" in record.error) for record in recorded()] == 2 * [
        (True, True, True)
    ]


@blocking
async def test_a_command_whose_waiter_was_cancelled_has_an_end(carrier: Carrier) -> None:
    async with hermes_exec.open("local", carrier=carrier) as terminal:
        running = asyncio.create_task(terminal.run("echo begun; sleep 1000"))
        while not recorded():
            await asyncio.sleep(0.01)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    (record,) = recorded()
    assert (record.finished, record.exit_code, record.error) == (True, None, "cancelled")


@blocking
async def test_a_command_that_was_cancelled_has_an_end(carrier: Carrier) -> None:
    async with hermes_exec.open("local", carrier=carrier) as terminal, terminal.stream("sleep 1000") as stream:
        await stream.cancel()
    (record,) = recorded()
    assert (record.finished, record.error) == (True, "cancelled")


@blocking
async def test_a_command_that_was_lost_has_an_end(carrier: Carrier) -> None:
    if carrier == "plain":
        pytest.skip("a plain carrier has no guest to lose")
    async with hermes_exec.open("local", carrier=carrier) as terminal:
        running = asyncio.create_task(terminal.run("sleep 1000"))
        while not recorded():
            await asyncio.sleep(0.01)
        link(terminal).detach()
        with contextlib.suppress(hermes_exec.HermesError):
            await running
    (record,) = recorded()
    assert record.finished
    assert "detached" in record.error


@blocking
async def test_the_error_of_a_failed_command_shows_no_secret(
    carrier: Carrier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "hermes.toml"
    config.write_text('[backends.box]\ntype = "local"\nsecrets = ["PASS"]\n')
    monkeypatch.setenv("HERMES_EXEC_CONFIG", str(config))
    monkeypatch.setenv("PASS", "hunter2000")
    async with hermes_exec.open("box", carrier=carrier) as terminal:
        with pytest.raises(hermes_exec.CommandFailed) as failed:
            await terminal.run(["sh", "-c", "echo $PASS >&2; exit 3", "hunter2000"], check=True)
    assert str(failed.value) == "sh -c 'echo $PASS >&2; exit 3' [secret PASS]: exit code 3; it wrote: [secret PASS]"


@blocking
async def test_the_log_has_each_command_and_its_end_without_secrets(
    carrier: Carrier, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "hermes_exec.command"):
        async with hermes_exec.open("local", carrier=carrier, audit=False) as terminal:
            await terminal.run("echo hunter2000")
    lines = LineFormatter("text", Redactor([Secret("PASS", "hunter2000")]))
    told = [lines.format(record) for record in caplog.records if record.name == "hermes_exec.command"]
    assert ["sent" in told[0], "ended" in told[1]] == [True, True]
    assert 'command="echo [secret PASS]"' in told[0]
    assert 'how="exit code 0"' in told[1]
    assert "stdout=11" in told[1]
    assert "hunter2000" not in "".join(told)


@blocking
async def test_the_log_has_a_broken_connection_and_its_end(carrier: Carrier, caplog: pytest.LogCaptureFixture) -> None:
    if carrier == "plain":
        pytest.skip("a plain carrier has no connection of its own")
    with caplog.at_level(logging.INFO, "hermes_exec.transport"):
        async with hermes_exec.open("local", carrier=carrier, audit=False, lease_s=77) as terminal:
            link(terminal).break_connection()
            await terminal.run("true")
    told = [record.getMessage() for record in caplog.records if record.name == "hermes_exec.transport"]
    assert told == ["the connection broke; its lease runs, 77 s", "connected again; 2 requests go on", "the guest ends"]
