"""Connect to one server, and compare the tools that it lists with the accepted ones."""

from __future__ import annotations

import difflib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import PlaceUnavailable
from hermes_exec_agent.mcp.connection import Connection
from hermes_exec_agent.mcp.definitions import make_tool_name
from hermes_exec_agent.mcp.pins import Pins
from hermes_exec_agent.mcp.servers import is_allowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec.config.settings import McpSettings
    from hermes_exec_agent.mcp.definitions import ToolDefinition
    from hermes_exec_agent.mcp.pins import State

_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Listing:
    """The answer of a server."""

    tools: tuple[ToolDefinition, ...]
    version: str
    program: str
    """The name that the server gives itself, which is untrusted text."""
    took_s: float
    features: tuple[str, ...] = ()
    """What it has besides tools: resources, prompts."""


@dataclass(frozen=True, slots=True)
class Row:
    """A tool of a server, for a person."""

    name: str
    state: State
    allowed: bool
    problem: str
    """Why no model may read its description; empty if one may."""
    description: str
    name_for_model: str

    @property
    def is_usable(self) -> bool:
        """Whether a conversation has it."""
        return self.allowed and self.state == "same" and not self.problem

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "name": self.name, "state": self.state, "allowed": self.allowed, "problem": self.problem,
            "description": self.description, "name_for_model": self.name_for_model,
        }  # fmt: skip


class _Taker:
    """Takes the tools of a server, and calls none."""

    def __init__(self) -> None:
        self.tools: tuple[ToolDefinition, ...] | None = None

    async def compare(self, _: Connection, listed: Sequence[ToolDefinition], /) -> None:
        """Take the tools."""
        self.tools = tuple(listed)

    def find_refusal(self, _: str, /) -> str:
        """Refuse all calls."""
        return "no tool is called"


async def list_server(name: str, settings: McpSettings) -> Listing:
    """Connect to a server once, and return its list of tools.

    Raises:
        PlaceUnavailable: it cannot be started or reached.
    """
    taker = _Taker()
    connection = Connection(name, settings, taker)
    began = time.monotonic()
    connection.start()
    try:
        if not await connection.wait(_LIMIT_S, attempts=1) or taker.tools is None:
            raise PlaceUnavailable(connection.reason or f"the MCP server {name} does not answer")
        took_s = time.monotonic() - began
        return Listing(taker.tools, connection.version, connection.program, took_s, connection.features)
    finally:
        await connection.close()


def compare(name: str, settings: McpSettings, pins: Pins | None, listing: Listing) -> list[Row]:
    """Return a row for each tool that the server lists, or that was accepted; without pins all is as accepted now."""
    pins = pins or Pins({each.name: each for each in listing.tools})
    now = {each.name: each for each in listing.tools}
    rows: list[Row] = []
    for tool, state in pins.compare(listing.tools).items():
        definition = now.get(tool) or pins.tools[tool]
        rows.append(
            Row(
                tool,
                state,
                is_allowed(tool, settings),
                definition.find_problem(),
                definition.description,
                make_tool_name(name, tool),
            )
        )
    return rows


def describe_change(before: ToolDefinition | None, after: ToolDefinition | None) -> list[str]:
    """Return the difference of two descriptions, as lines of a unified diff."""
    old, new = (
        json.dumps(each.to_record(), indent=1, ensure_ascii=False).splitlines() if each else []
        for each in (before, after)
    )
    return list(difflib.unified_diff(old, new, "accepted", "now", lineterm="", n=1))
