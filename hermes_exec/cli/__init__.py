"""The command line, ``hermes-exec``. docs/cli.md describes every command and exit code."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> int:
    """Run one command line, the process's own when none is given, and return the exit code."""
    if sys.platform == "win32":
        print("hermes-exec: Windows is not supported. Try: run it inside WSL2", file=sys.stderr)
        return 125
    try:
        _open_standard_files()
        from hermes_exec.cli.app import start

        return start(sys.argv[1:] if words is None else words)
    except KeyboardInterrupt:
        return 130


def _open_standard_files() -> None:
    # A descriptor that was closed when we started would be given to the next file that is opened, and
    # output would end up in there.
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
