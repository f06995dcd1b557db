"""What a Modal sandbox costs beside the SDK's own calls, on a server of this machine that speaks Modal's protocols.

The vendor's own times (a cold start, the network) are not in these figures; a latency of 50 ms is put in where round
trips are counted.
"""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import hermes_exec
from benchmarks.figures import Figure, in_turns_async, median, spent_async
from benchmarks.floors import CHECKER, PYTHON, RELAY, move_down, move_up, remote
from hermes_exec_backends.modal import ModalBackend
from hermes_exec_backends.modal.account import sdk
from tests.rigs import modal

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal

_LATENCY_S = 0.05
_FILE = "/srv/large"


class Peer:
    """The SDK as its users call it: an app and an image that are known, a sandbox, an exec for each command."""

    def __init__(self) -> None:
        self.client: Any = None
        self.app: Any = None
        self.image: Any = None
        self.sandbox: Any = None

    async def open(self) -> None:
        self.client = await sdk().Client.from_credentials.aio("ak-test", "as-test")
        self.app = await sdk().App.lookup.aio("hermes-exec", create_if_missing=True, client=self.client)
        self.image = sdk().Image.debian_slim(python_version="3.11")
        self.sandbox = await self.create()

    async def create(self) -> Any:
        return await sdk().Sandbox.create.aio(
            "sleep", "1000", app=self.app, image=self.image, client=self.client, timeout=1000
        )

    async def true(self, sandbox: Any = None) -> None:
        process = await (sandbox or self.sandbox).exec.aio("true", text=False)
        await process.stdout.read.aio()
        await process.wait.aio()

    async def close(self) -> None:
        await self.sandbox.terminate.aio()
        await self.client.close.aio()


class Helper:
    """One of the processes of the floors in a sandbox, by the SDK."""

    def __init__(self, process: Any) -> None:
        self._process = process
        self._output = aiter(process.stdout)

    @classmethod
    async def start(cls, sandbox: Any, text: str) -> Helper:
        helper = cls(await sandbox.exec.aio(*remote(text), text=False))
        await helper.ask(b"")
        return helper

    async def ask(self, data: bytes) -> bytes:
        """Send bytes, and return the output up to the next NUL."""
        if data:
            self._process.stdin.write(data)
            await self._process.stdin.drain.aio()
        answer = b""
        while not answer.endswith(b"\0"):
            answer += await anext(self._output)
        return answer[:-1]

    async def check(self, path: str) -> str:
        """The hash of a file, by CHECKER."""
        return (await self.ask(path.encode() + b"\n")).decode()

    async def close(self) -> None:
        """End its input, and wait for its end."""
        self._process.stdin.write_eof()
        await self._process.stdin.drain.aio()
        await self._process.wait.aio()


async def _opening(peer: Peer, rounds: int) -> list[Figure]:
    """The app and the image are known to both: somebody has used them in this process before."""
    ours: list[float] = []
    theirs: list[float] = []
    floor: list[float] = []
    async with hermes_exec.open(ModalBackend(modal.profile()), audit=False):
        for _ in range(rounds):
            begin = time.perf_counter()
            sandbox = await peer.create()
            await (await Helper.start(sandbox, PYTHON)).ask(b"x")
            floor.append(time.perf_counter() - begin)
            await sandbox.terminate.aio()
            begin = time.perf_counter()
            sandbox = await peer.create()
            await peer.true(sandbox)
            theirs.append(time.perf_counter() - begin)
            await sandbox.terminate.aio()
            begin = time.perf_counter()
            terminal = await hermes_exec.open(ModalBackend(modal.profile()), audit=False)
            await terminal.run(["true"])
            ours.append(time.perf_counter() - begin)
            await terminal.close()
    name, reference = "Modal: open + first command", "SDK create + exec"
    opened = median(ours) * 1e3
    return [
        Figure(name, "ms", opened, reference, median(theirs) * 1e3, 1.2),
        Figure(name, "ms", opened, "floor: SDK create, a Python, its word to start", median(floor) * 1e3),
    ]


async def _commands(terminal: Terminal, peer: Peer, rounds: int) -> list[Figure]:
    session = await terminal.session()
    relay = await Helper.start(peer.sandbox, RELAY)
    works = (lambda: session.run("true"), peer.true, lambda: relay.ask(b"true\0"))
    await in_turns_async(1, *works)
    ours, theirs, floor = await in_turns_async(rounds, *works)
    await relay.close()
    name, true = "Modal: session `true`", median(ours) * 1e3
    return [
        Figure(name, "ms", true, "SDK exec", median(theirs) * 1e3, 0.2),
        Figure(name, "ms", true, "floor: a live bash behind a relay", median(floor) * 1e3),
    ]


async def _files(terminal: Terminal, peer: Peer, size: int) -> list[Figure]:
    data = os.urandom(size)
    spent: dict[str, list[float]] = {
        name: [] for name in ("up", "down", "their up", "their down", "floor up", "floor down")
    }
    files = peer.sandbox.filesystem
    checker = await Helper.start(peer.sandbox, CHECKER)
    write, read = partial(files.write_bytes.aio, data), files.read_bytes.aio
    for _ in range(3):
        spent["their up"].append(await spent_async(partial(files.write_bytes.aio, data, _FILE)))
        spent["up"].append(await spent_async(partial(terminal.write, _FILE, data)))
        spent["their down"].append(await spent_async(partial(files.read_bytes.aio, _FILE)))
        spent["down"].append(await spent_async(partial(terminal.read, _FILE)))
        spent["floor up"].append(await spent_async(partial(move_up, write, checker.check, data)))
        spent["floor down"].append(await spent_async(partial(move_down, read, checker.check)))
    await checker.close()
    rate = {name: size / median(values) / 1e6 for name, values in spent.items()}
    name = f"Modal: {size / 1e6:.0f} MB"
    floor = "floor: SDK files, both hashes"
    return [
        Figure(f"{name} up", "MB/s", rate["up"], "SDK files", rate["their up"], 1.0, "higher"),
        Figure(f"{name} up", "MB/s", rate["up"], f"{floor}, a rename", rate["floor up"], None, "higher"),
        Figure(f"{name} down", "MB/s", rate["down"], "SDK files", rate["their down"], 1.0, "higher"),
        Figure(f"{name} down", "MB/s", rate["down"], floor, rate["floor down"], None, "higher"),
    ]


async def _idle(terminal: Terminal, server: Any, for_s: float) -> Figure:
    await terminal.run("true")
    await asyncio.sleep(1.0)  # the word that its answer has come is sent after it
    server.call("forget_calls")
    await asyncio.sleep(for_s)
    asked = sum(server.call("calls").values()) * 60 / for_s
    return Figure("Modal: an idle terminal", "requests a minute", asked, "one", 1.0, 1.0)


async def _trips(local_s: float, rounds: int) -> list[Figure]:
    """Round trips of a command and of its first output, by how much later they are than without a latency."""
    modal.server(latency_s=_LATENCY_S)
    async with hermes_exec.open(ModalBackend(modal.profile()), audit=False) as terminal:
        session = await terminal.session()
        commands: list[float] = []
        outputs: list[float] = []
        for _ in range(rounds):
            commands.append(await spent_async(lambda: session.run("true")))
            begin = time.perf_counter()
            async with session.stream("echo first") as stream:
                async for _ in stream:
                    outputs.append(time.perf_counter() - begin)
                    break
                await stream.result()
    return [
        Figure(name, "round trips", (median(values) - local_s) / _LATENCY_S, "one", 1.0, bar)
        for name, values, bar in (
            ("Modal, 50 ms away: a command", commands, 1.1),
            ("Modal, 50 ms away: first output", outputs, 1.5),
        )
    ]


async def _measure(rounds: int, size: int) -> list[Figure]:
    server = modal.server()
    peer = Peer()
    await peer.open()
    try:
        found = await _opening(peer, max(rounds // 20, 3))
        async with hermes_exec.open(ModalBackend(modal.profile()), audit=False) as terminal:
            found += await _commands(terminal, peer, rounds)
            found += await _files(terminal, peer, size)
            found.append(await _idle(terminal, server, max(rounds / 3.4, 10.0)))
    finally:
        await peer.close()
    true = next(figure.ours for figure in found if figure.name == "Modal: session `true`")
    return found + await _trips(true / 1e3, max(rounds // 10, 10))


def figures(rounds: int, size: int) -> list[Figure]:
    """Opening, commands, files, round trips and what an idle terminal asks."""
    return asyncio.run(_measure(rounds, size))
