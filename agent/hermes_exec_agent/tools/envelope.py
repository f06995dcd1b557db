"""The one form that every tool's result has."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a tool could not do its part; a command that fails is no failure of a tool."""

    type: str
    message: str
    """What, why, and what to try."""
    retryable: bool = False
    """Whether the same call may do better later: nothing of it ran."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A tool's result, which always names where it ran."""

    ok: bool
    place: str
    """The target, as the person wrote it."""
    output: str = ""
    exit_code: int | None = None
    """Of a command; None where there was none, never a number of ours."""
    truncated: bool = False
    output_ref: str = ""
    """Where the rest of a truncated output can be read, in the place."""
    cwd: str = ""
    duration_s: float = 0.0
    session_id: str = ""
    """Of a process that goes on."""
    note: str = ""
    """What is to be known besides, in our words; it is no output."""
    error: Failure | None = None

    def text(self) -> str:
        """As the model reads it: JSON without what is empty."""
        fields: dict[str, Any] = {"ok": self.ok, "backend": self.place}
        for name in ("output", "exit_code", "truncated", "output_ref", "cwd", "session_id", "note"):
            value = getattr(self, name)
            if value is not None and value is not False and value != "":
                fields[name] = value
        if self.duration_s:
            fields["duration_s"] = round(self.duration_s, 3)
        if self.error is not None:
            fields["error"] = {
                "type": self.error.type,
                "message": self.error.message,
                "retryable": self.error.retryable,
            }
        return json.dumps(fields, ensure_ascii=False)
