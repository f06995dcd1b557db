"""What happens to a sandbox, or to the way there, while a command runs: how it is told, and that it ran once."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.errors import HermesError, OutcomeUnknown, PlaceGone
from tests.rigs.breadth import leave_out
from tests.rigs.daytona_rig import only, ran

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hermes_exec.backend import Exit
    from hermes_exec_backends.daytona import DaytonaBackend
    from tests.daytona.conftest import Opened
    from tests.rigs.daytona_faults import Drop
    from tests.rigs.daytona_sandbox import Sandbox
    from tests.rigs.daytona_server import Daytona

leave_out("takes long")

ENDS: dict[str, tuple[str, Callable[[Sandbox], Coroutine[Any, Any, None]]]] = {
    "stopped": ("the sandbox was stopped", lambda sandbox: sandbox.stop()),
    "archived": ("the sandbox was (stopped|archived)", lambda sandbox: sandbox.put_away()),
    "deleted": ("the sandbox was deleted", lambda sandbox: sandbox.destroy()),
    "evicted": ("evicted for a customer who pays more", lambda sandbox: sandbox.die("destroyed")),
    "dead": ("the sandbox failed: the runner was lost", lambda sandbox: sandbox.die()),
}
ROUTES = [400, 404, 408, 429, 500, 502, 503, 504]
RAN_ONCE = "echo ran >> /srv/once; echo out; while [ ! -e /srv/go ]; do sleep 0.02; done; echo end; exit 6"


class Nobody:
    """A receiver for what is never started."""

    def on_data(self, data: bytes, /) -> None:
        raise AssertionError(data)

    on_stderr = on_data

    def on_close(self, exit: Exit, /) -> None:
        raise AssertionError(exit)


@pytest.mark.parametrize("way", ["text", "words"])
@pytest.mark.parametrize("end", ENDS)
def test_the_end_of_a_sandbox_is_unknown_with_its_reason(
    run: Any, daytona: Daytona, opened: Opened, end: str, way: str
) -> None:
    words, bring_about = ENDS[end]

    async def work() -> None:
        async with opened(auto_delete_min=60) as terminal:
            command = RAN_ONCE if way == "text" else ["sh", "-c", RAN_ONCE]
            async with terminal.stream(command) as stream:
                assert (await anext(stream)).data == b"out\n"
                sandbox = only(daytona)
                assert ran(sandbox) == "ran\n"
                await daytona.also(bring_about(sandbox))
                with pytest.raises(OutcomeUnknown, match=words):
                    await stream.result()
                with pytest.raises(HermesError, match=words):
                    await terminal.run("echo again >> /srv/once")

    run(work())


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_broken_connection_changes_nothing_for_the_command(
    run: Any, daytona: Daytona, opened: Opened, how: Drop
) -> None:
    async def work() -> None:
        async with opened() as terminal, terminal.stream(["sh", "-c", RAN_ONCE]) as stream:
            assert (await anext(stream)).data == b"out\n"
            await daytona.also(daytona.cut(only(daytona), how))
            await terminal.run(["touch", "/srv/go"])
            assert b"".join([event.data async for event in stream]) == b"end\n"
            assert (await stream.result()).exit_code == 6
            assert ran(only(daytona)) == "ran\n"

    run(work())


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("how", ["fin", "rst"])
def test_commands_sent_into_breaking_connections_run_once(
    run: Any, daytona: Daytona, opened: Opened, how: Drop, when: str
) -> None:
    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            for turn in range(5):
                running = asyncio.ensure_future(terminal.run(f"echo {turn} >> /srv/once; echo out"))
                if when == "after":
                    sandbox = only(daytona)
                    await daytona.also(daytona.until(partial(more, sandbox, turn)))
                await daytona.also(daytona.cut(only(daytona), how))
                assert (await running).stdout == b"out\n"
            assert ran(only(daytona)) == "0\n1\n2\n3\n4\n"

    run(work())


def more(sandbox: Sandbox, than: int) -> bool:
    """Whether more commands have left their line."""
    assert sandbox.cell is not None
    file = sandbox.cell.root / "srv/once"
    return file.exists() and file.read_text().count("\n") > than


@pytest.mark.parametrize("status", ROUTES)
def test_a_way_that_fails_for_a_while_is_tried_again(run: Any, daytona: Daytona, opened: Opened, status: int) -> None:
    async def work() -> None:
        async with opened() as terminal, terminal.stream(["sh", "-c", RAN_ONCE]) as stream:
            assert (await anext(stream)).data == b"out\n"
            fault = daytona.fail("create_connect_pty", status=status, times=2)
            await daytona.also(daytona.cut(only(daytona), "rst"))
            await terminal.run(["touch", "/srv/go"])
            assert (await stream.result()).exit_code == 6
            assert fault.met == 2
            assert ran(only(daytona)) == "ran\n"

    run(work())


@pytest.mark.parametrize("drop", ["fin", "rst"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_way_that_breaks_while_it_is_made_is_tried_again(
    run: Any, daytona: Daytona, opened: Opened, drop: str, when: str
) -> None:
    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            daytona.fail("create_connect_pty", when=when, drop=drop)
            await daytona.also(daytona.cut(only(daytona), "rst"))
            assert (await terminal.run("echo x >> /srv/once; echo out")).stdout == b"out\n"
            assert ran(only(daytona)) == "x\n"

    run(work())


def test_a_key_that_expires_holds_up_only_what_needs_a_new_connection(
    run: Any, daytona: Daytona, opened: Opened
) -> None:
    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            daytona.key = "dtn_another"
            assert (await terminal.run("echo still")).stdout == b"still\n"
            await daytona.also(daytona.cut(only(daytona), "fin"))
            running = asyncio.ensure_future(terminal.run("echo x >> /srv/once; echo out"))
            await daytona.also(daytona.until(lambda: daytona.count("create_connect_pty") > 1))
            daytona.recover()
            assert (await running).stdout == b"out\n"
            assert ran(only(daytona)) == "x\n"

    run(work())


@pytest.mark.parametrize("status", [400, 401, 500, 502, 503])
def test_a_sandbox_without_a_way_in_is_told_and_deleted(
    run: Any, daytona: Daytona, opened: Opened, status: int
) -> None:
    daytona.fail("create_connect_pty", status=status, message="no way", times=99)

    async def work() -> None:
        with pytest.raises(HermesError, match=f"no terminal in the sandbox.*{status}"):
            async with opened():
                pytest.fail("it was opened")

    run(work())


def test_a_sandbox_that_dies_while_it_is_opened_is_told(run: Any, daytona: Daytona, opened: Opened) -> None:
    async def die() -> None:
        await only(daytona).die()

    daytona.fail("create_connect_pty", act=die, drop="rst", times=9)

    async def work() -> None:
        with pytest.raises(HermesError, match="the sandbox failed: the runner was lost"):
            async with opened():
                pytest.fail("it was opened")

    run(work())


def test_a_client_that_is_dropped_as_too_slow_goes_on_where_it_was(run: Any, daytona: Daytona, opened: Opened) -> None:
    async def work() -> None:
        async with opened() as terminal:
            await terminal.run("true")
            sandbox = only(daytona)
            (pty,) = sandbox.ptys.values()
            for count in (1000, 20_000):
                await daytona.also(pty.skip())
                result = await terminal.run(f"seq 1 {count}; echo x >> /srv/once")
                assert result.stdout == b"".join(b"%d\n" % number for number in range(1, count + 1))
                pty = next(iter(pty for pty in sandbox.ptys.values() if not pty.over.is_set()))
            assert ran(sandbox) == "x\nx\n"
            assert daytona.count("create_connect_pty") >= 2

    run(work())


@pytest.mark.parametrize("times", [1, 2])
def test_a_deletion_that_fails_is_tried_again(run: Any, daytona: Daytona, opened: Opened, times: int) -> None:
    async def work() -> None:
        async with opened():
            daytona.fail("delete_sandbox", status=502, times=times)

    run(work())


@pytest.mark.parametrize("drop", ["fin", "rst"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_deletion_whose_connection_breaks_is_done(
    run: Any, daytona: Daytona, opened: Opened, drop: str, when: str
) -> None:
    async def work() -> None:
        async with opened():
            daytona.fail("delete_sandbox", when=when, drop=drop)

    run(work())


def test_a_place_that_has_gone_is_not_tried_again(
    run: Any, daytona: Daytona, backend: Callable[..., DaytonaBackend]
) -> None:
    async def work() -> None:
        made = backend()
        await made.open()
        await daytona.also(only(daytona).destroy())
        with pytest.raises(PlaceGone, match="the sandbox was deleted"):
            await made.spawn(["true"], Nobody())
        await made.close()

    run(work())
