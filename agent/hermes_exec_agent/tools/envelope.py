"""The form of every tool's result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import Closed, PlaceGone, PlaceUnavailable
from hermes_exec_agent.quoting import flatten

if TYPE_CHECKING:
    from hermes_exec.errors import HermesError
    from hermes_exec_agent.tools.provenance import PartOrigin

_LINE = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a tool failed; a command that fails is not a failure of its tool."""

    type: str
    message: str
    """The cause, and what to try."""
    retryable: bool = False
    """Whether the same call may succeed later, as nothing of it ran."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The result of a tool, with the target that it ran in."""

    ok: bool
    place: str
    """The target, as the person wrote it."""
    output: str = ""
    exit_code: int | None = None
    """Of a command; None if it has none, never a number of ours."""
    truncated: bool = False
    output_ref: str = ""
    """The file in the target that has the whole output, if it is truncated."""
    cwd: str = ""
    duration_s: float = 0.0
    session_id: str = ""
    """Of a process that keeps running."""
    note: str = ""
    """Further information from the program, which is not output."""
    error: Failure | None = None
    origins: tuple[PartOrigin, ...] = ()
    """The untrusted skills whose text is in the result: for the record, not for the model."""
    strangers: tuple[str, ...] = ()
    """Those of `Provenance.strangers` whose text may be in the result, without that of the tool itself."""

    def text(self) -> str:
        """Return the result for the model: JSON without empty fields."""
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


def find_failure(content: str) -> str:
    """Return the first line of a failed call, from its result as the model reads it; empty if it did not fail."""
    try:
        envelope: Any = json.JSONDecoder().raw_decode(content)[0]  # a note may follow
        if not isinstance(envelope, dict):
            return ""
        error, code = envelope.get("error"), envelope.get("exit_code")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  it is JSON
        if isinstance(error, dict):
            return _first_line(f"{error.get('type')}: {error.get('message')}")  # pyright: ignore[reportUnknownMemberType]  it is JSON
        if code:
            return _first_line(f"exit code {code}: {str(envelope.get('output', '')).lstrip()}")  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]  it is JSON
        return "" if envelope.get("ok", True) else "failed"  # pyright: ignore[reportUnknownMemberType]  it is JSON
    except (ValueError, RecursionError):
        return ""


def _first_line(text: str) -> str:
    return flatten((text.splitlines() or [""])[0], _LINE).rstrip(": ")


_ERROR_TYPES = {
    "AnswerLost": "outcome_unknown",
    "CallRefused": "refused",
    "ContentChanged": "changed",
    "ConversationInUse": "in_use",
    "GuestLost": "lost",
    "LeaseExpired": "lapsed",
    "NotRepaired": "not_mended",
    "PathDenied": "denied",
    "PathExists": "already_there",
    "PathIsFolder": "is_folder",
    "PathMissing": "missing",
    "PathNotFolder": "no_folder",
    "PoolExhausted": "busy",
    "ReadDenied": "denied",
    "SkillRefused": "refused",
    "TargetSilent": "silent",
    "ToolDisabled": "disabled",
}
"""The types of errors in envelopes, for classes with other names: recorded types do not change."""


def failure_envelope(place: str, failure: Failure) -> Envelope:
    """Return an envelope with nothing but a failure."""
    return Envelope(ok=False, place=place, error=failure)


def to_failure(error: HermesError) -> Failure:
    """Convert an error of this project for a model."""
    name = type(error).__name__
    kind = _ERROR_TYPES.get(name) or "".join(f"_{each.lower()}" if each.isupper() else each for each in name).strip("_")
    again = isinstance(error, PlaceUnavailable) and not isinstance(error, PlaceGone | Closed)
    return Failure(kind, f"{error} ({error.state})", retryable=again)
