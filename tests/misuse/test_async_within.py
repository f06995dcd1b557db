"""What opens something is awaited for it, or stands in ``async with``, which closes it: both ways, everywhere."""

from __future__ import annotations

import asyncio
import socket
from typing import assert_type

import pytest

import hermes_exec
from hermes_exec import Closed, Forward, Orchestrator, Pool, Pty, Session, Terminal
from hermes_exec.pool import Lease


async def test_a_session_stands_in_async_with_by_itself() -> None:
    async with hermes_exec.open("local", audit=False) as terminal:
        async with terminal.session(env={"x": "3"}) as session:
            assert_type(session, Session)
            assert (await session.run("echo $x")).stdout == b"3\n"
        with pytest.raises(Closed):
            await session.run("true")


async def test_a_session_can_be_awaited_and_then_stand_there() -> None:
    async with hermes_exec.open("local", audit=False) as terminal:
        async with await terminal.session() as session:
            assert (await session.run("echo in")).stdout == b"in\n"
        with pytest.raises(Closed):
            await session.run("true")


async def test_programs_ports_and_attaching_stand_there_alike() -> None:
    async with hermes_exec.open("local", audit=False) as terminal:
        async with terminal.forward(0, 1) as forward:
            assert_type(forward, Forward)
            host, port = forward.address.host, forward.address.port
            socket.create_connection((host, port), timeout=60).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, port), timeout=60)
        async with terminal.pty(["cat"], name="kept") as pty, terminal.attach("kept") as other:
            assert_type(pty, Pty)
            assert other.name == pty.name
        assert await terminal.ptys() == []


async def test_a_lease_stands_there_alike() -> None:
    async with Orchestrator({"here": Pool("local")}) as orchestrator:
        async with orchestrator.lease("here") as lease:
            assert_type(lease, Lease)
            assert (await lease.terminal.run(["true"])).ok
        assert lease.over


async def test_it_is_a_coroutine_for_tasks_and_gather() -> None:
    opening = asyncio.create_task(hermes_exec.open("local", audit=False))
    async with await opening as terminal:
        first, second = await asyncio.gather(terminal.session(), asyncio.create_task(terminal.session()))
        assert (await first.run("echo $$")).stdout != (await second.run("echo $$")).stdout


def test_a_terminal_may_be_all_that_a_loop_is_run_for() -> None:
    assert_type(asyncio.run(hermes_exec.open("local", audit=False, lease_s=1)), Terminal)


async def test_an_opening_that_was_forgotten_is_warned_of() -> None:
    async with hermes_exec.open("local", audit=False) as terminal:

        def forget() -> None:
            terminal.session()

        with pytest.warns(RuntimeWarning, match=r"Terminal\.session.* was never awaited"):
            forget()


async def test_an_error_inside_passes_through_and_what_was_opened_is_closed() -> None:
    async with hermes_exec.open("local", audit=False) as terminal:
        opened: list[Session] = []

        async def fail() -> None:
            async with terminal.session() as session:
                opened.append(session)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        with pytest.raises(Closed):
            await opened[0].run("true")


async def test_what_could_not_be_opened_is_an_error_before_the_block() -> None:
    async with hermes_exec.open("local", audit=False) as terminal:
        pass
    with pytest.raises(Closed):
        async with terminal.session():
            pytest.fail("it was closed")
