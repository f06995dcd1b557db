"""The status of a job, validated: states and numbers from the target are untrusted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_exec.errno_hints import errno_remedy
from hermes_exec.errors import (
    Closed,
    HermesError,
    PlaceError,
    ProtocolError,
    Unsupported,
    UsageError,
)
from hermes_exec.terminal import requests
from hermes_exec.terminal.requests import format_command

if TYPE_CHECKING:
    from hermes_exec.result import Result

_T = TypeVar("_T")


class JobState(StrEnum):
    """The state of a job."""

    RUNNING = "running"
    WAITING = "waiting"
    """It runs, but waits when it writes, because its log is full."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job at one moment."""

    id: str
    name: str
    command: str
    """The shell text, or the arguments quoted for a shell; the first 1,024 bytes."""
    state: JobState
    pid: int
    started: float
    """Seconds since 1970, by the target's clock."""
    ended: float | None
    duration_s: float
    """Seconds that it has run so far, suspended time included."""
    stdout_bytes: int
    stderr_bytes: int
    result: Result | None
    """Its result without the output; None while it runs."""
    note: str
    """A sentence about an unusual state, such as why it waits; else empty."""

    @classmethod
    def from_answer(cls, fields: Any) -> JobStatus:
        """Validate the answer of a guest.

        Raises:
            ProtocolError: a field is missing or not valid.
        """
        try:
            answer, log = fields["answer"], fields["log"]
            state = JobState(fields["state"])
            result = requests.parse_result(answer, [""], None) if state is JobState.ENDED else None
            return cls(
                id=_require(str, fields["job"]),
                name=_require(str, fields["name"]),
                command=format_command(_parse_command(fields["command"])),
                state=state,
                pid=_require(int, fields["pid"]),
                started=_require(float, fields["started"]),
                ended=None if fields["ended"] is None else _require(float, fields["ended"]),
                duration_s=_require(float, answer["duration"]),
                stdout_bytes=_require(int, log[1]),
                stderr_bytes=_require(int, log[2]),
                result=result,
                note=_require(str, answer.get("note", "")),
            )
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise ProtocolError("the guest sent an invalid job status") from error


class JobList(list[JobStatus]):
    """A list of jobs that notebooks show as a table."""

    def _repr_html_(self) -> str:
        """Return the table."""
        from hermes_exec.notebook import format_table

        heads = ("job", "name", "state", "seconds", "output bytes", "command")
        rows = [
            (
                each.id,
                each.name,
                each.state.value if each.result is None else each.result.reason,
                f"{each.duration_s:.1f}",
                f"{each.stdout_bytes + each.stderr_bytes:,}",
                each.command,
            )
            for each in self
        ]
        return format_table(heads, rows)


def _parse_command(value: Any) -> bytes | list[bytes]:
    if isinstance(value, bytes):
        return value
    argv: list[object] = list(value)
    return [_require(bytes, argument) for argument in argv]


def _require(kind: type[_T], value: Any) -> _T:
    if not isinstance(value, kind):
        raise TypeError(f"not {kind.__name__}: {value!r}")
    return value


def raise_for_answer(answer: dict[str, Any], what: str) -> None:
    """Raise the error of a failed answer; nothing was done in any of these cases."""
    if "error" in answer:
        raise _error(answer, what)


def _error(answer: dict[str, Any], what: str) -> HermesError:
    kind, message = str(answer["error"]), str(answer.get("message", "no reason given"))
    if kind == "closed":
        return Closed(message)
    if kind == "unsupported":
        return Unsupported(f"{what}: {message}", remedy=requests.CAPABILITIES_REMEDY)
    if kind in ("exists", "missing", "running", "program", "cwd"):
        remedy = {"running": "kill it first", "cwd": "create the folder, or pass another cwd"}.get(kind, "")
        return UsageError(f"{what}: {message}", remedy=remedy)
    return PlaceError(f"{what}: {message}", remedy=errno_remedy(answer.get("errno")), state="nothing ran")
