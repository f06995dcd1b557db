"""The progress of a run on standard error: a line that is rewritten on a terminal, and lines now and then in a pipe."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from hermes_exec_agent.batch.run_state import Summary

_PIPE_S = 10.0


class ProgressLine:
    """Shows summaries."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._live = stream.isatty()
        self._shown = ""
        self._due = 0.0
        self._width = 0

    def show(self, summary: Summary) -> None:
        """Show a summary, if it is time."""
        line = format_summary(summary)
        if self._quiet or line == self._shown:
            return
        try:
            self._write(line)
        except OSError:  # the reader of our messages has gone, and the run goes on
            self._quiet = True

    def _write(self, line: str) -> None:
        if self._live:
            cut = line[: shutil.get_terminal_size().columns - 1]
            self._stream.write(f"\r{cut:<{self._width}}")
            self._width = len(cut)
        elif time.monotonic() < self._due:
            return
        else:
            self._stream.write(f"{line}\n")
            self._due = time.monotonic() + _PIPE_S
        self._shown = line
        self._stream.flush()

    def close(self, last: Summary) -> None:
        """Show the last summary, and end the line on a terminal."""
        self._due = 0.0
        self.show(last)
        if self._live and self._shown and not self._quiet:
            self._stream.write("\n")
            self._stream.flush()


def format_summary(summary: Summary) -> str:
    """Return a summary as one line."""
    parts = [f"{summary.done}/{summary.total} done", f"{summary.running} running", f"{summary.waiting} waiting"]
    parts += [f"{name} {number}" for name, number in summary.failures.items()]
    if summary.reward is not None:
        parts.append(f"reward {summary.reward:.3f}")
    if summary.prompt or summary.completion:
        parts.append(f"{summary.prompt + summary.completion} tokens")
    if summary.cost is not None:
        parts.append(f"${summary.cost:.4f}")
    if summary.left_s is not None and summary.done < summary.total:
        parts.append(f"{_format_seconds(summary.left_s)} left")
    return ", ".join(parts)


def _format_seconds(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"
