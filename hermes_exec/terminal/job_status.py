"""What a guest says of a job, checked: states and numbers from the place are untrusted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_exec.errno_hints import remedy_for
from hermes_exec.errors import (
    Closed,
    HermesError,
    PlaceError,
    ProtocolError,
    Unsupported,
    UsageError,
)
from hermes_exec.terminal import requests
from hermes_exec.terminal.requests import shown

if TYPE_CHECKING:
    from hermes_exec.result import Result

_T = TypeVar("_T")


class JobState(StrEnum):
    """Where a job is in its life."""

    RUNNING = "running"
    WAITING = "waiting"
    """It runs, and waits when it writes, because its log is full."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job at one moment."""

    id: str
    name: str
    command: str
    """The shell text, or the words as a shell would take them; the first 1,024 bytes."""
    state: JobState
    pid: int
    started: float
    """Seconds since 1970, by the place's clock."""
    ended: float | None
    duration_s: float
    """Time that it ran so far, suspended time included."""
    stdout_bytes: int
    stderr_bytes: int
    result: Result | None
    """How it ended, without its output; None while it runs."""
    note: str
    """A sentence when something unusual is to be said, such as why it waits."""

    @classmethod
    def from_answer(cls, fields: Any) -> JobStatus:
        """Check what a guest says.

        Raises:
            ProtocolError: it makes no sense.
        """
        try:
            answer, log = fields["answer"], fields["log"]
            state = JobState(fields["state"])
            result = requests.result_of(answer, [""], None) if state is JobState.ENDED else None
            return cls(
                id=_a(str, fields["job"]),
                name=_a(str, fields["name"]),
                command=shown(_words(fields["command"])),
                state=state,
                pid=_a(int, fields["pid"]),
                started=_a(float, fields["started"]),
                ended=None if fields["ended"] is None else _a(float, fields["ended"]),
                duration_s=_a(float, answer["duration"]),
                stdout_bytes=_a(int, log[1]),
                stderr_bytes=_a(int, log[2]),
                result=result,
                note=_a(str, answer.get("note", "")),
            )
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise ProtocolError("the guest's account of a job makes no sense") from error


def _words(value: Any) -> bytes | list[bytes]:
    if isinstance(value, bytes):
        return value
    words: list[object] = list(value)
    return [_a(bytes, word) for word in words]


def _a(kind: type[_T], value: Any) -> _T:
    if not isinstance(value, kind):
        raise TypeError(f"no {kind.__name__}: {value!r}")
    return value


def raise_error(answer: dict[str, Any], what: str) -> None:
    """Raise the error that an answer stands for, if it does; in all of these nothing was done."""
    if "error" in answer:
        raise _error(answer, what)


def _error(answer: dict[str, Any], what: str) -> HermesError:
    kind, message = str(answer["error"]), str(answer.get("message", "no reason given"))
    if kind == "closed":
        return Closed(message)
    if kind == "unsupported":
        return Unsupported(f"{what}: {message}", remedy=requests.ASK_WHAT)
    if kind in ("exists", "missing", "running", "program", "cwd"):
        remedy = {"running": "kill it first", "cwd": "create the folder, or give another cwd"}.get(kind, "")
        return UsageError(f"{what}: {message}", remedy=remedy)
    return PlaceError(f"{what}: {message}", remedy=remedy_for(answer.get("errno")), state="nothing ran")
