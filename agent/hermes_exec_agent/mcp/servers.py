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

from hermes_exec.errors import ConfigError, HermesError
from hermes_exec.extras import install_command, missing_modules
from hermes_exec_agent.mcp.connection import Connection
from hermes_exec_agent.mcp.definitions import PREFIX, make_tool_name
from hermes_exec_agent.mcp.pins import Pins, read_pins, write_pins
from hermes_exec_agent.mcp.resource_tools import PROMPTS, READERS
from hermes_exec_agent.mcp.tool import McpTool
from hermes_exec_agent.mcp.tool_search import MOST_LISTED, ToolCall, ToolCatalog, ToolSearch
from hermes_exec_agent.models.protocol import estimate_tool_tokens
from hermes_exec_agent.quoting import flatten, quote_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from hermes_exec.config.settings import McpSettings
    from hermes_exec_agent.mcp.definitions import ToolDefinition
    from hermes_exec_agent.mcp.pins import State
    from hermes_exec_agent.tools.tool import Context, Mode, Tool

_CLOSE_S = 8.0
_PROMPTS_S = 5.0
"""Seconds for the prompts of each server."""
ALL = "*"


class Server:
    """A server of a conversation: its connection, and which of its tools may be called."""

    def __init__(self, name: str, settings: McpSettings, pins: Pins | None, context: Context) -> None:
        self.name = name
        self.settings = settings
        self.pins = pins
        self.connection = Connection(name, settings, self, known_version=pins.version if pins else "", context=context)
        self._tell = context.tell
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

    def offers(self, feature: str) -> bool:
        """Return whether the server has resources or prompts that the person allows to be read."""
        return self.settings.resources and feature in (self.pins or Pins()).features

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
        now = (connection.version, connection.features)
        if self.pins is None or (self.pins.version, self.pins.features) != now:
            self.pins = await asyncio.to_thread(self._renew_pins, self.pins, tuple(listed), *now)
        before, self._states = self._states, self.pins.compare(listed)
        for tool, state in self._states.items():
            if state == "changed" and before.get(tool) != "changed" and is_allowed(tool, self.settings):
                self._tell(
                    f"the MCP server {self.name} changed the description of {tool!r}, which is disabled now."
                    f" Try: hermes-exec mcp test {self.name} --accept"
                )

    def _renew_pins(
        self, own: Pins | None, listed: Sequence[ToolDefinition], version: str, features: tuple[str, ...]
    ) -> Pins:
        """Record the protocol's version, and at the first use the tools, unless another program did meanwhile.

        Returns:
            ``own`` with that version; at the first use, the descriptions on the disk.
        """
        found = read_pins(self.name, os.environ) or own
        if found is None or (found.version, found.features) != (version, features):
            accepted = listed if found is None else tuple(found.tools.values())
            found = write_pins(self.name, accepted, version, os.environ, features=features)
        return found if own is None else replace(own, version=version, features=features)


def is_allowed(tool: str, settings: McpSettings) -> bool:
    """Return whether the person allows a tool of a server."""
    return tool in settings.tools or ALL in settings.tools


class Servers:
    """The servers of a conversation."""

    def __init__(self, servers: Sequence[Server], context: Context) -> None:
        self.servers = servers
        self._context = context
        self._catalog: ToolCatalog | None = None
        self._tokens = 0
        """Of the descriptions of the tools that are in each request."""
        self._readers: set[str] = set()
        self._used = [server for server in servers if server.pins is not None]
        self.tools = self._offer(self._used)
        """The tools that the conversation begins with."""

    def take_new_tools(self) -> list[Tool]:
        """Return the tools of servers whose first use was since the last call."""
        new = [server for server in self.servers if server.pins is not None and server not in self._used]
        self._used += new
        return self._offer(new)

    async def list_prompts(self) -> list[str]:
        """Return a line for each prompt of the servers that are connected."""
        lines: list[str] = []
        for server in self.servers:
            if server.offers(PROMPTS) and server.connection.state == "ready":
                try:
                    async with asyncio.timeout(_PROMPTS_S):
                        answer = await server.connection.use(lambda session: session.list_prompts())
                except (HermesError, TimeoutError):
                    continue
                lines += [f"{server.name}: {flatten(line)}" for line in answer.parts[0].text.splitlines()]
        return lines

    def describe(self) -> list[str]:
        """Return a line for each server: its state, the protocol that it speaks, and its tools."""
        return [server.describe() for server in self.servers]

    def _offer(self, servers: Sequence[Server]) -> list[Tool]:
        """Return what the model gets for the tools of further servers, so that the requests stay short."""
        tools = self._create_tools(servers)
        offered: list[Tool] = []
        tokens = self._tokens + estimate_tool_tokens(tool.spec for tool in tools)
        if self._catalog is None and tokens <= MOST_LISTED:
            offered += tools
            self._tokens = tokens
        elif tools:
            if self._catalog is None:
                self._catalog = ToolCatalog()
                offered += [
                    ToolSearch(self._catalog, [server.name for server in self.servers]), ToolCall(self._catalog),
                ]  # fmt: skip
            self._catalog.add(tools)
        for reader in READERS:
            if reader.name not in self._readers and any(server.offers(reader.feature) for server in servers):
                self._readers.add(reader.name)
                offered.append(reader({server.name: server for server in self.servers}))
        return offered

    def _create_tools(self, servers: Sequence[Server]) -> list[McpTool]:
        found: list[McpTool] = []
        for server in servers:
            tools = server.create_tools(self._context)
            if server.settings.approval is not None:
                self._apply_mode(server.name, server.settings.approval, tools)
            found += tools
        return found

    def _apply_mode(self, server: str, mode: Mode, tools: Sequence[McpTool]) -> None:
        """Give the tools of a server its configured mode, unless the conversation denies all or names a tool."""
        approvals = self._context.approvals
        if approvals.mode != "deny":
            names = [tool.spec.name for tool in tools]
            names += [f"{PREFIX}{server}:{each.feature}" for each in READERS]
            named = {**dict.fromkeys(names, mode), **approvals.tools}
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
    context.list_prompts = servers.list_prompts
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
        return Server(name, settings, read_pins(name, os.environ), context)
    except ConfigError as error:
        context.tell(f"the MCP server {name} is not used: {error}")
        return None
