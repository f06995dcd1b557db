"""Every fault that a creation can meet: which error comes of it, how often it was asked for, and what is left."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import ConfigError, HermesError, PlaceUnavailable
from hermes_exec.extras import install_command
from hermes_exec_backends._shared import backoff
from hermes_exec_backends.daytona import DaytonaBackend, create
from tests.rigs import daytona_rig

if TYPE_CHECKING:
    from tests.daytona.conftest import Opened
    from tests.rigs.daytona_server import Daytona

REFUSED = [
    (400, "400"),
    (401, "key was refused"),
    (403, "not allowed (403)"),
    (409, "409"),
    (410, "410"),
    (422, "422"),
]
FAILED = [408, 500, 502, 503, 504]
DROPS = ["fin", "rst"]


async def refused(opened: Opened, **options: Any) -> HermesError:
    """The error by which opening fails."""
    with pytest.raises(HermesError) as caught:
        async with opened(**options):
            pytest.fail("it was opened")
    assert caught.value.state == "nothing ran"
    assert "dtn_" not in f"{caught.value} {caught.value!r}"
    return caught.value


@pytest.mark.parametrize(("status", "words"), REFUSED)
def test_a_refused_creation_is_told_and_not_repeated(
    run: Any, daytona: Daytona, opened: Opened, status: int, words: str
) -> None:
    fault = daytona.fail("create_sandbox", status=status, message="no, and this is why", times=9)
    error = run(refused(opened))
    assert isinstance(error, PlaceUnavailable)
    assert error.what.startswith("daytona: ")
    assert "no, and this is why" in error.what
    assert fault.met == 1
    assert words in error.what
    assert not daytona.sandboxes


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("status", FAILED)
def test_a_creation_that_fails_once_makes_one_sandbox(
    run: Any, daytona: Daytona, opened: Opened, status: int, when: str
) -> None:
    daytona.fail("create_sandbox", when=when, status=status)
    before = daytona.count("create_sandbox")

    async def work() -> None:
        async with opened() as terminal:
            assert len(daytona.sandboxes) == 1
            assert (await terminal.run("echo in")).stdout == b"in\n"

    run(work())
    assert daytona.count("create_sandbox") - before == (2 if when == "before" else 1)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("drop", DROPS)
def test_a_creation_whose_connection_breaks_makes_one_sandbox(
    run: Any, daytona: Daytona, opened: Opened, drop: str, when: str
) -> None:
    daytona.fail("create_sandbox", when=when, drop=drop)

    async def work() -> None:
        async with opened() as terminal:
            assert len(daytona.sandboxes) == 1
            assert (await terminal.run("echo in")).stdout == b"in\n"

    run(work())


@pytest.mark.parametrize("status", FAILED)
def test_a_creation_that_always_fails_is_told_and_leaves_nothing(
    run: Any, daytona: Daytona, opened: Opened, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_S", 0.01)
    fault = daytona.fail("create_sandbox", status=status, message="out of order", times=99)
    error = run(refused(opened))
    assert "out of order" in error.what
    assert error.remedy == "hermes-exec doctor daytona"
    assert fault.met == backoff.TRIES


def test_a_lost_reply_and_a_service_that_answers_no_more_say_that_a_sandbox_may_be_there(
    run: Any, daytona: Daytona, opened: Opened
) -> None:
    daytona.fail("create_sandbox", when="after", drop="rst")
    daytona.fail("get_sandbox", status=503, message="away", times=99)
    error = run(refused(opened, lease_s=60.0))
    assert "may be there, and then ends by itself" in error.what
    (sandbox,) = daytona.sandboxes.values()
    assert (sandbox.auto_stop, sandbox.auto_delete) == (3, 0)
    daytona.recover()
    daytona.minute_s = 0.02
    daytona.do(daytona.until(lambda: not daytona.sandboxes))


@pytest.mark.parametrize("header", ["Retry-After", "Retry-After-sandbox-create"])
def test_too_many_requests_are_waited_for_as_long_as_the_service_says(
    run: Any, daytona: Daytona, opened: Opened, header: str
) -> None:
    fault = daytona.fail("create_sandbox", status=429, headers={header: "0.05"}, times=2)

    async def work() -> None:
        async with opened():
            assert len(daytona.sandboxes) == 1

    run(work())
    assert fault.met == 2


def test_too_many_requests_are_told_when_waiting_is_too_long(run: Any, daytona: Daytona, opened: Opened) -> None:
    fault = daytona.fail("create_sandbox", status=429, headers={"Retry-After": "3600"}, times=9)
    error = run(refused(opened))
    assert "too many requests" in error.what
    assert error.remedy == "try again in 3600 s"
    assert fault.met == 1


def test_an_exceeded_quota_says_what_to_do(run: Any, daytona: Daytona, opened: Opened) -> None:
    daytona.quota = 0
    error = run(refused(opened))
    assert "Total CPU limit exceeded" in error.what
    assert "backends --cost" in error.remedy


def test_a_key_that_is_no_more_says_how_to_make_one(run: Any, daytona: Daytona, opened: Opened) -> None:
    daytona.key = "dtn_another"
    error = run(refused(opened))
    assert "the key was refused (401)" in error.what
    assert "may be there" not in error.what
    assert "dashboard/keys" in error.remedy


def test_a_snapshot_that_is_not_there_is_named(run: Any, daytona: Daytona, opened: Opened) -> None:
    assert "Snapshot absent not found" in run(refused(opened, snapshot="absent")).what


def test_a_volume_that_is_not_there_is_named(run: Any, daytona: Daytona, opened: Opened) -> None:
    assert "Volume absent not found" in run(refused(opened, volumes={"/data": "absent"})).what


def test_a_sandbox_that_fails_to_start_is_told_why_and_deleted(run: Any, daytona: Daytona, opened: Opened) -> None:
    daytona.create_fails = "no runner is available"
    error = run(refused(opened))
    assert "no runner is available" in error.what
    assert daytona.count("delete_sandbox")


def test_a_sandbox_that_does_not_start_in_time_is_deleted(
    run: Any, daytona: Daytona, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(create, "_CREATE_S", 0.5)
    monkeypatch.setattr(create, "STATE_S", 0.5)
    monkeypatch.setattr(daytona, "create_s", 600.0)
    run(refused(opened))


def test_opening_that_is_cancelled_leaves_nothing(
    run: Any, daytona: Daytona, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daytona, "create_s", 600.0)

    async def enter() -> None:
        async with opened():
            pass

    async def work() -> None:
        task = asyncio.create_task(enter())
        await daytona.also(daytona.until(lambda: bool(daytona.sandboxes)))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())


def test_a_service_that_cannot_be_reached_is_told_with_its_cause(
    run: Any, daytona: Daytona, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/api"
        profile = daytona_rig.profile(daytona).model_copy(update={"api_url": address})

        async def work() -> None:
            with pytest.raises(PlaceUnavailable, match="the connection is refused; nothing was created"):
                await hermes_exec.open(DaytonaBackend(profile), audit=False)

        run(work())


def test_no_sdk_names_the_extra(run: Any, daytona: Daytona, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "daytona", None)
    error = run(refused(opened))
    assert "is not installed" in error.what or "does not fit" in error.what
    assert error.remedy == install_command("daytona")


def test_no_key_says_where_it_was_looked_for(run: Any, daytona: Daytona, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = DaytonaBackend(daytona_rig.profile(daytona))
    monkeypatch.delenv("HX_TEST_DAYTONA_KEY")

    async def work() -> None:
        with pytest.raises(PlaceUnavailable, match="HX_TEST_DAYTONA_KEY is not set"):
            await backend.open()

    run(work())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpu": "V100"}, "there is no GPU 'V100'"),
        ({"gpu": "H100:many"}, "a count is a number"),
        ({"gpu": "all"}, "no GPUs by itself"),
        ({"snapshot": "base", "cpu": 2}, "a snapshot has its own cpu"),
        ({"snapshot": "base", "requirements": ("numpy",)}, "cannot be built into a snapshot"),
        ({"gpu": "H100", "allowed_gpus": ("H200",)}, "cost guard allows no GPU 'H100'"),
        ({"gpu": "H100", "allowed_gpus": ()}, "cost guard allows no GPU 'H100'"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_asked(
    run: Any, daytona: Daytona, opened: Opened, options: dict[str, Any], words: str
) -> None:
    before = len(daytona.calls)
    error = run(refused(opened, **options))
    assert isinstance(error, ConfigError)
    assert words in error.what
    assert len(daytona.calls) == before
