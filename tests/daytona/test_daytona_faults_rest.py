"""Faults that a sandbox of Daytona can meet besides its creation and its connection: our error, and what is left."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import PlaceUnavailable
from hermes_exec_backends._shared import backoff, labels
from hermes_exec_backends.daytona import DaytonaBackend, connection, errors, file_calls
from tests.rigs.breadth import leave_out
from tests.rigs.daytona_rig import only, ran

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.daytona.conftest import Opened
    from tests.rigs.daytona_faults import Drop
    from tests.rigs.daytona_server import Daytona

leave_out("takes long")


@pytest.mark.parametrize(
    "fault",
    [
        *({"status": status} for status in (404, 408, 429, 500, 502, 503, 504)),
        *({"drop": drop, "when": when} for drop in ("fin", "rst") for when in ("before", "after")),
    ],
    ids=lambda fault: "-".join(map(str, fault.values())),
)
def test_a_look_at_a_new_sandbox_that_fails_once_leaves_it_the_only_one(
    run: Any, daytona: Daytona, opened: Opened, fault: dict[str, Any]
) -> None:
    daytona.fail("get_sandbox", **fault)
    before = daytona.count("create_sandbox")

    async def work() -> None:
        async with opened() as terminal:
            assert len(daytona.sandboxes) == 1
            assert (await terminal.run("echo in")).stdout == b"in\n"

    run(work())
    assert daytona.count("create_sandbox") - before == 1


def test_a_deletion_that_is_throttled_waits_as_long_as_the_service_says(
    run: Any, daytona: Daytona, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_S", 0.01)
    asked_s = 0.4
    times: list[float] = []

    async def note() -> None:
        times.append(time.monotonic())

    async def work() -> None:
        async with opened():
            daytona.fail("delete_sandbox", status=429, headers={"Retry-After": str(asked_s)}, times=2, act=note)

    run(work())
    assert len(times) == 2
    assert times[1] - times[0] >= asked_s
    assert not daytona.sandboxes


def test_a_deletion_that_never_succeeds_is_told_and_the_sandbox_ends_with_its_lease(
    run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_S", 0.01)

    async def work() -> None:
        terminal = await hermes_exec.open(backend(), audit=False, lease_s=60.0)
        fault = daytona.fail("delete_sandbox", status=503, message="away", times=99)
        with pytest.raises(
            PlaceUnavailable, match="was not deleted.*may cost until its lease ends it.*backends --cost"
        ):
            await terminal.close()
        assert fault.met == backoff.TRIES

    run(work())
    assert len(daytona.sandboxes) == 1
    daytona.minute_s = 0.02
    daytona.do(daytona.until(lambda: not daytona.sandboxes))


def test_without_the_main_service_commands_go_on_and_the_sandbox_ends_with_its_lease(
    run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend]
) -> None:
    async def work() -> None:
        terminal = await hermes_exec.open(backend(), audit=False, lease_s=60.0)
        for operation in ("get_sandbox", "delete_sandbox", "update_last_activity"):
            daytona.fail(operation, drop="rst", times=999)
        assert (await terminal.run("echo ran >> /srv/once; echo in")).stdout == b"in\n"
        assert ran(only(daytona)) == "ran\n"
        with pytest.raises(PlaceUnavailable):
            await terminal.close()

    run(work())
    daytona.recover()
    daytona.minute_s = 0.02
    daytona.do(daytona.until(lambda: not daytona.sandboxes))


def test_a_relay_that_is_killed_is_replaced_and_nothing_runs_twice(run: Any, daytona: Daytona, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            cell = only(daytona).cell
            assert cell is not None
            killed = await daytona.also(cell.exec(["pkill", "-KILL", "-f", "tty.setraw"]))
            await daytona.also(killed.wait())
            assert (await terminal.run("echo ran >> /srv/once; echo in")).stdout == b"in\n"
            assert ran(only(daytona)) == "ran\n"

    run(work())


@pytest.mark.parametrize("operation", ["upload_files", "download_files"])
def test_a_large_move_that_stalls_is_given_up_and_done_again(
    run: Any, daytona: Daytona, opened: Opened, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr(file_calls, "_MOVE_S", 5)
    data = bytes(range(256)) * 20_000

    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            fault = daytona.fail(operation, delay_s=600.0)
            assert (await terminal.run(["cat"], stdin=data)).stdout == data
            assert fault.met == 1

    run(work())


@pytest.mark.parametrize(
    "fault", [{"status": 408, "code": "PROCESS_EXECUTION_TIMEOUT"}, {"status": 500}, {"drop": "rst"}],
    ids=["timeout", "failure", "rst"],
)  # fmt: skip
def test_a_sandbox_of_which_nobody_says_whether_it_has_jobs_is_left_and_told(
    run: Any, daytona: Daytona, opened: Opened, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any]
) -> None:
    monkeypatch.setenv("DAYTONA_API_KEY", daytona.key)
    monkeypatch.setenv("DAYTONA_API_URL", daytona.api_url)

    async def work() -> None:
        async with opened():
            sandbox = only(daytona)
            sandbox.labels[labels.STATE] = "jobs"
            daytona.fail("execute_command", times=99, **fault)
            (leftover,) = await DaytonaBackend.reap()
            assert leftover.target == f"daytona:@{sandbox.name}"
            assert leftover.left
            assert sandbox.state == "started"

    run(work())


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_an_sdk_that_opens_terminals_otherwise_is_waited_for(
    run: Any, daytona: Daytona, opened: Opened, monkeypatch: pytest.MonkeyPatch, how: Drop
) -> None:
    monkeypatch.setattr(connection, "OPENS", "_not_there")

    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            await daytona.also(daytona.cut(only(daytona), how))
            assert (await terminal.run("echo ran >> /srv/once; echo in")).stdout == b"in\n"
            assert ran(only(daytona)) == "ran\n"

    run(work())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("DaytonaQueueTimeoutError", "no machine was free in time"),
        ("DaytonaSpotEvictedError", "evicted for a customer who pays more"),
    ],
)
def test_what_only_the_sdk_tells_of_a_wait_has_an_error_of_its_own(name: str, words: str) -> None:
    import daytona as sdk

    error = errors.translate_error("the sandbox", getattr(sdk, name)("it was"))
    assert isinstance(error, PlaceUnavailable)
    assert words in error.what
    assert error.remedy
