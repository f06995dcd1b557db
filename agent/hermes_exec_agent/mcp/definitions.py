"""The descriptions of other servers' tools: untrusted text, which is checked and bounded before a model reads it.

Nothing here imports the SDK, so that a conversation begins with the descriptions of last time at once.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from hermes_exec_agent.memory.screening import find_withholding
from hermes_exec_agent.models.protocol import ToolSpec
from hermes_exec_agent.quoting import flatten

PREFIX = "mcp__"
LONGEST_NAME = 64
"""Characters of a tool's name that every endpoint accepts."""
_LONGEST_DESCRIPTION = 1000
_LONGEST_SCHEMA = 16_000
_DEEPEST = 24
_MOST_NAME = 200
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8
_SHORT = 100


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool, as its server describes it."""

    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of its arguments."""
    only_reads: bool = False
    """Whether the server says so."""
    is_idempotent: bool = False
    """Whether the server says that a second call with the same arguments has no further effect."""
    title: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole definition."""
        return hashlib.sha256(json.dumps(self.to_record(), sort_keys=True).encode()).hexdigest()

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "name": self.name, "title": self.title, "description": self.description, "schema": self.schema,
            "only_reads": self.only_reads, "is_idempotent": self.is_idempotent,
        }  # fmt: skip

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ToolDefinition:
        """Return the definition that `to_record` made.

        Raises:
            KeyError, TypeError, ValueError: the record is of another form.
        """
        schema: Any = record["schema"]
        if not isinstance(schema, dict):
            raise TypeError("a schema is an object")
        return cls(
            str(record["name"]), str(record["description"]), cast("dict[str, Any]", schema),
            bool(record["only_reads"]), bool(record["is_idempotent"]), str(record["title"]),
        )  # fmt: skip

    def find_problem(self) -> str:
        """Return why a model may not read it, in a few words; empty if it may."""
        if not self.name or len(self.name) > _MOST_NAME or not self.name.isprintable():
            return "its name is empty, too long or not printable"
        if problem := _check_schema(self.schema):
            return problem
        for text in {self.name, self.title, self.description, *_list_texts(self.schema)}:
            if problem := _screen(text) if len(text) <= _SHORT else find_withholding(text):
                return f"its description has {problem}"
        return ""

    def to_spec(self, server: str, name: str) -> ToolSpec:
        """Return the description for a model; ``name`` is the tool's name for the model."""
        about = flatten(self.description or self.title, _LONGEST_DESCRIPTION) or "no description"
        return ToolSpec(name, f"[MCP server {server}] {about}", {**self.schema, "properties": self._properties()})

    def _properties(self) -> dict[str, Any]:
        properties: Any = self.schema.get("properties", {})
        return cast("dict[str, Any]", properties)


@functools.lru_cache(4096)
def _screen(text: str) -> str:
    """Return what `find_withholding` returns; the schemas of all tools have the same words."""
    return find_withholding(text)


def _check_schema(schema: Mapping[str, Any]) -> str:
    """Return the fault of a schema of arguments; empty if it can be given to a model."""
    if schema.get("type") != "object":
        return "the schema of its arguments is none of an object"
    properties: Any = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(
        isinstance(each, dict | bool) for each in cast("dict[str, Any]", properties).values()
    ):
        return "the schema of its arguments is not valid"
    required: object = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(each, str) for each in cast("list[object]", required)):
        return "the schema of its arguments is not valid"
    if _measure_depth(schema) > _DEEPEST or len(json.dumps(schema)) > _LONGEST_SCHEMA:
        return f"the schema of its arguments is larger than {_LONGEST_SCHEMA} characters, or nested too deeply"
    return ""


def _measure_depth(value: object, depth: int = 0) -> int:
    if depth > _DEEPEST or not isinstance(value, Mapping | list):
        return depth
    inner = (
        cast("Mapping[object, object]", value).values() if isinstance(value, Mapping) else cast("list[object]", value)
    )
    return max((_measure_depth(each, depth + 1) for each in inner), default=depth)


def _list_texts(value: object) -> Iterator[str]:
    """Yield all texts in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, each in cast("Mapping[str, object]", value).items():
            yield key
            yield from _list_texts(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _list_texts(each)


def make_tool_name(server: str, tool: str) -> str:
    """Return the name of a server's tool for a model: of letters, digits, ``_`` and ``-``, and at most 64 long."""
    plain = f"{PREFIX}{server}__{_OTHER.sub('_', tool)}"
    if len(plain) <= LONGEST_NAME and plain.endswith(f"__{tool}"):
        return plain
    mark = hashlib.sha256(tool.encode()).hexdigest()[:_DIGEST]
    return f"{plain[: LONGEST_NAME - _DIGEST - 1]}_{mark}"
