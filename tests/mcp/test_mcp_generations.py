"""Servers of the SDK's first generation, and many servers at once."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters

from hermes_exec.config.settings import McpSettings
from hermes_exec_agent.mcp.servers import open_servers
from tests.rigs.bounded import until
from tests.rigs.peers import install_peer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.mcp.conftest import Rig, Talking

    Run = Callable[[Awaitable[Any]], Any]
OLD = """
from mcp.server.fastmcp import Context, FastMCP

server = FastMCP("old")


@server.tool()
def add(a: int, b: int) -> int:
    'Add two numbers.'
    return a + b


@server.tool()
async def count(to: int, context: Context) -> str:
    'Count, with reports of progress.'
    for number in range(to):
        await context.report_progress(number, to)
    return f"counted to {to}"


@server.resource("old://note")
def note() -> str:
    'Return a note.'
    return "an old note"


@server.prompt()
def review(what: str) -> str:
    'Review something.'
    return f"Review {what}."


if __name__ == "__main__":
    server.run()
"""
"""A server that runs in an environment of its own: tools, a resource and a prompt."""
MANY = 20


def test_a_server_of_the_first_generation_is_used(run: Run, talking: Talking, tmp_path: Path) -> None:
    python = install_peer("mcp<2", checkout=False)
    (tmp_path / "server.py").write_text(OLD)
    settings = McpSettings.model_validate(
        {"command": str(python), "args": ["-I", str(tmp_path / "server.py")], "tools": ["*"], "approval": "allow"}
    )

    async def use() -> None:
        async with talking(old=settings) as talk:
            assert (await talk.call("add", server="old", a=20, b=22))["output"] == "42"
            assert talk.connection.version == "2025-11-25"
            assert (await talk.call("count", server="old", to=3))["output"] == "counted to 3"
            wrong = await talk.call("add", server="old", a="x")
            assert (wrong["ok"], wrong["error"]["type"]) == (False, "tool_error")
            read = await talk.tools["mcp_resources"].call({"server": "old", "uri": "old://note"}, talk.context)
            assert read.output.endswith("> an old note")
            assert await talk.servers.list_prompts() == ["old: review(what) - Review something."]

    run(use())


@pytest.mark.slow
def test_twenty_servers_are_open_about_as_fast_as_with_the_bare_sdk(run: Run, rig: Rig, talking: Talking) -> None:
    """The limit allows for a machine that other tests load; the figures are printed."""
    settings = rig.settings()

    async def bare() -> float:
        began = time.monotonic()
        server = StdioServerParameters(command=settings.command or "", args=list(settings.args))

        async def one() -> None:
            async with Client(server) as client:
                await client.list_tools()
                ready.append(time.monotonic() - began)
                await done.wait()

        ready: list[float] = []
        done = asyncio.Event()
        tasks = [asyncio.create_task(one()) for _ in range(MANY)]
        await until(lambda: len(ready) == MANY)
        done.set()
        await asyncio.gather(*tasks)
        return max(ready)

    async def ours() -> float:
        named: dict[str, Any] = {f"rig{number}": settings for number in range(MANY)}
        async with talking() as talk:
            began = time.monotonic()
            async with open_servers(named, talk.context) as servers:
                connections = [server.connection for server in servers.servers]
                await until(lambda: all(each.state == "ready" for each in connections))
                return time.monotonic() - began

    async def use() -> tuple[float, float]:
        first = await ours()  # the first use of each is recorded
        assert first > 0
        pairs = [(await ours(), await bare()) for _ in range(3)]
        return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)

    ours_s, bare_s = run(use())
    print(f"{MANY} servers: {ours_s:.3f} s, the bare SDK {bare_s:.3f} s: {ours_s / bare_s:.2f} times")
    assert ours_s < 1.5 * bare_s + 0.5
