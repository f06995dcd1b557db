"""The result of a command: its output, how it ended, and how much output was left out."""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

_SHOWN = 80
"""Bytes of an output that ``repr`` shows."""


class ShellState(StrEnum):
    """The state of the live shell after a command."""

    KEPT = "kept"
    """The same shell continues, with everything that the command set."""
    RESTORED = "restored"
    """The shell ended (``exit``, ``set -e``); a new shell has the state of that moment."""
    ROLLED_BACK = "rolled back"
    """The shell was replaced or killed; a new shell has the state of the last checkpoint."""
    NONE = "none"
    """The command ran outside of a live shell (an argv list, a job, the plain transport)."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """How much of one stream is missing from a result, in bytes."""

    total: int
    """Bytes that the command wrote."""
    omitted: int
    """Bytes left out between the head and the tail that were kept."""
    spool: Path | None = None
    """A file with the stream from its first byte on, up to a cap; removed when the terminal closes."""
    spooled: int = 0
    """Bytes in that file."""


@dataclass(frozen=True, slots=True)
class Result:
    """The end of one command. ``exit_code`` is None exactly when a signal ended it or its end was not observed."""

    exit_code: int | None
    signal: int | None = None
    timed_out: bool = False
    cancelled: bool = False
    limit: str | None = None
    """The limit that ended it (``memory``, ``cpu`` …), or None."""
    stdout: bytes = b""
    stderr: bytes = b""
    duration_s: float = 0.0
    truncated: dict[Literal["stdout", "stderr"], Truncation] = field(
        default_factory=dict[Literal["stdout", "stderr"], Truncation]
    )
    """The streams whose middle was left out; empty when both are complete."""
    shell: ShellState = ShellState.NONE
    note: str = ""
    """A sentence about an unusual event, such as a shell that was replaced; else empty."""

    def __repr__(self) -> str:
        """Return the fields that differ from their defaults; outputs are cut."""
        shown = [f"exit_code={self.exit_code}"]
        for each in fields(self)[1:]:
            value = getattr(self, each.name)
            if each.name in {"stdout", "stderr"}:
                shown.append(f"{each.name}={_cut(value)}")
            elif value and value is not ShellState.NONE:
                shown.append(f"{each.name}={value:.3g}" if isinstance(value, float) else f"{each.name}={value!r}")
        return f"Result({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """Return how it ended, and its outputs, for a notebook."""
        from hermes_exec.notebook import format_line, format_output

        left_out = sum(each.omitted for each in self.truncated.values())
        lines = [self.reason, f"{self.duration_s:.3g} s"]
        lines += [f"{left_out:,} bytes left out"] if left_out else []
        lines += [self.note] if self.note else []
        head = " · ".join(format_line(line) for line in lines)
        colour = "inherit" if self.ok else "#c33"
        return (
            f'<div><div style="color:{colour}"><small>{head}</small></div>'
            f"{format_output(self.stdout_text)}{format_output(self.stderr_text, failed=True)}</div>"
        )

    @property
    def ok(self) -> bool:
        """True when the command exited with 0, and was neither cancelled nor timed out."""
        return self.exit_code == 0 and not self.timed_out and not self.cancelled

    @property
    def stdout_text(self) -> str:
        """Standard output decoded as UTF-8; invalid bytes become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def stderr_text(self) -> str:
        """Standard error decoded as UTF-8; invalid bytes become U+FFFD."""
        return self.stderr.decode("utf-8", "replace")

    @property
    def reason(self) -> str:
        """How the command ended, as text."""
        if self.timed_out:
            return f"stopped at its time limit after {self.duration_s:.3g} s"
        if self.cancelled:
            return "cancelled"
        if self.limit:
            return f"stopped by its {self.limit} limit"
        if self.signal is not None:
            return f"ended by {signal_name(self.signal)}"
        return f"exit code {self.exit_code}"

    @property
    def shell_code(self) -> int:
        """The exit status that a shell would report: 124 for a timeout, 128 + N for signal N."""
        if self.timed_out:
            return 124
        if self.signal is not None:
            return 128 + self.signal
        return 130 if self.exit_code is None else self.exit_code


def _cut(output: bytes) -> str:
    """Return the ``repr`` of an output, of a long one the beginning and the size."""
    if len(output) <= _SHOWN:
        return repr(output)
    return f"{output[:_SHOWN]!r}… ({len(output):,} bytes)"


def signal_name(number: int) -> str:
    """Return the name of a signal: ``SIGKILL`` for 9, ``signal 64`` for a number without a name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream: bytes of ``stdout`` or ``stderr``, or the ``exit`` with its result."""

    kind: Literal["stdout", "stderr", "exit"]
    data: bytes = b""
    result: Result | None = None
