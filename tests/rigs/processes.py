"""The processes of this machine, looked at from outside of every place."""

from __future__ import annotations

import contextlib
from pathlib import Path


def runs(mark: str) -> bool:
    """Whether one has ``mark`` among its arguments."""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in file.read_bytes().split(b"\0"):
                return True
    return False
