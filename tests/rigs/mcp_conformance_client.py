"""Our client, as the conformance suite of the protocol starts it: its one argument is the address of a server.

It logs in if the server asks for that, lists the tools, and calls each of them once; a person answers with nothing, and
logs in once more where a call was refused for want of rights.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any, cast

import httpx2

from hermes_exec.config.secrets import Secret
from hermes_exec.config.settings import McpSettings
from hermes_exec.errors import HermesError
from hermes_exec_agent.mcp.connection import Connection
from hermes_exec_agent.mcp.errors import FurtherRights
from hermes_exec_agent.mcp.login import log_in
from hermes_exec_agent.mcp.login_page import open_login_page
from hermes_exec_agent.tools.tool import Context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.mcp.definitions import ToolDefinition

DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The document that the suite expects a client to name."""
VALUES: dict[str, Any] = {"number": 2, "integer": 2, "string": "x", "boolean": True}


class Person:
    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        return True

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        return "answer" if "answer" in choices else ""


class Listener:
    def __init__(self) -> None:
        self.tools: Sequence[ToolDefinition] = ()

    async def compare(self, _: Connection, listed: Sequence[ToolDefinition], /) -> None:
        self.tools = listed

    def find_refusal(self, _: str, /) -> str:
        return ""


async def browse(address: str) -> None:
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(address)


async def use(url: str) -> None:
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    fields = {"url": url, "tools": ["*"], "elicitation": True, "timeout_s": 10.0}
    secret = Secret("client_secret", given["client_secret"]) if "client_secret" in given else None
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if secret is not None:
        fields["client_id"] = given["client_id"]
    elif scenario.startswith("auth/"):
        fields["client_metadata_url"] = DOCUMENT
    settings = McpSettings.model_validate(fields)
    if scenario.startswith("auth/"):
        await log_in_by_browser(settings, secret)
    for _ in range(3):
        scope = await call_all(settings)
        if not scope:
            break
        await log_in_by_browser(settings, secret, scope)


async def log_in_by_browser(settings: McpSettings, secret: Secret | None, scope: str = "") -> None:
    browsing: list[asyncio.Task[None]] = []

    async def show(address: str) -> None:
        page.expect(address)
        browsing.append(asyncio.create_task(browse(address)))

    async with open_login_page() as page:
        await log_in(
            "suite", settings, os.environ, redirect=page.redirect, show=show, receive=page.receive, secret=secret,
            scope=scope,
        )  # fmt: skip
        await asyncio.gather(*browsing)


async def call_all(settings: McpSettings) -> str:
    """Call each tool once; return the rights that a call lacked."""
    listener = Listener()
    context = Context(cast("Any", None), "local", Person(), "c1")
    connection = Connection("suite", settings, listener, context=context)
    connection.start()
    try:
        if not await connection.wait(20.0, attempts=1):
            raise SystemExit(connection.reason)
        for tool in listener.tools:
            properties = tool.schema.get("properties", {})
            arguments = {name: VALUES[each["type"]] for name, each in properties.items()}
            try:
                await connection.call(tool.name, arguments)
            except FurtherRights as error:
                return error.scope
            except HermesError as error:
                print(error, file=sys.stderr)
        return ""
    finally:
        await connection.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        asyncio.run(use(sys.argv[1]))
