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


async def _opening(peer: Peer, rounds: int) -> list[Figure]:
    """The app and the image are known to both: somebody has used them in this process before."""
    ours: list[float] = []
    theirs: list[float] = []
    async with hermes_exec.open(ModalBackend(modal.profile()), audit=False):
        for _ in range(rounds):
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
    return [Figure(name, "ms", median(ours) * 1e3, reference, median(theirs) * 1e3, 1.2)]


async def _commands(terminal: Terminal, peer: Peer, rounds: int) -> list[Figure]:
    session = await terminal.session()
    await in_turns_async(1, lambda: session.run("true"), peer.true)
    ours, theirs = await in_turns_async(rounds, lambda: session.run("true"), peer.true)
    true = median(ours) * 1e3
    return [Figure("Modal: session `true`", "ms", true, "SDK exec", median(theirs) * 1e3, 0.2)]


async def _files(terminal: Terminal, peer: Peer, size: int) -> list[Figure]:
    data = os.urandom(size)
    spent: dict[str, list[float]] = {"up": [], "down": [], "their up": [], "their down": []}
    files = peer.sandbox.filesystem
    for _ in range(3):
        spent["their up"].append(await spent_async(partial(files.write_bytes.aio, data, _FILE)))
        spent["up"].append(await spent_async(partial(terminal.write, _FILE, data)))
        spent["their down"].append(await spent_async(partial(files.read_bytes.aio, _FILE)))
        spent["down"].append(await spent_async(partial(terminal.read, _FILE)))
    rate = {name: size / median(values) / 1e6 for name, values in spent.items()}
    name = f"Modal: {size / 1e6:.0f} MB"
    return [
        Figure(f"{name} up", "MB/s", rate["up"], "SDK files", rate["their up"], 1.0, "higher"),
        Figure(f"{name} down", "MB/s", rate["down"], "SDK files", rate["their down"], 1.0, "higher"),
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
    return found + await _trips(found[1].ours / 1e3, max(rounds // 10, 10))


def figures(rounds: int, size: int) -> list[Figure]:
    """Opening, commands, files, round trips and what an idle terminal asks."""
    return asyncio.run(_measure(rounds, size))
