"""Streams as any client sees them: back-pressure, limits, and input that is off."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.rigs.bounded import PATIENCE_S
from tests.rigs.web_view import View, find_entry, start_job

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


@pytest.fixture(scope="module")
def view(machine: Cli) -> View:
    return View.start(machine)


@pytest.fixture(scope="module")
def cookie(view: View) -> str:
    return view.sign_in()


def test_a_client_that_acknowledges_nothing_gets_a_bounded_part(machine: Cli, view: View, cookie: str) -> None:
    job = start_job(machine, "yes | head -c 8000000; sleep 600")
    entry = find_entry(view, cookie, job)

    async def read() -> tuple[int, int]:
        async with aiohttp.ClientSession() as session, connect(session, view, cookie, entry, offset=0) as socket:
            assert json.loads((await socket.receive()).data)["type"] == "begin"
            first = await drain(socket)
            await socket.send_json({"type": "ack", "bytes": first})
            return first, await drain(socket)

    first, second = asyncio.run(read())
    assert 200 << 10 <= first <= 400 << 10
    assert 200 << 10 <= second <= 400 << 10


def connect(session: aiohttp.ClientSession, view: View, cookie: str, entry: dict[str, Any], **more: Any) -> Any:
    parameters = {"guest": entry["guest"], "job": entry["job"], "kind": entry["kind"], **more}
    headers = {"Cookie": cookie, "Origin": view.root}
    return session.ws_connect(f"{view.root}/api/stream", params=parameters, headers=headers, max_msg_size=0)


async def drain(socket: Any) -> int:
    """Read until the server waits; return the bytes."""
    total = 0
    while True:
        try:
            async with asyncio.timeout(1.5):
                message = await socket.receive()
        except TimeoutError:
            return total
        total += len(message.data) - 8


def test_the_number_of_streams_is_bounded_and_wrong_messages_end_one(machine: Cli, view: View, cookie: str) -> None:
    entry = find_entry(view, cookie, start_job(machine, "sleep 600"))

    async def work() -> None:
        async with aiohttp.ClientSession() as session:
            opened = [await connect(session, view, cookie, entry).__aenter__() for _ in range(16)]
            with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
                await connect(session, view, cookie, entry).__aenter__()
            for socket, text in zip(opened, ("{", "[]", '{"type":"x"}', '{"type":"ack"}', "x" * 70_000), strict=False):
                await socket.receive()
                await socket.send_str(text)
                async with asyncio.timeout(PATIENCE_S):
                    while (await socket.receive()).type not in {
                        aiohttp.WSMsgType.CLOSE,
                        aiohttp.WSMsgType.CLOSED,
                        aiohttp.WSMsgType.CLOSING,
                    }:
                        pass
            for socket in opened:
                await socket.close()

    asyncio.run(work())


def test_input_is_refused_unless_it_was_allowed(machine: Cli, view: View, cookie: str) -> None:
    entry = find_entry(view, cookie, start_job(machine, "cat", "--stdin"))

    async def write() -> dict[str, Any]:
        async with aiohttp.ClientSession() as session, connect(session, view, cookie, entry) as socket:
            assert json.loads((await socket.receive()).data)["input"] is False
            await socket.send_json({"type": "input", "data": "typed\n"})
            return dict(json.loads((await socket.receive()).data))

    assert asyncio.run(write())["type"] == "refused"
    end = {"guest": entry["guest"], "job": entry["job"], "kind": "job"}
    assert view.call("/api/terminals/end", end, cookie=cookie)[0] == 403
    assert machine("logs", entry["job"]).stdout == b""
    assert find_entry(view, cookie, entry["job"])["state"] == "running"
