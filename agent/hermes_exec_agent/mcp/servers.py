"""The servers of a conversation, and the tools of theirs that its model reads.

A conversation begins with the accepted descriptions, and does not wait for a server. The list of a server at its first
use is accepted; a conversation that has begun gets these tools with its next request. No model reads a later
description, and a tool whose description changed is disabled until a person accepts it.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec.errors import ConfigError
from hermes_exec.extras import install_command, missing_modules
from hermes_exec_agent.mcp.connection import Connection
from hermes_exec_agent.mcp.definitions import make_tool_name
from hermes_exec_agent.mcp.pins import Pins, read_pins, write_pins
from hermes_exec_agent.mcp.tool import McpTool
from hermes_exec_agent.quoting import quote_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from hermes_exec.config.settings import McpSettings
    from hermes_exec_agent.mcp.definitions import ToolDefinition
    from hermes_exec_agent.mcp.pins import State
    from hermes_exec_agent.tools.tool import Context, Mode

_CLOSE_S = 8.0
ALL = "*"


class Server:
    """A server of a conversation: its connection, and which of its tools may be called."""

    def __init__(self, name: str, settings: McpSettings, pins: Pins | None, tell: Callable[[str], None]) -> None:
        self.name = name
        self.settings = settings
        self.pins = pins
        self.connection = Connection(name, settings, self, known_version=pins.version if pins else "")
        self._tell = tell
        self._states: dict[str, State] = {}
        """Of the tools as the server lists them now; empty before it did."""

    def create_tools(self, context: Context) -> list[McpTool]:
        """Return the tools that were accepted, that the person allows, and that a model may read."""
        found: dict[str, McpTool] = {}
        for definition in (self.pins or Pins()).tools.values():
            if not is_allowed(definition.name, self.settings):
                continue
            if problem := definition.find_problem():
                self._tell(f"the tool {definition.name!r} of the MCP server {self.name} is left out: {problem}")
                continue
            name = make_tool_name(self.name, definition.name)
            spec = definition.to_spec(self.name, name)
            if about := context.descriptions.get(name):
                spec = replace(spec, description=" ".join(about.split()))
            found.setdefault(name, McpTool(self.connection, definition, spec))
        return list(found.values())

    def find_refusal(self, tool: str) -> str:
        """Return why a tool may not be called now; empty if it may."""
        state = self._states.get(tool, "same")
        if state == "same":
            return ""
        what = "no longer has this tool" if state == "gone" else "has changed the description of this tool"
        return f"the MCP server {self.name} {what}. A person has to look: hermes-exec mcp test {self.name} --accept"

    def describe(self) -> str:
        """Return the state of the connection, the protocol and the number of tools, in one line."""
        connection = self.connection
        tools = (self.pins or Pins()).tools
        allowed = sum(is_allowed(tool, self.settings) for tool in tools)
        parts = [connection.state, f"protocol {connection.version}" if connection.version else ""]
        parts += [
            f"{allowed} of {len(tools)} tools are allowed",
            "" if connection.state == "ready" else connection.reason,
        ]
        changed = [tool for tool in tools if is_allowed(tool, self.settings) and self.find_refusal(tool)]
        if changed:
            parts.append(f"disabled: {', '.join(map(quote_name, changed))}")
        return f"{self.name}: {'; '.join(filter(None, parts))}"

    async def compare(self, connection: Connection, listed: Sequence[ToolDefinition]) -> None:
        """Compare the present list of the server with the accepted descriptions."""
        if self.pins is None or self.pins.version != connection.version:
            self.pins = await asyncio.to_thread(self._renew_pins, self.pins, tuple(listed), connection.version)
        before, self._states = self._states, self.pins.compare(listed)
        for tool, state in self._states.items():
            if state == "changed" and before.get(tool) != "changed" and is_allowed(tool, self.settings):
                self._tell(
                    f"the MCP server {self.name} changed the description of {tool!r}, which is disabled now."
                    f" Try: hermes-exec mcp test {self.name} --accept"
                )

    def _renew_pins(self, own: Pins | None, listed: Sequence[ToolDefinition], version: str) -> Pins:
        """Record the protocol's version, and at the first use the tools, unless another program did meanwhile.

        Returns:
            ``own`` with that version; at the first use, the descriptions on the disk.
        """
        found = read_pins(self.name, os.environ) or own
        if found is None or found.version != version:
            accepted = listed if found is None else tuple(found.tools.values())
            found = write_pins(self.name, accepted, version, os.environ)
        return found if own is None else replace(own, version=version)


def is_allowed(tool: str, settings: McpSettings) -> bool:
    """Return whether the person allows a tool of a server."""
    return tool in settings.tools or ALL in settings.tools


class Servers:
    """The servers of a conversation."""

    def __init__(self, servers: Sequence[Server], context: Context) -> None:
        self.servers = servers
        self._context = context
        self._used = [server for server in servers if server.pins is not None]
        self.tools = self._create_tools(self._used)
        """The tools that the conversation begins with."""

    def take_new_tools(self) -> list[McpTool]:
        """Return the tools of servers whose first use was since the last call."""
        new = [server for server in self.servers if server.pins is not None and server not in self._used]
        self._used += new
        return self._create_tools(new)

    def describe(self) -> list[str]:
        """Return a line for each server: its state, the protocol that it speaks, and its tools."""
        return [server.describe() for server in self.servers]

    def _create_tools(self, servers: Sequence[Server]) -> list[McpTool]:
        found: list[McpTool] = []
        for server in servers:
            tools = server.create_tools(self._context)
            if server.settings.approval is not None:
                self._apply_mode(server.settings.approval, tools)
            found += tools
        return found

    def _apply_mode(self, mode: Mode, tools: Sequence[McpTool]) -> None:
        """Give the tools of a server its configured mode, unless the conversation denies all or names a tool."""
        approvals = self._context.approvals
        if approvals.mode != "deny":
            named = {**dict.fromkeys((tool.spec.name for tool in tools), mode), **approvals.tools}
            self._context.approvals = replace(approvals, tools=named)


@asynccontextmanager
async def open_servers(settings: Mapping[str, McpSettings], context: Context) -> AsyncGenerator[Servers]:
    """Connect to the servers in the background, and yield them; they end with the block.

    ``context.approvals`` gets the configured modes of their tools, and ``context.new_tools`` the tools that come later.
    """
    wanted = {name: each for name, each in settings.items() if each.enabled}
    if wanted and (lacking := missing_modules("mcp")):
        context.tell(f"[mcp] is ignored: the package {lacking[0]!r} is not installed. Try: {install_command('mcp')}")
        wanted = {}
    opened = [server for name, each in wanted.items() if (server := _create_server(name, each, context)) is not None]
    servers = Servers(opened, context)
    context.new_tools, context.servers = servers.take_new_tools, servers.describe
    for server in opened:
        server.connection.start()
    try:
        yield servers
    finally:
        if opened:
            closing = [asyncio.create_task(server.connection.close()) for server in opened]
            await asyncio.wait(closing, timeout=_CLOSE_S)


def _create_server(name: str, settings: McpSettings, context: Context) -> Server | None:
    try:
        return Server(name, settings, read_pins(name, os.environ), context.tell)
    except ConfigError as error:
        context.tell(f"the MCP server {name} is not used: {error}")
        return None
