"""The accepted descriptions of servers' tools: those of the first use, or of ``mcp test --accept``.

A model reads these, also after the server has others. A file for each server is in the folder of state.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from hermes_exec.config.paths import exists, read_regular, state_folder, to_printable, write_private
from hermes_exec.errors import ConfigError
from hermes_exec_agent.mcp.definitions import ToolDefinition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

State = Literal["same", "changed", "new", "gone"]


@dataclass(frozen=True, slots=True)
class Pins:
    """The accepted descriptions of one server."""

    tools: Mapping[str, ToolDefinition] = field(default_factory=dict[str, ToolDefinition])
    """By the server's names."""
    version: str = ""
    """Of the protocol that the server spoke last."""
    features: tuple[str, ...] = ()
    """What the server has besides tools: resources, prompts."""
    at: float = 0.0
    """When it was accepted, in seconds since 1970."""

    def compare(self, listed: Iterable[ToolDefinition]) -> dict[str, State]:
        """Return the state of each tool that was accepted or that the server lists now."""
        now = {each.name: each.digest for each in listed}
        states: dict[str, State] = {
            name: "new" if name not in self.tools else "same" if self.tools[name].digest == digest else "changed"
            for name, digest in now.items()
        }
        gone: dict[str, State] = {name: "gone" for name in self.tools if name not in now}
        return states | gone


def read_pins(server: str, environ: Mapping[str, str]) -> Pins | None:
    """Return the accepted descriptions of a server; None if it was never used.

    Raises:
        ConfigError: the file cannot be read.
    """
    path = pins_file(server, environ)
    if not exists(path):
        return None
    try:
        record: Any = json.loads(read_regular(path))
        tools = [ToolDefinition.from_record(each) for each in record["tools"]]
        features = tuple(map(str, record.get("features", [])))
        return Pins({each.name: each for each in tools}, str(record["version"]), features, float(record["at"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{to_printable(path)}: not what this program writes", remedy=f"hermes-exec mcp test {server} --accept"
        ) from None


def write_pins(
    server: str,
    tools: Iterable[ToolDefinition],
    version: str,
    environ: Mapping[str, str],
    *,
    features: Iterable[str] = (),
) -> Pins:
    """Record descriptions of a server as accepted, and return them.

    Raises:
        ConfigError: the file cannot be written.
    """
    pins = Pins({each.name: each for each in tools}, version, tuple(features), time.time())
    tools_record = [each.to_record() for each in pins.tools.values()]
    record = {"version": version, "features": pins.features, "at": pins.at, "tools": tools_record}
    path = pins_file(server, environ)
    try:
        write_private(path, json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    except OSError as error:
        raise ConfigError(f"{to_printable(path)}: {error.strerror}", remedy="check the folder") from error
    return pins


def remove_pins(server: str, environ: Mapping[str, str]) -> None:
    """Remove the accepted descriptions of a server."""
    pins_file(server, environ).unlink(missing_ok=True)


def pins_file(server: str, environ: Mapping[str, str]) -> Path:
    """Return the path of a server's file."""
    return state_folder(environ) / "mcp" / f"{server}.json"
