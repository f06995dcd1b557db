"""Debian's ngircd with TLS and a password, a proxy before it that cuts connections, and clients of people."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from hermes_exec.config.secrets import Secret
from hermes_exec_agent.frontends.gateway.irc import IrcAdapter, IrcSettings
from hermes_exec_agent.frontends.gateway.irc_protocol import parse_line
from tests.rigs import claims
from tests.rigs.bounded import until
from tests.rigs.certificates import write_certificate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

PASSWORD = "the server's own"
NICK = "agent"
GROUP = "#room"
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def find_server() -> str | None:
    return shutil.which("ngircd", path=PATH)


class Client:
    """A person with a client."""

    def __init__(self, nick: str) -> None:
        self.nick = nick
        self.lines: list[tuple[str, str, str]] = []
        """Sender, target and text of each message that came."""
        self._writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]
        self._joined = asyncio.Event()

    async def connect(self, port: int) -> None:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self.write(f"PASS :{PASSWORD}")
        self.write(f"NICK {self.nick}")
        self.write(f"USER {self.nick} 0 * :{self.nick}")
        self._reading = asyncio.create_task(self._read(reader))
        await self._joined.wait()

    def write(self, line: str) -> None:
        self._writer.write(f"{line}\r\n".encode())

    async def close(self) -> None:
        self.write("QUIT :gone")
        with contextlib.suppress(OSError):
            await self._writer.drain()
        await asyncio.wait([self._reading], timeout=5)
        self._reading.cancel()
        self._writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.readline():
            line = parse_line(data)
            if line.command == "PING":
                self.write(f"PONG :{line.text}")
            elif line.command == "001":
                self.write(f"JOIN {GROUP}")
            elif line.command == "366":
                self._joined.set()
            elif line.command == "PRIVMSG":
                self.lines.append((line.prefix.partition("!")[0], line.middle, line.text))


class IrcRig:
    """The server, as the conformance suite needs it."""

    redelivers = False

    def __init__(self, folder: Path, ports: tuple[int, int]) -> None:
        self.port, self.tls_port = ports
        self._folder = folder
        self._clients: dict[str, Client] = {}
        self._connections: set[asyncio.StreamWriter] = set()
        self._cuts_next = False
        self.proxy_port = 0

    def adapter(self) -> IrcAdapter:
        settings = IrcSettings(
            host="localhost",
            port=self.proxy_port,
            ca=self._folder / "cert.pem",
            nick=NICK,
            channels=(GROUP,),
            interval_s=0.0,
        )
        return IrcAdapter(settings, Secret("password", PASSWORD))

    async def client(self, name: str) -> Client:
        if name not in self._clients:
            client = self._clients[name] = Client(name.replace("-", "_"))
            await client.connect(self.port)
        return self._clients[name]

    async def leave(self, name: str) -> None:
        await self._clients.pop(name).close()

    async def say(self, name: str, text: str, *, group: bool = False, mention: bool = False) -> None:
        await self.client("watch")
        client = await self.client(name)
        client.write(f"PRIVMSG {GROUP if group else NICK} :{f'{NICK}: ' if mention else ''}{text}")

    def texts(self, name: str) -> list[str]:
        client = self._clients.get(name)
        return [] if client is None else [text for _, target, text in client.lines if target == client.nick]

    def group_texts(self) -> list[str]:
        return [text for sender, target, text in self._clients["watch"].lines if (sender, target) == (NICK, GROUP)]

    async def fail(self, kind: str) -> None:
        assert kind == "unknown"
        self._cuts_next = True

    async def cut(self) -> None:
        for each in list(self._connections):
            each.close()

    async def close(self) -> None:
        for each in self._clients.values():
            await each.close()
        await self.cut()

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client of the proxy with the server."""
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self.tls_port)
        except OSError:
            writer.close()
            return
        self._connections |= {writer, forth}
        try:
            await asyncio.gather(self._copy(reader, forth, cuts=True), self._copy(back, writer, cuts=False))
        finally:
            self._connections -= {writer, forth}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, cuts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
                if cuts and self._cuts_next:
                    self._cuts_next = False
                    await self.cut()
        writer.close()


@contextlib.asynccontextmanager
async def run_irc(folder: Path) -> AsyncGenerator[IrcRig]:
    """Start the server, and end it."""
    server = find_server()
    assert server is not None
    taken = [claims.take_one("port", claims.PORTS) for _ in range(2)]
    port, tls_port = (int(value) for value, _ in taken)
    folder.chmod(0o755)
    write_certificate(folder / "cert.pem", folder / "key.pem")
    (folder / "key.pem").chmod(0o644)  # the server reads it as a user without rights
    (folder / "ngircd.conf").write_text(
        f"[Global]\nName = irc.test\nInfo = tests\nListen = 127.0.0.1\nPorts = {port}\nPassword = {PASSWORD}\n"
        "[Limits]\nMaxConnectionsIP = 0\nMaxPenaltyTime = 0\nMaxNickLength = 16\nPingTimeout = 120\n"
        "[Options]\nDNS = no\nIdent = no\nPAM = no\n"
        f"[SSL]\nCertFile = {folder / 'cert.pem'}\nKeyFile = {folder / 'key.pem'}\nPorts = {tls_port}\n"
    )
    process = await asyncio.create_subprocess_exec(
        server,
        "-n",
        "-f",
        str(folder / "ngircd.conf"),
        stdout=asyncio.subprocess.DEVNULL,
        stdin=asyncio.subprocess.DEVNULL,
    )
    rig = IrcRig(folder, (port, tls_port))
    proxy = await asyncio.start_server(rig.pass_on, "127.0.0.1", 0)
    rig.proxy_port = proxy.sockets[0].getsockname()[1]
    try:
        await until(lambda: _listens(tls_port), 20)
        yield rig
    finally:
        await rig.close()
        proxy.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        for _, claim in taken:
            claim.release()


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
