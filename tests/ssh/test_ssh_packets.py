"""Packets that the event loop opens itself, and those that it leaves to paramiko."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import selectors
import socket
import threading
from typing import TYPE_CHECKING

import pytest

import hermes_exec
from hermes_exec_backends.ssh import SshBackend
from hermes_exec_backends.ssh.packets import Packets
from tests.rigs.sshd import Sshd

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec_backends.profiles.ssh import SshProfile

_DATA = os.urandom(9_000_000)


async def _there_and_back(profile: SshProfile) -> None:
    async with hermes_exec.open(SshBackend(profile), audit=False) as terminal:
        await terminal.files.write("data", _DATA)
        digest = await terminal.run(["sha256sum", "data"])
        assert digest.stdout_text.split()[0] == hashlib.sha256(_DATA).hexdigest()
        back = await terminal.run(["cat", "data"], max_output=len(_DATA))
        assert back.stdout == _DATA
        mixed = await terminal.run("head -c 3000000 data; head -c 3000000 data >&2", max_output=len(_DATA))
        assert (mixed.stdout, mixed.stderr) == (_DATA[:3_000_000], _DATA[:3_000_000])


async def test_a_host_that_changes_keys_often_loses_nothing() -> None:
    with Sshd(settings="RekeyLimit 1M\nLogLevel DEBUG") as sshd:
        await _there_and_back(sshd.profile())
        assert sshd.log().count("SSH2_MSG_NEWKEYS received") > 3


async def test_keys_that_we_change_often_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packets, "REKEY_BYTES", 1_000_000)
    with Sshd(settings="LogLevel DEBUG") as sshd:
        await _there_and_back(sshd.profile())
        assert sshd.log().count("SSH2_MSG_NEWKEYS received") > 3


async def test_a_host_without_gcm_is_served_by_paramiko_itself() -> None:
    with Sshd(settings="Ciphers aes256-ctr") as sshd:
        await _there_and_back(sshd.profile())


async def test_a_compressed_connection_is_served_by_paramiko_itself(sshd: Sshd) -> None:
    await _there_and_back(sshd.profile(compression=True))


@pytest.mark.parametrize("at", [20_000, 2_000_000])
async def test_a_packet_that_was_changed_on_its_way_ends_that_connection_alone(sshd: Sshd, at: int) -> None:
    with _changes_a_byte(sshd, at) as port:
        async with hermes_exec.open(SshBackend(_by(sshd, port)), audit=False) as terminal:
            await terminal.run("kept=here")
            result = await terminal.run("head -c 4000000 /dev/zero; echo $kept", max_output=5_000_000)
            assert result.stdout == bytes(4_000_000) + b"here\n"
        assert sshd.log().count("Accepted publickey") >= 2


def _by(sshd: Sshd, port: int) -> SshProfile:
    text = (sshd.folder / "known_hosts").read_text().replace(f":{sshd.port} ", f":{port} ")
    (sshd.folder / "known_hosts_too").write_text(text)
    return sshd.profile(port=port, known_hosts_path=str(sshd.folder / "known_hosts_too"))


@contextlib.contextmanager
def _changes_a_byte(sshd: Sshd, at: int) -> Generator[int]:
    """A way to the host on which, of the first connection, the byte at this offset arrives as another one."""
    door = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def serve() -> None:
        offset = at
        while not stopped.is_set():
            try:
                near, _ = door.accept()
            except OSError:
                return
            threading.Thread(target=_relay, args=(near, sshd.port, offset), daemon=True).start()
            offset = 1 << 60

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield door.getsockname()[1]
    finally:
        stopped.set()
        door.shutdown(socket.SHUT_RDWR)
        door.close()


def _relay(near: socket.socket, port: int, at: int) -> None:
    seen = 0
    with near, socket.create_connection(("127.0.0.1", port)) as far, selectors.DefaultSelector() as selector:
        selector.register(near, selectors.EVENT_READ, far)
        selector.register(far, selectors.EVENT_READ, near)
        with contextlib.suppress(OSError):
            while True:
                for key, _ in selector.select():
                    source, sink = key.fileobj, key.data
                    assert isinstance(source, socket.socket)
                    data = bytearray(source.recv(65536))
                    if not data:
                        return
                    if source is far:
                        if 0 <= at - seen < len(data):
                            data[at - seen] ^= 1
                        seen += len(data)
                    sink.sendall(data)


async def test_what_many_commands_print_at_once_is_told_apart(sshd: Sshd) -> None:
    async with hermes_exec.open(SshBackend(sshd.profile()), audit=False) as terminal:
        results = await asyncio.gather(*(terminal.run(["seq", f"{n}00000", f"{n}20000"]) for n in range(1, 31)))
        for n, result in enumerate(results, 1):
            assert result.stdout == b"".join(b"%d\n" % line for line in range(n * 100_000, n * 100_000 + 20_001))
