"""Interactive shells on a terminal of their own, with the completion of hermes-exec loaded."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tests.rigs.bounded import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

STARTS = {
    "bash": ["bash", "--noprofile", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
"""How each shell starts without the files of a person."""


class InteractiveShell:
    """A shell that a person types into. What it prints is read at once and kept in ``shown``."""

    def __init__(self, name: str, cwd: Path, env: Mapping[str, str], script: Path) -> None:
        self.cwd = cwd
        self.shown = b""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._child = subprocess.Popen(
            STARTS[name],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env={**env, "PATH": programs, "TERM": "xterm", "ZDOTDIR": str(cwd)},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no thread runs yet
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if name == "zsh":
            self.type("autoload -Uz compinit; compinit -u -D\r")
        self.type(f". {script}; : > ready\r")
        wait_until((cwd / "ready").exists, within_s=60)

    def _read(self) -> None:
        while select.select([self._ours], [], [])[0]:
            try:
                data = os.read(self._ours, 65536)
            except OSError:
                return
            self.shown += data
            if b"\x1b[6n" in data:  # the shell asks for the position of the cursor
                os.write(self._ours, b"\x1b[1;1R")
            if b"\x1b[c" in data or b"\x1b[0c" in data:  # or for the kind of terminal
                os.write(self._ours, b"\x1b[?62c")

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def run(self, keys: str) -> None:
        """Type a line, in which \\t is TAB, and wait until its commands have ended."""
        done = self.cwd / "done"
        done.unlink(missing_ok=True)
        self.type(f"{keys}; : > done\r")
        wait_until(done.exists, within_s=100)

    def close(self) -> None:
        """End the shell and what it started."""
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._reader.join(10)
        os.close(self._ours)
