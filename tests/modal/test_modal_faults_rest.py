"""Faults that a sandbox of Modal can meet in the middle of its life: our error, and what is left at the vendor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import Closed, PlaceUnavailable
from hermes_exec_backends.modal import ModalBackend, account
from tests.modal.conftest import ran, wait_until_none_is_alive
from tests.rigs import modal

if TYPE_CHECKING:
    from tests.modal.conftest import Opened
    from tests.rigs.apart import Apart

BREAKS = pytest.mark.parametrize(
    ("how", "when"), [(how, when) for how in ("status", "lost", "fin", "rst") for when in ("before", "after")]
)


def test_being_throttled_makes_one_sandbox(run: Any, server: Apart, opened: Opened) -> None:
    server.call("fail", "SandboxCreate*", status="RESOURCE_EXHAUSTED", retry_after_s=0.1, times=3)
    server.call("forget_calls")

    async def work() -> None:
        async with opened():
            assert len(server.call("alive")) == 1

    run(work())
    assert server.call("calls")["SandboxCreateV2"] == 4
    assert server.call("alive") == []


REFUSED = {
    "no capacity for the first generation": (
        "SandboxGetTaskId", "RESOURCE_EXHAUSTED", "Insufficient capacity", {"generation": "v1"},
    ),
    "an unknown environment": (
        "AppGetOrCreate", "NOT_FOUND", "Environment 'gone' not found", {"environment": "gone"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "status", "message", "profile"), REFUSED.values(), ids=REFUSED)
def test_what_the_vendor_refuses_is_said_and_leaves_nothing(
    run: Any, server: Apart, opened: Opened, call: str, status: str, message: str, profile: dict[str, str]
) -> None:
    server.call("fail", call, status=status, message=message, times=99)

    async def work() -> None:
        with pytest.raises(PlaceUnavailable, match=message):
            async with opened(**profile):
                pytest.fail("it was opened")

    run(work())
    assert server.call("alive") == []


def test_a_name_whose_sandbox_cannot_be_found_is_an_error_and_leaves_nothing(
    run: Any, server: Apart, opened: Opened
) -> None:
    server.call("fail", "SandboxCreate*", status="ALREADY_EXISTS", message="the name is taken")
    server.call("forget_calls")

    async def work() -> None:
        with pytest.raises(PlaceUnavailable, match="the name is taken"):
            async with opened(name="taken"):
                pytest.fail("it was opened")

    run(work())
    assert server.call("calls")["SandboxCreateV2"] == 1
    assert server.call("alive") == []


def test_a_sandbox_that_has_ended_is_not_gone_back_to(run: Any, server: Apart, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            (one,) = server.call("alive")
            assert (await terminal.run("true")).exit_code == 0
        with pytest.raises(PlaceUnavailable, match="has ended"):
            async with opened(sandbox=one["id"]):
                pytest.fail("it was opened")

    run(work())
    assert server.call("alive") == []


@BREAKS
def test_an_end_whose_request_breaks_is_an_end(run: Any, server: Apart, opened: Opened, how: str, when: str) -> None:
    async def work() -> None:
        async with opened() as terminal:
            assert (await terminal.run("true")).exit_code == 0
            server.call("fail", "SandboxTerminate*", how=how, when=when)

    run(work())
    assert server.call("alive") == []


@BREAKS
def test_a_snapshot_whose_request_breaks_is_one_image(
    run: Any, server: Apart, opened: Opened, how: str, when: str
) -> None:
    async def work() -> str:
        async with opened() as terminal:
            server.call("fail", "TaskSnapshotFilesystem", how=how, when=when)
            return await terminal.snapshot()

    before = set(server.call("images"))
    target = run(work())
    made = {name for name, lines in server.call("images").items() if name not in before and not lines}
    assert made == {target.removeprefix("modal:")}


@pytest.mark.parametrize(
    "fault",
    [{"status": "UNAVAILABLE"}, {"status": "UNAUTHENTICATED"}, {"how": "rst"}],
    ids=["unavailable", "token", "rst"],
)
def test_without_the_control_plane_commands_go_on_and_the_sandbox_ends_with_its_lease(
    run: Any, server: Apart, fault: dict[str, Any]
) -> None:
    name = f"without-{'-'.join(fault.values())}"

    async def work() -> None:
        terminal = await hermes_exec.open(ModalBackend(modal.profile()), audit=False, lease_s=2.0)
        for method in ("Sandbox*", "AuthTokenGet", "ClientHello"):
            server.call("fail", method, times=999, **fault)
        assert (await terminal.run(f"echo x >> /tmp/{name}; echo in")).stdout == b"in\n"
        with pytest.raises(PlaceUnavailable):
            await terminal.close()

    run(work())
    assert ran(server, name) == 1
    wait_until_none_is_alive(server)


def test_a_terminal_that_is_closed_refuses_and_leaves_the_account_to_others(
    run: Any, server: Apart, opened: Opened
) -> None:
    async def work() -> None:
        async with opened() as stays:
            async with opened() as closed:
                assert (await closed.run("true")).exit_code == 0
            with pytest.raises(Closed):
                await closed.run("echo x >> /tmp/after-the-end")
            assert (await stays.run("echo in")).stdout == b"in\n"

    run(work())
    assert ran(server, "after-the-end") == 0


def test_an_answer_that_never_comes_is_given_up(
    run: Any, server: Apart, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with opened(lease_s=2.0) as terminal:
            assert (await terminal.run("true")).exit_code == 0
            monkeypatch.setattr(account.Account.call, "__defaults__", (1.0,))
            server.call("fail", "SandboxTerminate*", how="hang", times=99)
            with pytest.raises(PlaceUnavailable, match="no answer in time"):
                await terminal.close()

    run(work())
    server.call("heal")
    wait_until_none_is_alive(server)
