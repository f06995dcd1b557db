"""One connection for many terminals; what breaks it, and what is said when there is none."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.testing.place import wait_until
from hermes_exec_backends.ssh import SshBackend
from hermes_exec_backends.ssh.nonblocking_socket import NonblockingSocket
from tests.rigs.claims import free_port
from tests.rigs.sshd import Sshd
from tests.ssh.conftest import said

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence


@pytest.fixture
def own() -> Generator[Sshd]:
    """A server for one test alone, to be counted, stopped or broken."""
    with Sshd() as sshd:
        yield sshd


def logins(sshd: Sshd) -> int:
    """How many connections have logged in since it was made."""
    return sshd.log().count("Accepted publickey")


async def test_terminals_share_one_connection_and_the_last_closes_it(own: Sshd) -> None:
    async with hermes_exec.open(SshBackend(own.profile()), audit=False) as one:
        async with hermes_exec.open(SshBackend(own.profile()), audit=False) as two:
            results = await asyncio.gather(*(each.run("echo $((6 * 7))") for each in (one, two) for _ in range(20)))
            assert {result.stdout for result in results} == {b"42\n"}
            assert logins(own) == 1
        assert (await one.run("echo still")).stdout == b"still\n"
    assert logins(own) == 1
    await wait_until(lambda: _closed(own))


async def _closed(sshd: Sshd) -> bool:
    return not sshd.talking()


async def test_other_settings_get_a_connection_of_their_own(own: Sshd) -> None:
    async with (
        hermes_exec.open(SshBackend(own.profile()), audit=False),
        hermes_exec.open(SshBackend(own.profile(compression=True)), audit=False) as two,
    ):
        assert (await two.run("seq 20000 | tail -n 1")).stdout == b"20000\n"
        assert logins(own) == 2


async def test_an_answer_that_is_faster_than_who_asked(own: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    write = NonblockingSocket.write

    def slowly(self: NonblockingSocket, parts: Sequence[bytes]) -> None:
        write(self, parts)
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.2)

    monkeypatch.setattr(NonblockingSocket, "write", slowly)
    async with asyncio.timeout(60), hermes_exec.open(SshBackend(own.profile()), audit=False) as terminal:
        assert (await terminal.run("echo in")).stdout == b"in\n"


async def test_more_terminals_than_one_connection_may_carry() -> None:
    with Sshd(settings="MaxSessions 2") as sshd:
        terminals = [await hermes_exec.open(SshBackend(sshd.profile()), audit=False) for _ in range(5)]
        try:
            results = await asyncio.gather(*(each.run("echo in") for each in terminals))
            assert [result.stdout for result in results] == [b"in\n"] * 5
            assert logins(sshd) == 3
        finally:
            for each in terminals:
                await each.close()


async def test_a_server_that_is_started_anew_loses_nothing(own: Sshd) -> None:
    async with hermes_exec.open(SshBackend(own.profile()), audit=False) as terminal:
        await terminal.run("kept=here; mkfifo go; : > count")
        running = asyncio.ensure_future(terminal.run("echo x >> count; echo before; read x < go; echo after"))
        await wait_until(lambda: _has(own, "count", "x\n"))
        await asyncio.to_thread(own.stop)
        await asyncio.to_thread(own.start)
        await terminal.run(["sh", "-c", "echo go > go"], cwd=str(own.home()))
        assert (await running).stdout == b"before\nafter\n"
        assert (await terminal.run("echo $kept; cat count")).stdout == b"here\nx\n"


async def _has(sshd: Sshd, name: str, text: str) -> bool:
    return (sshd.home() / name).read_text() == text


async def test_every_terminal_of_a_broken_connection_comes_back_over_one_new_one(own: Sshd) -> None:
    backends = [SshBackend(own.profile()) for _ in range(4)]
    terminals = [await hermes_exec.open(backend, audit=False) for backend in backends]
    await asyncio.to_thread(own.stop)
    await asyncio.to_thread(own.start)
    results = await asyncio.gather(*(each.run("echo back") for each in terminals))
    assert [result.stdout for result in results] == [b"back\n"] * 4
    assert logins(own) == 2
    for each in terminals:
        await each.close()


def test_a_name_that_nobody_knows_is_told(own: Sshd) -> None:
    with pytest.raises(PlaceUnavailable, match="the name no-such-host.invalid cannot be resolved"):
        said(own.profile(host="no-such-host.invalid"))


def test_a_port_where_nobody_listens_is_told(own: Sshd) -> None:
    with pytest.raises(PlaceUnavailable, match="refused the connection: no sshd listens there"):
        said(own.profile(port=free_port()))


def test_a_host_that_does_not_answer_is_told(own: Sshd) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        with pytest.raises(PlaceUnavailable, match="did not answer within 0.5 s"):
            said(own.profile(port=full.getsockname()[1], connect_timeout_s=0.5))
        for each in waiting:
            each.close()


def test_something_that_is_no_ssh_server_is_told(own: Sshd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        from threading import Thread

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 50)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass

        Thread(target=answer, daemon=True).start()
        with pytest.raises(PlaceUnavailable, match="is not an SSH server that we can talk to"):
            said(own.profile(port=other.getsockname()[1], connect_timeout_s=3.0))


def test_nothing_of_a_connection_stays_after_a_failed_login(own: Sshd) -> None:
    with pytest.raises(PlaceUnavailable):
        said(own.profile(key_path=str(own.new_key("stranger"))))
    import threading

    assert not [each for each in threading.enumerate() if "Transport" in type(each).__name__ and each.is_alive()]
