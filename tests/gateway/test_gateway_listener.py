"""The gateway's listener over the wire: Telegram's requests to its webhook, and metrics."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec.config.settings import GatewaySettings
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.listener import Listener
from hermes_exec_agent.frontends.gateway.load import create_listener
from hermes_exec_agent.frontends.gateway.records import Measures
from hermes_exec_agent.frontends.gateway.telegram import create
from hermes_exec_agent.testing import Held, Session, behaviour
from tests.rigs.bounded import until
from tests.rigs.gateway import Hub, HubAdapter, open_hub
from tests.rigs.telegram_api import TOKEN, run_telegram

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

HEADER = "X-Telegram-Bot-Api-Secret-Token"


async def post(url: str, body: Any, **headers: str) -> int:
    """Send a request, and return the answer's status code."""
    data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    async with aiohttp.ClientSession() as client, client.post(url, data=data, headers=headers) as response:
        return response.status


class TestTelegramWebhook:
    @pytest.fixture
    def rig(self) -> Any:
        @asynccontextmanager
        async def start() -> AsyncGenerator[Any]:
            async with run_telegram() as rig:
                rig.settings = {"webhook": True, "webhook_url": "https://agent.example.org/"}
                yield rig

        return start

    async def begin(self, session: Session, model: Held, limit_s: float = 10.0) -> tuple[str, dict[str, str]]:
        """Start with a paired person; return the webhook's address, and the headers of its requests."""
        listener = Listener("127.0.0.1", 0, limit_s=limit_s)
        await session.start(model=model, listener=listener)
        url = f"{listener.url}/telegram/4711"
        secret = session.rig.webhook["secret_token"]
        pairing = asyncio.create_task(session.pair("ada"))
        await until(lambda: session.rig.updates)
        assert await session.rig.deliver(url) == [200]
        await pairing
        return url, {HEADER: secret}

    @behaviour
    async def test_updates_come_by_requests(self, session: Session) -> None:
        url, _ = await self.begin(session, Held(go=True))
        assert session.rig.webhook["url"] == "https://agent.example.org/telegram/4711"
        assert not session.rig.polled.is_set()
        await session.say("ada", "one")
        await session.say("ada", "two")
        assert await session.rig.deliver(url) == [200, 200]
        await session.read("ada", "echo: two")
        assert session.requests() == ["one", "two"]
        await session.stop()
        assert session.rig.webhook == {}

    @behaviour
    async def test_a_request_without_the_secret_is_not_even_read(self, session: Session) -> None:
        url, headers = await self.begin(session, Held(go=True))
        await session.say("ada", "forged")
        update = session.rig.updates.popleft()
        for secret in ("", "x", headers[HEADER][:-1], headers[HEADER] + "x", "\u00e4"):
            assert await post(url, update, **({HEADER: secret} if secret else {})) == 403
        assert await post(url, b"x" * (5 << 20), **{HEADER: "x"}) == 403
        assert session.count("inbox") == 0
        assert await post(url, b"{", **headers) == 400
        assert await post(url, b"[1]", **headers) == 400
        assert await post(url, b'{"update_id": 1, "message": 7}', **headers) == 400

    @behaviour
    async def test_a_body_of_5_mib_is_refused(self, session: Session) -> None:
        url, headers = await self.begin(session, Held(go=True))
        assert await post(url, b" " * (5 << 20), **headers) == 413
        await session.say("ada", "one")
        assert await session.rig.deliver(url) == [200]
        await session.read("ada", "echo: one")

    @behaviour
    async def test_a_replayed_request_changes_nothing(self, session: Session) -> None:
        """Also if copies come at one time, and after a start."""
        url, headers = await self.begin(session, Held(go=True))
        await session.say("ada", "one")
        update = session.rig.updates.popleft()
        codes = await asyncio.gather(*(post(url, update, **headers) for _ in range(8)))
        assert set(codes) == {200}
        await session.read("ada", "echo: one")
        await session.stop()
        listener = Listener("127.0.0.1", 0)
        await session.start(model=Held(go=True), listener=listener)
        url = f"{listener.url}/telegram/4711"
        assert await post(url, update, **headers) == 403  # the secret of the earlier run
        assert await post(url, update, **{HEADER: session.rig.webhook["secret_token"]}) == 200
        await session.say("ada", "two")
        await session.rig.deliver(url)
        await session.read("ada", "echo: two")
        assert session.requests() == ["one", "two"]

    @behaviour
    async def test_a_message_that_is_not_recorded_is_not_acknowledged(self, session: Session) -> None:
        url, _ = await self.begin(session, Held(go=True))
        session.rig.missing_files = 1
        await session.rig.attach("ada", b"words", "read this")
        assert await session.rig.deliver(url) == [503]
        assert session.count("inbox") == 0
        assert await session.rig.deliver(url) == [200]
        await session.read("ada", "echo: read this")

    @behaviour
    async def test_a_file_that_never_comes_does_not_hold_up_its_message(self, session: Session) -> None:
        model = Held(go=True)
        url, _ = await self.begin(session, model)
        session.rig.missing_files = 3
        await session.rig.attach("ada", b"words", "read this")
        assert [await session.rig.deliver(url) for _ in range(3)] == [[503], [503], [200]]
        await session.read("ada", "echo: read this")
        assert "was not read: the platform did not deliver it" in model.requests[0]

    @behaviour
    async def test_a_request_that_is_too_slow_ends(self, session: Session) -> None:
        url, headers = await self.begin(session, Held(go=True), limit_s=0.5)
        host, port = url.split("/")[2].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = [
            "POST /telegram/4711 HTTP/1.1",
            "Host: x",
            "Content-Length: 9",
            f"{HEADER}: {headers[HEADER]}",
            "",
            "{",
        ]
        writer.write("\r\n".join(lines).encode())
        assert b" 503 " in await reader.readline()
        writer.close()

    @behaviour
    async def test_a_strangers_file_is_not_asked_for(self, session: Session) -> None:
        url, _ = await self.begin(session, Held(go=True))
        session.rig.missing_files = 1
        await session.rig.attach("eve", b"words", "read this")
        assert await session.rig.deliver(url) == [200]
        await session.read("eve", "gateway pair")
        assert session.rig.missing_files == 1
        assert session.count("files") == 0


class TestConnections:
    """A listener without accounts, which anyone may connect to."""

    @asynccontextmanager
    async def listen(self, limit_s: float) -> AsyncGenerator[tuple[str, int]]:
        listener = Listener("127.0.0.1", 0, has_metrics=True, limit_s=limit_s)
        async with listener.serve([], lambda: Measures([], {}, {}, {})):
            host, port = listener.url.removeprefix("http://").split(":")
            yield host, int(port)

    def test_a_connection_whose_headers_never_end_is_closed(self) -> None:
        async def run() -> None:
            async with asyncio.timeout(10), self.listen(0.4) as (host, port):
                slow, idle = [await asyncio.open_connection(host, port) for _ in range(2)]
                slow[1].write(b"GET /metrics HTTP/1.1\r\n")
                for _ in range(5):  # a further header now and then
                    slow[1].write(b"A: b\r\n")
                    await asyncio.sleep(0.05)
                assert await slow[0].read() == await idle[0].read() == b""

        asyncio.run(run())

    def test_connections_that_wait_leave_descriptors_for_the_gateway(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hermes_exec_agent.frontends.gateway.listener._MOST_CONNECTIONS", 5)

        async def run() -> None:
            async with asyncio.timeout(10), self.listen(5.0) as (host, port):
                held = [await asyncio.open_connection(host, port) for _ in range(5)]
                reader, _ = await asyncio.open_connection(host, port)
                assert await reader.read() == b""
                held[0][1].close()
                await asyncio.sleep(0.05)
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                assert b" 200 " in await reader.readline()

        asyncio.run(run())

    def test_a_malformed_request_leaves_no_line_in_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        async def run() -> None:
            async with asyncio.timeout(10), self.listen(5.0) as (host, port):
                for line in ("Authorization: Bearer secret-4711\x01", "A: b\r\n" * 1000, "Content-Length: -1"):
                    reader, writer = await asyncio.open_connection(host, port)
                    writer.write(f"GET /metrics HTTP/1.1\r\n{line}\r\n\r\n".encode())
                    assert b" 400 " in await reader.readline()
                    writer.close()

        asyncio.run(run())
        assert not [each for each in caplog.records if each.levelno >= 30]

    def test_an_account_cannot_take_the_path_of_the_metrics(self) -> None:
        class Receiver(HubAdapter):
            path = "/metrics"

            async def handle(self, _: object) -> Any:
                raise NotImplementedError

        async def run() -> None:
            listener = Listener("127.0.0.1", 0, has_metrics=True)
            with pytest.raises(ConfigError, match="at one path"):
                async with listener.serve([Receiver(Hub())], lambda: Measures([], {}, {}, {})):
                    raise AssertionError

        asyncio.run(run())


class TestMetrics:
    @pytest.fixture
    def rig(self) -> Any:
        return open_hub

    @behaviour
    async def test_metrics_have_states_and_numbers_and_no_words(self, session: Session) -> None:
        listener = Listener("127.0.0.1", 0, has_metrics=True)
        await session.start(model=Held(go=True), listener=listener)
        await session.pair("ada")
        await session.say("ada", "a private word")
        await session.read("ada", "echo: a private word")
        await session.rig.cut()
        await until(
            lambda: session.store.platforms()[0]["state"] == "connected" and session.store.platforms()[0]["last_error"],
            30,
        )
        await until(lambda: set(session.store.count_states()) == {"sent"}, 30)
        status, text = await ask_metrics(listener.url)
        assert status == 200
        about = '{account="one",platform="hub"'
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        assert values[f'hermes_exec_gateway_state{about},state="connected"}}'] == "1.0"
        assert values[f'hermes_exec_gateway_state{about},state="down"}}'] == "0.0"
        assert values[f"hermes_exec_gateway_lag_seconds{about}}}"] == "0.0"
        assert 0 <= float(values[f"hermes_exec_gateway_last_error_age_seconds{about}}}"]) < 60
        assert values['hermes_exec_gateway_outbox{state="sent"}'] == "3.0"
        assert values[f"hermes_exec_gateway_received_total{about}}}"] == "1.0"
        assert values[f"hermes_exec_gateway_sent_total{about}}}"] == "3.0"
        assert "private" not in text
        assert "ada" not in text

    @behaviour
    async def test_metrics_without_a_token_are_for_this_machine(self, session: Session) -> None:
        listener = Listener("127.0.0.1", 0, has_metrics=True)
        await session.start(model=Held(go=True), listener=listener)
        for headers in (
            {"X-Forwarded-For": "203.0.113.9"},
            {"Forwarded": "for=203.0.113.9"},
            {"Host": "agent.example.org"},
        ):
            assert (await ask_metrics(listener.url, **headers))[0] == 403
        assert (await ask_metrics(listener.url, Host="localhost:1"))[0] == 200

    @behaviour
    async def test_metrics_with_a_token_need_it(self, session: Session) -> None:
        listener = Listener("127.0.0.1", 0, has_metrics=True, metrics_token=Secret("metrics_token", "s3cret"))
        await session.start(model=Held(go=True), listener=listener)
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
            assert (await ask_metrics(listener.url, **headers))[0] == 403
        assert (await ask_metrics(listener.url, Authorization="Bearer s3cret", Host="agent.example.org"))[0] == 200


async def ask_metrics(url: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(f"{url}/metrics", headers=headers) as response:
        return response.status, await response.text()


def test_there_is_no_listener_unless_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT", TOKEN)
    polling = create("telegram", {"token": "env:BOT"})
    hooked = create("telegram", {"token": "env:BOT", "webhook": True, "webhook_url": "https://agent.example.org"})
    assert create_listener(GatewaySettings(), [polling]) is None
    assert create_listener(GatewaySettings(), [hooked]) is not None
    assert create_listener(GatewaySettings(metrics=True), [polling]) is not None


def test_a_webhook_needs_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT", TOKEN)
    with pytest.raises(ConfigError, match="webhook = true needs the address"):
        create("telegram", {"token": "env:BOT", "webhook": True})


async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take a connection."""


def test_an_address_that_is_taken_is_one_line() -> None:
    async def work() -> None:
        async with await asyncio.start_server(ignore, "127.0.0.1", 0) as taken:
            port = taken.sockets[0].getsockname()[1]
            listener = Listener("127.0.0.1", port, has_metrics=True)
            with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
                async with listener.serve([], lambda: Measures([], {}, {}, {})):
                    pass

    asyncio.run(work())
