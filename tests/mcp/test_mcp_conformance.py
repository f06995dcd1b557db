"""The conformance suite of the protocol, which npm has, against our client and our server."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import ClientConnectionResetError, ClientSession, ClientTimeout, web

from tests.rigs import node

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from tests.cli.conftest import Cli

    Run = Callable[[Awaitable[Any]], Any]

TOKEN = "a-token-of-tests-long-enough"
ROOT = Path(__file__).resolve().parents[2]
CLIENT = ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry")
LOGINS = (
    "auth/metadata-var3", "auth/token-endpoint-auth-basic", "auth/pre-registration", "auth/scope-step-up",
    "auth/scope-retry-limit", "auth/basic-cimd",
)  # fmt: skip
SERVER = (
    "server-initialize", "ping", "tools-list", "server-sse-polling", "server-sse-multiple-streams",
    "dns-rebinding-protection",
)  # fmt: skip
"""The scenarios for what our server has; the others call tools, prompts and resources of the suite's own."""


async def run_suite(folder: Path, *words: str, **variables: str) -> str:
    """What the suite prints; the scenarios pass."""
    child = await asyncio.create_subprocess_exec(
        *node.install("conformance"), *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT, env={**os.environ, "TMPDIR": str(folder), **variables},
    )  # fmt: skip
    out, _ = await child.communicate()
    assert child.returncode == 0, out.decode()[-4000:]
    return out.decode()


def client_command() -> str:
    return shlex.join([sys.executable, "-m", "tests.rigs.mcp_conformance_client"])


def test_our_client_passes(run: Run, tmp_path: Path) -> None:
    async def use() -> None:
        await asyncio.gather(
            *(
                run_suite(tmp_path, "client", "--command", client_command(), "--scenario", scenario)
                for scenario in (*CLIENT, *LOGINS)
            )
        )

    run(use())


@pytest.mark.soak
def test_our_client_logs_in_as_the_suite_demands(run: Run, tmp_path: Path) -> None:
    async def use() -> str:
        return await run_suite(tmp_path, "client", "--command", client_command(), "--suite", "auth")

    assert run(use()).count("✓ auth/") >= 13


@asynccontextmanager
async def add_token(url: str) -> AsyncGenerator[str]:
    """A proxy that adds the token, which the suite cannot send."""
    base = url.removesuffix("/mcp")
    async with ClientSession(timeout=ClientTimeout(total=None), auto_decompress=False) as session:

        async def pass_on(request: web.Request) -> web.StreamResponse:
            headers = {**request.headers, "Authorization": f"Bearer {TOKEN}"}
            body = await request.read()
            async with session.request(request.method, base + request.path_qs, headers=headers, data=body) as got:
                kept = {name: value for name, value in got.headers.items() if name.lower() in (
                    "content-type", "mcp-session-id", "cache-control")}  # fmt: skip
                answer = web.StreamResponse(status=got.status, headers=kept)
                await answer.prepare(request)
                try:
                    async for data in got.content.iter_any():
                        await answer.write(data)
                    await answer.write_eof()
                except ClientConnectionResetError:
                    pass  # the suite has read enough
                return answer

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        finally:
            await runner.cleanup()


@pytest.mark.slow
def test_our_server_passes(run: Run, cli: Cli, tmp_path: Path) -> None:
    node.find_node()
    cli.env["HERMES_EXEC_SERVER_TOKEN"] = TOKEN
    child = cli.start("mcp", "serve", "--http", "--port", "0", "--json")
    url = json.loads(child.out.readline())["listening"]

    async def use() -> None:
        async with add_token(url) as address:
            await asyncio.gather(
                *(run_suite(tmp_path, "server", "--url", address, "--scenario", scenario) for scenario in SERVER)
            )

    run(use())
    child.terminate()
    child.wait(30)


@pytest.mark.parametrize(
    ("server", "words", "tool", "arguments", "part"),
    [
        ("mcp-server-everything", [], "echo", {"message": "hello"}, "Echo: hello"),
        ("mcp-server-filesystem", ["{folder}"], "read_text_file", {"path": "{folder}/notes"}, "a line of the file"),
    ],
)
def test_a_reference_server_is_added_and_used_in_a_chat(
    cli: Cli, tmp_path: Path, server: str, words: list[str], tool: str, arguments: dict[str, str], part: str
) -> None:
    (tmp_path / "notes").write_text("a line of the file")
    argv = [*node.install(server), *(word.format(folder=tmp_path) for word in words)]
    added = cli("mcp", "add", "ref", "--allow", tool, "--", *argv)
    assert added.returncode == 0, added.stderr
    call = {
        "name": f"mcp__ref__{tool}",
        "arguments": {key: value.format(folder=tmp_path) for key, value in arguments.items()},
    }
    lines = [{"content": "", "tool_calls": [call]}, {"content": "done"}]
    (cli.cwd / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = cli("chat", "-q", "go", "--replay", "script.jsonl", "--approve", "allow", "--json")
    assert done.returncode == 0, done.stderr
    assert part in cli("conversations", "export", "last", "--format", "jsonl").stdout.decode()
