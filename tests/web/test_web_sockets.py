"""Streams as any client sees them: back-pressure, limits, and input that is off."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from hermes_exec_agent.frontends.web.streams import SESSION_ENDED
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.web_view import View, find_entry, read_json, start_job

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


SECRET = "s3cr3t-of-the-test-0123456789"


@pytest.fixture(scope="module")
def view(machine: Cli) -> View:
    machine.configure('[backends.box]\ntype = "local"\nsecrets = ["TOKEN"]\n')
    machine.env["TOKEN"] = SECRET
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
            for each in opened:
                assert json.loads((await each.receive()).data)["type"] == "begin"
            async with connect(session, view, cookie, entry) as refused:
                assert "16 terminals are open" in json.loads((await refused.receive()).data)["message"]
                assert (await refused.receive()).type is aiohttp.WSMsgType.CLOSE
            for socket, text in zip(opened, ("{", "[]", '{"type":"x"}', '{"type":"ack"}', "x" * 70_000), strict=False):
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


def test_no_part_of_a_secret_is_sent_however_it_is_cut(machine: Cli, view: View, cookie: str) -> None:
    half = len(SECRET) // 2
    command = f"printf 'a {SECRET[:half]}'; while [ ! -e more ]; do sleep 0.05; done; echo '{SECRET[half:]} b'"
    entry = find_entry(view, cookie, start_job(machine, command, "--on", "box"))

    async def read(offset: int) -> bytes:
        data = b""
        async with aiohttp.ClientSession() as session, connect(session, view, cookie, entry, offset=offset) as socket:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY:
                    data += message.data[8:]
                elif json.loads(message.data)["type"] == "begin" and not (machine.cwd / "more").exists():
                    await asyncio.sleep(1)  # the program pauses within the secret
                    (machine.cwd / "more").touch()
        return data

    async def read_all() -> list[bytes]:
        whole = await read(0)
        return [whole, *await asyncio.gather(*(read(offset) for offset in (2, 3, 2 + half, 1 + len(SECRET))))]

    for data in asyncio.run(read_all()):
        assert data.removeprefix(b"a ") == b"[secret TOKEN] b\n"


def test_a_stream_ends_with_its_session(machine: Cli, view: View, cookie: str) -> None:
    entry = find_entry(view, cookie, start_job(machine, "sleep 600"))
    view.link = f"{view.root}/{json.loads(view.call('/api/link', {}, cookie=cookie)[2])['fragment']}"
    other = view.sign_in()

    async def end() -> object:
        async with (
            aiohttp.ClientSession() as session,
            connect(session, view, cookie, entry) as kept,
            connect(session, view, other, entry) as socket,
        ):
            assert json.loads((await socket.receive()).data)["type"] == "begin"
            assert json.loads((await kept.receive()).data)["type"] == "begin"
            assert (await asyncio.to_thread(view.call, "/api/session/end", {}, cookie=other))[0] == 200
            closed = await socket.receive()
            assert not kept.closed
            return closed.data

    assert asyncio.run(end()) == SESSION_ENDED


def test_a_guest_that_hangs_delays_no_other_one(machine: Cli, view: View, cookie: str) -> None:
    hung = start_job(machine, "echo $PPID; sleep 600", "--on", "box")
    other = find_entry(view, cookie, start_job(machine, "sleep 600"))
    assert find_entry(view, cookie, hung)["guest"] != other["guest"]
    stopped = find_ancestors(int(machine("logs", hung).stdout))
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        slowest, waiting = 0.0, list[Any]()
        give_up = time.monotonic() + PATIENCE_S
        while not waiting and time.monotonic() < give_up:
            began = time.monotonic()
            found = read_json(view, "/api/terminals", cookie)
            slowest = max(slowest, time.monotonic() - began)
            waiting = found["waiting"]
            assert other["job"] in {each["job"] for each in found["places"]}
            time.sleep(0.2)
        assert waiting == [{"target": "box", "failed": True}]
        assert slowest < 4
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


def find_ancestors(pid: int) -> list[int]:
    """A process and its ancestors, without that which started them all."""
    found: list[int] = []
    while pid > 1 and pid != os.getpid():
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


_COUNT = """
import asyncio, sys
import hermes_exec
COUNT = "i=0; while [ ! -e $0 ]; do i=$((i+1)); echo line $i; sleep 0.02; done; echo the end; exec sleep 600"
async def main():
    async with hermes_exec.open("local") as terminal:
        pty = await terminal.pty(["sh", "-c", COUNT, sys.argv[1]], name="counting", keep_s=600)
        await pty.detach()
asyncio.run(main())
"""


def test_a_kept_shell_goes_on_at_its_byte_after_a_restart(machine: Cli) -> None:
    stop = machine.cwd / "stop-counting"
    subprocess.run([sys.executable, "-c", _COUNT, str(stop)], check=True, env=machine.env, cwd=machine.cwd)
    own = View.start(machine)
    cookie = own.sign_in()
    entry = find_entry(own, cookie, "counting")

    async def read(until: bytes, **more: object) -> tuple[dict[str, Any], bytes, int]:
        """Return how a stream begins, its bytes up to some, and the offset after them."""
        data, offset = b"", 0
        async with aiohttp.ClientSession() as session, connect(session, own, cookie, entry, **more) as socket:
            begin = dict(json.loads((await socket.receive()).data))
            async with asyncio.timeout(PATIENCE_S):
                while until not in data:
                    message = (await socket.receive()).data
                    offset, piece = int.from_bytes(message[:8], "big"), message[8:]
                    data += piece
                    await socket.send_json({"type": "ack", "bytes": len(piece)})
        return begin, data, offset

    begin, first, offset = asyncio.run(read(b"line 9\r\n"))
    assert (begin["replay"], begin["offset"], offset) == (True, 0, len(first))
    own.kill()
    own.restart()
    stop.touch()
    again, second, last = asyncio.run(read(b"the end\r\n", offset=offset, run=begin["run"]))
    assert (again["replay"], again["offset"], last) == (False, offset, offset + len(second))
    lines = (first + second).split(b"\r\n")
    assert lines == [*(b"line %d" % number for number in range(1, len(lines) - 1)), b"the end", b""]
    for wrong in ({"offset": offset, "run": "another"}, {"offset": last + 1, "run": begin["run"]}):
        other, all_of_it, _ = asyncio.run(read(b"the end\r\n", **wrong))
        assert (other["replay"], other["offset"], all_of_it) == (True, 0, first + second)
    own.stop()


_FLOOD = """
import asyncio
import hermes_exec
async def main():
    async with hermes_exec.open("local") as terminal:
        pty = await terminal.pty(["yes"], name="flood", keep_s=60)
        await pty.detach()
asyncio.run(main())
"""


def test_a_kept_shell_that_writes_much_is_shown(machine: Cli) -> None:
    subprocess.run([sys.executable, "-c", _FLOOD], check=True, env=machine.env, cwd=machine.cwd)
    own = View.start(machine)
    cookie = own.sign_in()
    entry = find_entry(own, cookie, "flood")

    async def read() -> tuple[str, bytes]:
        async with aiohttp.ClientSession() as session, connect(session, own, cookie, entry) as socket:
            begin = json.loads((await socket.receive()).data)
            return begin["type"], (await socket.receive()).data[8:]

    for _ in range(5):
        kind, data = asyncio.run(read())
        assert (kind, set(data)) == ("begin", set(b"y\r\n"))
    own.stop()
