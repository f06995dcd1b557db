"""The descriptions of tools that models receive, once in each log."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.runtime.events.log import Conflict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec_agent.models.protocol import ToolSpec
    from hermes_exec_agent.runtime.events.log import EventLog

_STREAM = "tools"
_DIGEST = 16
"""Hexadecimal digits."""


def record_schemas(log: EventLog, specs: Sequence[ToolSpec]) -> str:
    """Record the descriptions of tools unless the log has them, and return their digest; empty without tools.

    Raises:
        HermesError: they cannot be recorded.
    """
    if not specs:
        return ""
    schemas = [spec.to_wire() for spec in specs]
    digest = hashlib.sha256(json.dumps(schemas, sort_keys=True).encode()).hexdigest()[:_DIGEST]
    stream = f"{_STREAM}:{digest}"
    if not log.last(stream):
        with contextlib.suppress(Conflict):  # another program recorded the same
            log.append(stream, "tools", {"schemas": schemas}, after=0)
    return digest


def read_schemas(log: EventLog, digest: str) -> list[dict[str, Any]]:
    """Return the descriptions with a digest; none if the log has none."""
    event = log.first(f"{_STREAM}:{digest}") if digest else None
    return event.data["schemas"] if event is not None else []
