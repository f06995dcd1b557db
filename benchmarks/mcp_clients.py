"""Clients of the Model Context Protocol: a call over pipes and over loopback HTTP, and the time to open a server.

The server is a program of the SDK with one tool, the same for all. The bare SDK is measured in this process, in turns
with ours; hermes-agent's client and that of pydantic-ai-harness in processes and environments of their own, by their
own clocks.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from benchmarks.figures import Table, in_turns_async, median
from benchmarks.peers.serve import MEMORY_PEERS, PEERS, Peer
from hermes_exec.config.settings import McpSettings
from hermes_exec_agent.mcp.connection import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from hermes_exec_agent.mcp.definitions import ToolDefinition

STDIO_MS, HTTP_MS = 3.0, 8.0
"""What our client may need above the bare SDK."""
_WARM = 5
_SERVER = """
import sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("echo")

@server.tool()
def echo(text: str) -> str:
    "Return the text."
    return text

if len(sys.argv) > 1:
    server.run(transport="streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run()
"""


class _Listener:
    async def compare(self, _: Connection, listed: Sequence[ToolDefinition], /) -> None:
        assert [each.name for each in listed] == ["echo"]

    def find_refusal(self, _: str, /) -> str:
        return ""


class Ours:
    """Our client."""

    def __init__(self, config: dict[str, Any]) -> None:
        settings = McpSettings.model_validate({**config, "tools": ["*"]})
        self._connection = Connection("echo", settings, _Listener())

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Open the server."""
        self._connection.start()
        assert await self._connection.wait(240.0), self._connection.reason
        yield
        await self._connection.close()

    async def call(self) -> None:
        """Call the tool."""
        answer = await self._connection.call("echo", {"text": "hello"})
        assert answer.parts[0].text == "hello"


class Bare:
    """The SDK's client alone."""

    def __init__(self, config: dict[str, Any]) -> None:
        url = config.get("url")
        where = streamable_http_client(url) if url else StdioServerParameters(
            command=config["command"], args=config["args"]
        )  # fmt: skip
        self._client = Client(where)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Open the server."""
        async with self._client:
            await self._client.list_tools()
            yield

    async def call(self) -> None:
        """Call the tool."""
        await self._client.call_tool("echo", {"text": "hello"})


def figures(rounds: int) -> list[Table]:
    """Measure all clients."""
    rounds = max(rounds, 20)
    with tempfile.TemporaryDirectory(prefix="hx-mcp-") as home:
        program = Path(home) / "server.py"
        program.write_text(_SERVER)
        port, server = _serve(program)
        try:
            stdio = {"command": sys.executable, "args": ["-I", str(program)]}
            http = {"url": f"http://127.0.0.1:{port}/mcp"}
            measured = [asyncio.run(_measure(each, rounds)) for each in (stdio, http)]
            rows = [
                (f"mcp {version('mcp')}, the bare SDK", measured[0][0], measured[1][0]),
                ("hermes_exec", measured[0][1], measured[1][1]),
            ]
            for name, label in (
                ("hermes-agent", f"hermes-agent {PEERS['hermes-agent']}"),
                ("pydantic-ai-harness", f"pydantic-ai-harness {MEMORY_PEERS['pydantic-ai-harness']}"),
            ):
                theirs = [_measure_peer(name, home, each, rounds) for each in (stdio, http)]
                rows.append((label, theirs[0], theirs[1]))
        finally:
            server.kill()
            server.wait()
    above = [(measured[at][1][1] - measured[at][0][1]) * 1e3 for at in (0, 1)]
    shown = [(label, *(f"{value * 1e3:.1f} ms" for pair in pairs for value in pair)) for label, *pairs in rows]
    headings = ("client", "open, pipes", "call, pipes", "open, HTTP", "call, HTTP")
    remark = (
        f"Above the bare SDK a call of ours takes {above[0]:.1f} ms over pipes (bar {STDIO_MS:g} ms), and"
        f" {above[1]:.1f} ms over HTTP (bar {HTTP_MS:g} ms). Medians; opened once."
    )
    return [Table("Clients of the Model Context Protocol", headings, tuple(shown), (remark,))]


def _serve(program: Path) -> tuple[int, subprocess.Popen[bytes]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-I", str(program), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    give_up = time.monotonic() + 240
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)
        else:
            return port, server


async def _measure(config: dict[str, Any], rounds: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the times to open a server and to call it, of the bare SDK and of ours."""
    opened: list[float] = []
    async with AsyncExitStack() as stack:
        clients: list[Bare | Ours] = [Bare(config), Ours(config)]
        for client in clients:
            begin = time.perf_counter()
            await stack.enter_async_context(client.open())
            opened.append(time.perf_counter() - begin)
            for _ in range(_WARM):
                await client.call()
        bare, ours = await in_turns_async(rounds, *(client.call for client in clients))
    return (opened[0], median(bare)), (opened[1], median(ours))


def _measure_peer(name: str, home: str, config: dict[str, Any], rounds: int) -> tuple[float, float]:
    peer = Peer(name, home, "mcp", HERMES_HOME=f"{home}/hermes")
    try:
        opened = float(peer.ask(json.dumps(["open", ["echo", config]]), "took "))
        times = [float(peer.ask(json.dumps(["call", None]), "took ")) for _ in range(rounds + _WARM)]
    finally:
        peer.close()
    return opened, median(times[_WARM:])
