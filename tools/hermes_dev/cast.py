"""``./dev cast``: record docs/session.cast, a session that starts in a checkout and ends with a skill.

Every command runs, on a terminal of its own; a script replaces the model, and each of its replies says so.
Values that differ between two runs (durations, times, folders, digests) are replaced, and so is the time of typing
and of output: the same code writes the same file. The form is version 2 of asciinema's.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_dev.place import ROOT, DevError, venv

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CAST = ROOT / "docs" / "session.cast"
COLUMNS, ROWS = 92, 26
_KEY_S, _LINE_S, _PAUSE_S = 0.04, 0.06, 1.2
_LIMIT_S = 600
_HOME = "/home/you"
_GUIDE = """\
---
name: count-lines
description: Counts how often each line of a text file occurs, the most frequent first.
---

# Count lines

1. Run `sort FILE | uniq -c | sort -rn` in the folder of the file.
2. Report the first five lines, and the number of different ones by `sort -u FILE | wc -l`.
"""
_REPLACED = (
    (re.compile(r"\b\d+\.\d s\b"), "0.1 s"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d\b"), r"2026-01-31\g<1>18:00:00"),
    (re.compile(r"\b[0-9a-f]{32,64}"), "0123456789abcdef0123456789abcdef"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the session."""

    typed: str
    """What the screen shows."""
    run: str = ""
    """The command that runs instead, if it is another one."""


STEPS = (
    Step("cd hermes_exec && ./dev setup", "cd {root} && ./dev setup"),
    Step(". .venv/bin/activate && cd ~/work", "cd ~/work"),
    Step('hermes-exec run \'echo "hello from $(uname -s)"; exit 3\'; echo "exit code $?"'),
    Step("printf 'red\\nblue\\nred\\n' > colors.txt"),
    Step(
        "hermes-cli --approve allow --replay ~/script.jsonl "
        '-q "Which colors are in colors.txt? Keep the steps as a skill."'
    ),
    Step("hermes-exec skill release count-lines"),
    Step("hermes-exec skill list"),
)


def write_cast() -> int:
    """Write docs/session.cast."""
    with tempfile.TemporaryDirectory(prefix="hermes-exec-cast-") as folder:
        CAST.write_text(record(Path(folder), STEPS), encoding="utf-8")
    return 0


def record(home: Path, steps: Iterable[Step]) -> str:
    """Run the steps in the home folder ``home``, and return the recording.

    Raises:
        DevError: a command was killed or took too long.
    """
    (home / "work").mkdir()
    (home / "script.jsonl").write_text(_write_script(), encoding="utf-8")
    environment = {
        "PATH": f"{venv() / 'bin'}:/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
    }  # fmt: skip
    title = "hermes_exec: from a checkout to a skill; the model is a script"
    lines = [json.dumps({"version": 2, "width": COLUMNS, "height": ROWS, "title": title})]
    clock = 0.0

    def show(text: str, after_s: float) -> None:
        nonlocal clock
        clock += after_s
        lines.append(json.dumps([round(clock, 2), "o", text], ensure_ascii=False))

    for step in steps:
        show("$ ", _PAUSE_S)
        for key in step.typed:
            show(key, _KEY_S)
        show("\r\n", _KEY_S)
        command = (step.run or step.typed).replace("{root}", str(ROOT))
        output = _replace(run_on_terminal(["sh", "-c", command], environment, home / "work"), home)
        for line in output.splitlines(keepends=True):
            show(line, _LINE_S)
    show("$ ", _PAUSE_S)
    return "".join(f"{line}\n" for line in lines)


def run_on_terminal(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path, limit_s: float = _LIMIT_S
) -> str:
    """Run a command on a terminal and return what it writes there.

    Raises:
        DevError: it was killed or took too long.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    with subprocess.Popen(
        argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=folder, start_new_session=True
    ) as child:
        os.close(theirs)
        output = b""
        end = time.monotonic() + limit_s
        try:
            while select.select([ours], [], [], max(end - time.monotonic(), 0))[0]:
                output += os.read(ours, 1 << 16)
            os.killpg(child.pid, signal.SIGKILL)
            raise DevError(f"{' '.join(argv)} does not end: a process has its terminal after {limit_s:g} s")
        except OSError:  # EIO: the last process has closed the terminal
            code = child.wait()
        finally:
            os.close(ours)
    if code < 0:
        raise DevError(f"{' '.join(argv)} was ended by the signal {-code}")
    return output.decode("utf-8", "replace")


def _replace(text: str, home: Path) -> str:
    text = text.replace(str(home), _HOME).replace(str(ROOT), f"{_HOME}/hermes_exec")
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return text


def _write_script() -> str:
    added = "".join(f"+{line}\n" for line in _GUIDE.splitlines())
    patch = f"*** Begin Patch\n*** Add File: SKILL.md\n{added}*** End Patch"
    replies = (
        ("I will look at the file first.", "terminal", {"command": "sort colors.txt | uniq -c | sort -rn"}),
        ("I keep these steps.", "skill_manage", {"action": "create", "name": "count-lines", "patch": patch}),
    )
    lines: list[dict[str, object]] = [
        {"content": text, "tool_calls": [{"name": name, "arguments": arguments}]} for text, name, arguments in replies
    ]
    lines.append({"content": "`red` occurs twice and `blue` once. The steps are the skill **count-lines**."})
    return "".join(f"{json.dumps(line)}\n" for line in lines)
