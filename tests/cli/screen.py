"""A terminal as a person has it, with ``hermes-exec`` in its foreground."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Cli


class Screen:
    """A terminal with ``hermes-exec`` in its foreground."""

    def __init__(self, cli: Cli, *words: str, rows: int = 30, cols: int = 100) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.shown = b""
        self.everything = b""
        self.child = subprocess.Popen(
            [sys.executable, "-I", "-m", "hermes_exec", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cli.cwd,
            env=cli.env | {"TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no thread runs here
        )

    def see(self, pattern: str) -> re.Match[bytes]:
        """Wait until it shows that."""
        give_up = time.monotonic() + 30
        while (found := re.search(pattern.encode(), self.shown)) is None:
            left = give_up - time.monotonic()
            assert left > 0, self.shown
            if select.select([self.ours], [], [], left)[0]:
                self.shown += self._read()
        self.shown = self.shown[found.end() :]
        return found

    def _read(self) -> bytes:
        data = os.read(self.ours, 65536)
        self.everything += data
        return data

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.ours, keys.encode())

    def end(self) -> int:
        """Wait for its end and give the exit code."""
        give_up = time.monotonic() + 30
        while self.child.poll() is None:
            assert time.monotonic() < give_up, self.shown
            if select.select([self.ours], [], [], 0.05)[0]:
                self.shown += self._read()
        while select.select([self.ours], [], [], 0)[0]:
            self.shown += self._read()
        return self.child.returncode

    def close(self) -> None:
        """Take the terminal away."""
        self.child.kill()
        self.child.wait()
        os.close(self.theirs)
        os.close(self.ours)
