"""Find tools of servers by words, where their descriptions are too long to be in each request.

The model has two tools instead: ``tool_search`` returns names, descriptions and schemas as its result, so that the
beginning of a request stays as it is, and ``tool_call`` calls one. That call becomes a call of the tool that it names
before it is approved, recorded and run.
"""

from __future__ import annotations

import json
import re
import sqlite3
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from hermes_exec.errors import UsageError
from hermes_exec_agent.mcp.errors import ToolDisabled
from hermes_exec_agent.models.protocol import ToolSpec
from hermes_exec_agent.tools.base import ToolArguments, build_schema, describe, describe_errors
from hermes_exec_agent.tools.envelope import Envelope, Failure, failure_envelope

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from hermes_exec_agent.mcp.tool import McpTool
    from hermes_exec_agent.tools.tool import Context

MOST_LISTED = 1500
"""Tokens of the descriptions of all servers' tools up to which they are in each request."""
HERE = "agent"
SEARCH = "tool_search"
CALL = "tool_call"
_SHOWN_NAMES = 10
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"\w+")
_MOST_WORDS = 30
_MOST_SHOWN = 24_000
"""Characters of a result, after which tools are named alone."""


class ToolSearchArguments(ToolArguments):
    """Find tools of MCP servers by words; the result has their names, descriptions and schemas."""

    query: str = Field(min_length=1, max_length=500, description="Words of what the tool should do")
    limit: int = Field(5, ge=1, le=20)


class ToolCallArguments(ToolArguments):
    """Call a tool that tool_search found."""

    name: str = Field(min_length=1, description="As tool_search returned it")
    arguments: dict[str, Any] = Field(default_factory=dict, description="Of the schema that tool_search returned")


class ToolCatalog:
    """The tools that are found by words."""

    def __init__(self) -> None:
        self.tools: dict[str, McpTool] = {}
        """By their names for the model."""
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        self._index.execute("create virtual table tools using fts5(name, about, words, tokenize='porter unicode61')")

    def add(self, tools: Iterable[McpTool]) -> None:
        """Add tools; one of the same name stays."""
        for tool in tools:
            spec = tool.spec
            if spec.name in self.tools:
                continue
            self.tools[spec.name] = tool
            row = (spec.name, spec.description, json.dumps(spec.parameters, ensure_ascii=False))
            self._index.execute("insert into tools values (?, ?, ?)", tuple(map(_split_humps, row)))

    def find(self, query: str, limit: int) -> list[McpTool]:
        """Return the tools that fit best, the best one first."""
        words = _WORD.findall(_split_humps(query))[:_MOST_WORDS]
        if not words:
            return []
        text = " OR ".join(f'"{word}"' for word in words)
        rows = self._index.execute(
            "select rowid from tools where tools match ? order by bm25(tools, 4.0, 2.0, 1.0), rowid limit ?",
            (text, limit),
        )
        tools = [*self.tools.values()]
        return [tools[number - 1] for (number,) in rows]


def _split_humps(text: str) -> str:
    """Return text in which words that are joined as in ``getSum`` or ``get_sum`` are apart."""
    return _HUMP.sub(" ", text).replace("_", " ")


class ToolSearch:
    """The tool ``tool_search``."""

    changes = False

    def __init__(self, catalog: ToolCatalog, servers: Sequence[str]) -> None:
        """``servers``: the names of those whose tools are found."""
        self._catalog = catalog
        about = f"{describe(ToolSearchArguments)} Servers: {', '.join(servers)}."
        self.spec = ToolSpec(SEARCH, about, build_schema(ToolSearchArguments))

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:  # noqa: ARG002  it runs in the agent
        """Find tools."""
        try:
            args = ToolSearchArguments.model_validate(arguments)
        except ValidationError as error:
            return failure_envelope(HERE, Failure("arguments", describe_errors(SEARCH, ToolSearchArguments, error)))
        found = [tool for tool in self._catalog.find(args.query, args.limit) if _is_enabled(tool)]
        if not found:
            return Envelope(ok=True, place=HERE, output=f"none of {len(self._catalog.tools)} tools has these words")
        lines = [_describe_tool(found[0])]
        left: list[str] = []
        for tool in found[1:]:
            line = _describe_tool(tool)
            if left or sum(map(len, lines)) + len(line) > _MOST_SHOWN:
                left.append(tool.spec.name)
            else:
                lines.append(line)
        note = f"left out, as this would be too long: {', '.join(left)}. Search for one by its name" if left else ""
        return Envelope(ok=True, place=HERE, output="\n".join(lines), truncated=bool(left), note=note)


def _describe_tool(tool: McpTool) -> str:
    spec = tool.spec
    fields = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    return json.dumps(fields, ensure_ascii=False)


def _is_enabled(tool: McpTool) -> bool:
    try:
        tool.check()
    except ToolDisabled:
        return False
    return True


class ToolCall:
    """The tool ``tool_call``, whose calls become calls of the tools that they name."""

    changes = True

    def __init__(self, catalog: ToolCatalog) -> None:
        self._catalog = catalog
        self.spec = ToolSpec(CALL, describe(ToolCallArguments), build_schema(ToolCallArguments))

    def find_tool(self, name: str) -> McpTool | None:
        """Return the tool of that name, if it is found by words."""
        return self._catalog.tools.get(name)

    def find_call(self, arguments: Mapping[str, Any]) -> tuple[McpTool, dict[str, Any]]:
        """Return the tool that a call means, and its arguments.

        Raises:
            UsageError: there is none.
        """
        try:
            args = ToolCallArguments.model_validate(arguments)
        except ValidationError as error:
            raise UsageError(describe_errors(CALL, ToolCallArguments, error)) from None
        tool = self.find_tool(args.name)
        if tool is None:
            near = [each.spec.name for each in self._catalog.find(args.name, _SHOWN_NAMES)]
            raise UsageError(f"there is no tool {args.name!r}", remedy=", ".join(near) or SEARCH)
        return tool, args.arguments

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        """Call the tool that is named; a call of a model was replaced before it came here."""
        try:
            tool, args = self.find_call(arguments)
        except UsageError as error:
            return failure_envelope(HERE, Failure("arguments", str(error)))
        return await tool.call(args, context)
