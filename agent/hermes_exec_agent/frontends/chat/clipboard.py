"""Copy text to the user's clipboard.

A program of the desktop does it where there is one; elsewhere, as over SSH, the terminal does (the control sequence
OSC 52, which most terminals know and some ask about or ignore).
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys

from hermes_exec.errors import UsageError
from hermes_exec_agent.frontends.chat.safe_text import escape_text

_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
)
"""Programs that read standard input, each with the variable that it needs."""
_LIMIT_S = 5.0
_MOST = 74_000
"""Bytes that terminals take; xterm ignores longer sequences."""


def copy_text(text: str) -> str:
    """Copy ``text``, with control characters escaped; return the name of what took it.

    Raises:
        UsageError: the text is too long for a terminal.
    """
    data = escape_text(text).encode()
    for argv in _find_programs():
        try:
            done = subprocess.run(
                argv,
                input=data,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_LIMIT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return argv[0]
    if len(data) > _MOST:
        raise UsageError(f"{len(data):,} bytes are too many for a terminal's clipboard", remedy="/export")
    sys.stdout.write(f"\x1b]52;c;{base64.b64encode(data).decode()}\a")
    sys.stdout.flush()
    return "the terminal"


def _find_programs() -> list[tuple[str, ...]]:
    known = [argv for variable, argv in _PROGRAMS if os.environ.get(variable)]
    if sys.platform == "darwin":
        known.append(("pbcopy",))
    return [argv for argv in known if shutil.which(argv[0])]
