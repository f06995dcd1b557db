"""What a command gave: its bytes, how it ended, and what was left out."""

from __future__ import annotations

import signal as signals
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path


class ShellState(StrEnum):
    """What became of the live shell that ran a command."""

    KEPT = "kept"
    """The same shell goes on; everything that the command set is there."""
    RESTORED = "restored"
    """The shell ended (``exit``, ``set -e``); a new one has its state as of that moment."""
    ROLLED_BACK = "rolled back"
    """The shell was replaced or killed; a new one has the state of the last checkpoint."""
    NONE = "none"
    """No live shell was involved (an argv list, a job, the plain carrier)."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """How much of one stream is missing from a result, in bytes."""

    total: int
    """Bytes that the command wrote."""
    omitted: int
    """Bytes left out between the head and the tail that were kept."""
    spool: Path | None = None
    """A file with the stream from its first byte, up to the stated cap; gone when the terminal closes."""
    spooled: int = 0
    """Bytes in that file."""


@dataclass(frozen=True, slots=True)
class Result:
    """The end of one command. ``exit_code`` is None exactly when a signal or a loss ended it."""

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
    """Empty when nothing was left out; else the streams that lost their middle."""
    shell: ShellState = ShellState.NONE
    note: str = ""
    """A sentence when something unusual happened, such as a shell that had to be replaced."""

    @property
    def ok(self) -> bool:
        """True when it exited with 0 by itself."""
        return self.exit_code == 0 and not self.timed_out and not self.cancelled

    @property
    def stdout_text(self) -> str:
        """Standard output as UTF-8; what is not UTF-8 becomes U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def stderr_text(self) -> str:
        """Standard error as UTF-8; what is not UTF-8 becomes U+FFFD."""
        return self.stderr.decode("utf-8", "replace")

    @property
    def reason(self) -> str:
        """How it ended, in words."""
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
        """The one number that a shell would show: 124 for a timeout, 128 + N for signal N."""
        if self.timed_out:
            return 124
        if self.signal is not None:
            return 128 + self.signal
        return 130 if self.exit_code is None else self.exit_code


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9; ``signal 64`` for a number without a name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a stream tells: bytes of ``stdout`` or ``stderr``, or the ``exit`` with its result."""

    kind: Literal["stdout", "stderr", "exit"]
    data: bytes = b""
    result: Result | None = None
