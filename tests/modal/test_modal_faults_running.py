"""What goes wrong while commands run in a sandbox: our error, how often they ran, and what is left at the vendor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.errors import OutcomeUnknown, PlaceError, PlaceUnavailable
from hermes_exec_backends.modal import ModalBackend
from tests.modal.conftest import Opened, ran, wait_until_none_is_alive
from tests.rigs import modal
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal
    from tests.rigs.apart import Apart

leave_out("takes long")

ENDS = [
    ("TERMINATED", 137),
    ("TIMEOUT", 124),
    ("KERNEL_OOM_KILL", 137),
    ("IDLE_TIMEOUT", 0),
    ("MEMORY_MANAGER_EVICTION", 137),
    ("MEMORY_THRASHING_EVICTION", 137),
    ("INTERNAL_FAILURE", 1),
    ("SUCCESS", 0),
]


async def started(terminal: Terminal, name: str) -> asyncio.Task[Any]:
    """A command that has written its line, and goes on."""
    running = asyncio.ensure_future(terminal.run(f"echo x >> /tmp/{name}; echo up; sleep 1000"))
    while (await terminal.run(["test", "-s", f"/tmp/{name}"])).exit_code != 0:
        await asyncio.sleep(0.01)
    return running


@pytest.mark.parametrize(("status", "code"), ENDS, ids=[status for status, _ in ENDS])
@pytest.mark.parametrize("generation", ["v1", "v2"])
def test_a_sandbox_that_ends_leaves_the_outcome_unknown(
    run: Any, server: Apart, opened: Opened, status: str, code: int, generation: str
) -> None:
    name = f"ended-{status}-{generation}"

    async def work() -> None:
        async with opened(generation=generation) as terminal:
            running = await started(terminal, name)
            server.call("finish", server.call("alive")[0]["id"], status, code)
            with pytest.raises(OutcomeUnknown) as caught:
                await running
            assert "unknown" in caught.value.state
            with pytest.raises(PlaceError):
                await terminal.run("true")

    run(work())
    assert ran(server, name) == 1
    assert server.call("alive") == []


def test_a_worker_that_dies_leaves_the_outcome_unknown(run: Any, server: Apart, opened: Opened) -> None:
    async def work() -> None:
        async with opened(lease_s=2.0) as terminal:
            running = await started(terminal, "dead-worker")
            server.call("lose_worker")
            with pytest.raises(OutcomeUnknown):
                await running

    server.call("new_worker")
    run(work())
    assert ran(server, "dead-worker") == 1
    assert server.call("alive") == []


def test_a_worker_out_of_reach_leaves_the_outcome_unknown_after_the_lease(
    run: Any, server: Apart, opened: Opened
) -> None:
    async def work() -> None:
        async with opened(lease_s=2.0) as terminal:
            running = await started(terminal, "lost-worker")
            server.call("lose_worker", dies=False)
            with pytest.raises(OutcomeUnknown):
                await running

    server.call("new_worker")
    run(work())
    assert ran(server, "lost-worker") == 1
    wait_until_none_is_alive(server)


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
def test_connections_that_break_lose_and_repeat_nothing(run: Any, server: Apart, opened: Opened, reset: bool) -> None:
    name = f"cut-{reset}"

    async def work() -> None:
        async with opened() as terminal:
            text = f"for n in 1 2 3 4 5 6 7 8; do echo $n; echo x >> /tmp/{name}; sleep 0.2; done"
            running = asyncio.ensure_future(terminal.run(text))
            for _ in range(4):
                await asyncio.sleep(0.3)
                server.call("cut", reset=reset)
            assert (await running).stdout == b"1\n2\n3\n4\n5\n6\n7\n8\n"

    run(work())
    assert ran(server, name) == 8


@pytest.mark.parametrize("method", ["TaskExecStdinWrite", "TaskExecStart"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["status", "lost", "fin", "rst"])
def test_a_request_that_fails_once_is_carried_out_once(
    run: Any, server: Apart, opened: Opened, method: str, when: str, how: str
) -> None:
    name = f"once-{method}-{when}-{how}"

    async def work() -> None:
        if method == "TaskExecStart":
            server.call("fail", method, how=how, when=when)
        async with opened() as terminal:
            for turn in range(4):
                if method != "TaskExecStart":
                    server.call("fail", method, how=how, when=when, skip=turn % 2)
                assert (await terminal.run(f"echo x >> /tmp/{name}; echo {turn}")).stdout == b"%d\n" % turn

    run(work())
    assert ran(server, name) == 4


@pytest.mark.parametrize("how", ["status", "lost", "fin", "rst"])
def test_an_output_that_breaks_off_is_taken_up_again(run: Any, server: Apart, opened: Opened, how: str) -> None:
    async def work() -> None:
        async with opened() as terminal:
            for skip in (0, 3, 9):
                server.call("fail", "TaskExecStdioRead", how=how, when="during", skip=skip)
                result = await terminal.run("seq 1 300000; echo end >&2", max_output=1 << 24)
                assert result.stdout == b"".join(b"%d\n" % n for n in range(1, 300001))
                assert result.stderr == b"end\n"

    run(work())


def test_expired_tokens_are_renewed_unseen(run: Any, server: Apart, opened: Opened) -> None:
    server.call("give_tokens", for_s=1)

    async def work() -> None:
        async with opened() as terminal:
            for turn in range(3):
                await asyncio.sleep(1.5)
                assert (await terminal.run(f"echo x >> /tmp/expired; echo {turn}")).stdout == b"%d\n" % turn

    run(work())
    assert ran(server, "expired") == 3


def test_an_expired_token_of_the_control_plane_is_an_error_and_the_sandbox_ends_with_its_lease(
    run: Any, server: Apart, opened: Opened
) -> None:
    async def work() -> None:
        terminal = await hermes_exec.open(ModalBackend(modal.profile()), audit=False, lease_s=1.0)
        server.call("fail", "SandboxTerminate*", status="UNAUTHENTICATED", times=99)
        with pytest.raises(PlaceUnavailable):
            await terminal.close()

    run(work())
    wait_until_none_is_alive(server)


def test_being_throttled_in_the_middle_is_waited_for(run: Any, server: Apart, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            server.call("fail", "TaskExecStdinWrite", status="RESOURCE_EXHAUSTED", retry_after_s=0.2, times=2)
            assert (await terminal.run("echo x >> /tmp/throttled; echo in")).stdout == b"in\n"

    run(work())
    assert ran(server, "throttled") == 1


def test_bytes_that_are_no_text_arrive_as_they_are(run: Any, server: Apart, opened: Opened) -> None:
    async def work() -> None:
        for carrier in ("guest", "plain"):
            async with opened(carrier=carrier) as terminal:
                every = bytes(range(256)) * 100
                assert (await terminal.run(["cat"], stdin=every)).stdout == every

    run(work())


def test_a_reconnection_that_is_refused_is_tried_again(run: Any, server: Apart, opened: Opened) -> None:
    from hermes_exec.testing.place import link

    async def work() -> None:
        async with opened() as terminal:
            running = await started(terminal, "again")
            server.call("fail", "TaskExecStart", status="UNAVAILABLE", times=15)
            link(terminal).break_connection()
            assert (await terminal.run(["echo", "in"])).stdout == b"in\n"
            running.cancel()

    run(work())
    assert ran(server, "again") == 1
