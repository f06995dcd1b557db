"""Blocking calls where an event loop is already running."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest

import hermes_exec.sync as hx
from hermes_exec._sync.portal import portal
from hermes_exec.transport.link import Link
from hermes_exec_backends.local import LocalBackend

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_it_works_inside_a_running_loop_as_in_a_notebook() -> None:
    async def cell() -> bytes:
        with hx.open("local", audit=False) as terminal:
            terminal.run("x=1")
            return terminal.run("echo $x").stdout

    assert asyncio.run(cell()) == b"1\n"


def test_a_terminal_can_be_used_inside_and_outside_of_a_running_loop_by_turns(terminal: hx.Terminal) -> None:
    async def inside() -> bytes:
        return terminal.run("echo inside").stdout

    for _ in range(3):
        assert asyncio.run(inside()) == b"inside\n"
        assert terminal.run("echo outside").stdout == b"outside\n"


def test_a_call_from_a_callback_of_the_loop_is_refused_instead_of_waiting_for_itself(
    terminal: hx.Terminal,
) -> None:
    with pytest.raises(hx.UsageError, match="would wait for itself"):
        portal().do(lambda: terminal.run("true"))
    assert terminal.run("true").ok


def in_the_background(work: Callable[[], object], after_s: float) -> None:
    """Have the loop call ``work`` later, while nobody waits for it."""
    portal().do(lambda: asyncio.get_running_loop().call_later(after_s, work))


def test_the_loop_goes_on_while_nobody_calls(terminal: hx.Terminal) -> None:
    done = threading.Event()
    in_the_background(done.set, 0.05)
    assert done.wait(10)


def test_the_loop_goes_on_after_a_callback_that_exits(terminal: hx.Terminal) -> None:
    def leave() -> None:
        raise SystemExit

    done = threading.Event()
    in_the_background(leave, 0.05)
    in_the_background(done.set, 0.1)
    assert done.wait(10)
    assert terminal.run("true").ok


def test_a_forwarded_connection_goes_on_while_nobody_calls(terminal: hx.Terminal) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        terminal.forward(0, server.getsockname()[1]) as forward,
        socket.create_connection((forward.address.host, forward.address.port)) as client,
    ):
        peer, _ = server.accept()
        with peer:
            for text in (b"ping", b"pong") * 20:
                client.sendall(text)
                assert peer.recv(4, socket.MSG_WAITALL) == text


def test_a_broken_link_is_mended_while_nobody_calls(fifo: Path) -> None:
    async def opened() -> Link:
        link = Link(LocalBackend(), env={}, cwd=None)
        await link.open()
        return link

    door, answered = portal(), threading.Event()
    link = door.call(opened())
    call = door.do(lambda: link.call("exec", {"argv": [b"cat", os.fsencode(fifo)]}))
    door.do(lambda: call.answer.add_done_callback(lambda _: answered.set()))
    door.do(link.break_connection)
    fifo.write_text("the end")
    assert answered.wait(10)  # it came over a new channel
    door.call(link.close())
