"""Our own tools before their first call: a model reads what was prepared, and the first call imports the module.

The modules of all tools, and pydantic, take as long to import as the rest of a short question.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.plugins import load_value
from hermes_exec_agent.models.protocol import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_agent.tools.envelope import Envelope
    from hermes_exec_agent.tools.tool import Context

PREPARED = Path(__file__).with_name("tools.json")
"""What a conversation knows of each of our own tools, by name; a test compares it with the classes, and writes it."""
TRAITS = (
    "changes", "only_reads", "tool_set", "position", "callable_from_scripts", "available_to_delegates",
)  # fmt: skip
"""The attributes that the file contains where they differ from those of `ToolTraits`."""


class ToolTraits:
    """A tool of this program or of a plugin, and what the agent decides by; tools of other servers have none of it."""

    spec: ToolSpec
    name: str
    changes: bool = True
    only_reads: bool = False
    """Whether a call cannot change anything, the agent's own state included, so that broken JSON may be repaired."""
    tool_set: str = ""
    """The set that a tool of another distribution belongs to; named like the distribution if empty."""
    position: int = 1000
    """Where a model reads it among the tools: smaller numbers first, equal ones by name."""
    callable_from_scripts: bool = True
    """Whether a script of ``execute_code`` may call it; not if it asks a model or a person, which a budget counts."""
    available_to_delegates: bool = True
    """Whether a conversation that a task was delegated to has it, too."""

    @classmethod
    def is_available(cls, context: Context) -> bool:  # noqa: ARG003  most tools are always available
        """Whether the conversation has what this tool needs; a tool that is not available is not offered."""
        return True

    def renew(self) -> ToolTraits:
        """Return the same tool for another conversation."""
        return type(self)()

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        """Run the call if it is approved; see `Tool.call`."""
        raise NotImplementedError


class PreparedTool(ToolTraits):
    """A tool of ours, whose module is imported at its first call."""

    def __init__(self, name: str, value: str) -> None:
        """``value`` is ``module:attribute`` of the class."""
        row = _read_rows()[name]
        self.name = name
        self.spec = ToolSpec(name, row["description"], row["schema"])
        for trait in row.keys() & set(TRAITS):
            setattr(self, trait, row[trait])
        self.loaded: ToolTraits | None = None
        """The tool, after its first call."""
        self._value = value

    def renew(self) -> PreparedTool:
        """Return the same tool for another conversation."""
        return PreparedTool(self.name, self._value)

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        """Run the call if it is approved; see `Tool.call`."""
        self.loaded = cast("Callable[[], ToolTraits]", load_value(self._value))()
        self.call = self.loaded.call  # type: ignore[method-assign]  # later calls go to the tool itself
        return await self.loaded.call(arguments, context)


def prepare_tool(name: str, value: str) -> ToolTraits:
    """Return one of our own tools, given ``module:attribute`` of its class.

    A tool of a set that is off unless it is named is created at once, as its library may be missing.

    Raises:
        MissingExtra: its library is missing.
    """
    row = _read_rows().get(name)
    if row is None or "tool_set" in row:
        return cast("Callable[[], ToolTraits]", load_value(value))()
    return PreparedTool(name, value)


def find_prepared_schema(type_name: str) -> dict[str, Any] | None:
    """Return the prepared JSON Schema of a class of arguments, which is not to be changed; None if there is none."""
    return _list_schemas().get(type_name)


@functools.cache
def _read_rows() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = json.loads(PREPARED.read_bytes())
    return rows


@functools.cache
def _list_schemas() -> dict[str, dict[str, Any]]:
    return {row["type"]: row["schema"] for row in _read_rows().values()}
