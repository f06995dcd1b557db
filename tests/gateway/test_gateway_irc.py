"""The behaviours of any platform on a real server of IRC, and those of IRC alone."""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.adapter import PlatformDown
from hermes_exec_agent.frontends.gateway.irc import IrcAdapter, IrcSettings, create
from hermes_exec_agent.frontends.gateway.irc_protocol import encode_plain, parse_line, parse_message
from hermes_exec_agent.testing import GatewayConformance, Held, Session, behaviour
from tests.rigs.bounded import until
from tests.rigs.certificates import write_certificate
from tests.rigs.irc_server import IrcRig, find_server, run_irc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.conftest import Require


class TestIrc(GatewayConformance):
    @pytest.fixture
    def rig(self, tmp_path_factory: pytest.TempPathFactory, require: Require) -> Any:
        require("ngircd", "a server of IRC", usable=find_server() is not None)

        @asynccontextmanager
        async def start() -> AsyncGenerator[IrcRig]:
            folder = tmp_path_factory.mktemp("irc")
            folder.parent.chmod(0o755)
            folder.parent.parent.chmod(0o755)
            async with run_irc(folder) as rig:
                yield rig

        return start

    @behaviour
    async def test_a_refused_piece_fails_and_the_next_is_sent(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        await session.rig.leave("ada")
        model.go.set()
        await until(lambda: session.store.count_states().get("failed") == 1, 30)
        assert session.store.outbox("failed")[0]["error"].startswith("No such nick")
        await session.say("ada", "two")
        await session.read("ada", "echo: two")

    @behaviour
    async def test_a_flood_is_waited_out(self, session: Session) -> None:
        """IRC reports no flood; a piece waits while there is no connection."""
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        await session.rig.cut()
        await until(lambda: session.store.platforms()[0]["state"] == "down", 30)
        model.go.set()
        await session.read("ada", "echo: one")
        assert session.store.count_states().get("unknown", 0) == 0

    @behaviour
    async def test_commands_begin_with_an_exclamation_mark_too(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "!status")
        await session.read("ada", "waiting: 0")

    @behaviour
    async def test_another_mask_is_another_person(self, session: Session) -> None:
        model = Held(go=True)
        await session.start(model=model)
        await session.pair("ada")
        await session.rig.leave("ada")
        client = await session.rig.client("mallory")
        client.write("NICK ada")
        await session.say("mallory", "I am ada")
        await until(lambda: any("gateway pair" in text for _, _, text in client.lines), 30)
        assert not model.requests

    @behaviour
    async def test_a_server_that_the_authority_did_not_sign_is_refused(self, session: Session) -> None:
        adapter = session.rig.adapter()
        adapter._settings = adapter._settings.model_copy(update={"ca": None})
        with pytest.raises(PlatformDown, match="certificate verify failed|SSLCertVerificationError"):
            await adapter.receive(_ignore, lambda: None)

    @behaviour
    async def test_a_wrong_password_is_refused(self, session: Session) -> None:
        settings = session.rig.adapter()._settings
        with pytest.raises(PlatformDown) as raised:
            await IrcAdapter(settings, None).receive(_ignore, lambda: None)
        assert "password" in str(raised.value).lower()


async def _ignore(_: object) -> None:
    """Take a message."""


def test_the_account_is_authenticated_before_the_registration_ends(tmp_path: Path) -> None:
    write_certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    answers = {
        "CAP REQ :sasl": ":s CAP * ACK :sasl", "AUTHENTICATE PLAIN": "AUTHENTICATE +", "CAP END": ":s 001 a :Welcome",
    }  # fmt: skip
    password = "p" * 300  # its response has more than one line

    async def log_in(wanted: str, refusal: str = "") -> list[str]:
        lines: list[str] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := (await reader.readline()).decode().strip():
                lines.append(line)
                answer = answers.get(line, "")
                if line.startswith("AUTHENTICATE ") and not answer and len(line) < 400:
                    given = "".join(each.partition(" ")[2] for each in lines if each.startswith("AUTHENTICATE "))
                    is_right = base64.b64decode(given.removeprefix("PLAIN")) == f"ada\0ada\0{wanted}".encode()
                    answer = ":s 903 a :You are in" if is_right else ":s 904 a :Not you"
                if line == "CAP REQ :sasl" and refusal:
                    answer = refusal
                if answer:
                    writer.write(f"{answer}\r\n".encode())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        settings = IrcSettings(
            host="localhost", port=server.sockets[0].getsockname()[1], ca=tmp_path / "cert.pem", nick="a", sasl="ada"
        )
        adapter, connected = IrcAdapter(settings, Secret("password", password)), asyncio.Event()
        receiving = asyncio.create_task(adapter.receive(_ignore, connected.set))
        waiting = asyncio.create_task(connected.wait())
        await asyncio.wait([receiving, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        server.close()
        if receiving.done():
            receiving.result()
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
        return lines

    lines = asyncio.run(log_in(password))
    assert lines[-1] == "CAP END"
    assert not any("PASS" in each for each in lines)
    with pytest.raises(PlatformDown, match="refuses the account: Not you"):
        asyncio.run(log_in("another"))
    with pytest.raises(PlatformDown, match="offers no SASL"):
        asyncio.run(log_in(password, ":s CAP * NAK :sasl"))
    assert [len(each) for each in encode_plain("", "p" * 298)] == [400, 1]
    with pytest.raises(ConfigError, match="needs a password, and TLS"):
        create("net", {"host": "h", "nick": "a", "sasl": "ada"})


def test_a_piece_cannot_end_its_line() -> None:
    """A model's text must not become a command of IRC."""
    adapter = IrcAdapter(IrcSettings(host="h", nick="a"), None)
    assert "\n" not in "".join(adapter.render("a\r\nQUIT").replace("\n", " "))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b":ada!a@host PRIVMSG agent :\x02bold\x0304,01 red\r\n", ("ada", "bold red", False)),
        (b":ada!a@host PRIVMSG #Room :Agent, hi there\r\n", ("#room", "hi there", True)),
        (b"@time=1 :ada!a@host PRIVMSG agent :!stop\r\n", ("ada", "/stop", False)),
        (b":ada!a@host PRIVMSG #room :agents of change\r\n", ("#room", "agents of change", False)),
    ],
)
def test_lines_become_messages(line: bytes, expected: tuple[str, str, bool]) -> None:
    found = parse_message(parse_line(line), "agent", "1")
    assert found is not None
    assert (found.chat, found.text, found.is_mention) == expected


@pytest.mark.parametrize("line", [b":irc.test PRIVMSG agent :notice\r\n", b":a!b@c PRIVMSG agent :\x01VERSION\x01\r\n"])
def test_lines_of_servers_and_ctcp_are_no_messages(line: bytes) -> None:
    assert parse_message(parse_line(line), "agent", "1") is None
