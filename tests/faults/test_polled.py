"""Polling takes a shell's status once the shell has closed the file that reports it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from hermes_exec.guest.loop import Loop
from hermes_exec.guest.polled import Polled

if TYPE_CHECKING:
    from pathlib import Path

_SHELL = "exec 3>&1 >s/0; echo open >&3; read line; exec >&3; echo closed; read line"


def test_a_status_counts_once_the_shell_has_its_own_output_back(tmp_path: Path) -> None:
    """Until then the shell's standard output is the status file, and nobody can see where the output went before."""
    (tmp_path / "s").mkdir()
    watches = Polled(Loop())
    seen: list[bytes] = []
    numbers = watches.add(str(tmp_path), seen.append)
    pipe = subprocess.PIPE
    with subprocess.Popen(["sh", "-c", _SHELL], stdin=pipe, stdout=pipe, cwd=tmp_path) as shell:
        assert shell.stdin
        assert shell.stdout
        watches.expect(numbers, shell.pid)
        assert shell.stdout.readline() == b"open\n"
        watches.catch_up()
        assert not seen
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        assert shell.stdout.readline() == b"closed\n"
        watches.catch_up()
        assert seen == [b"0"]
