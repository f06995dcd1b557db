"""Polling takes a shell's status once the shell has closed the file that reports it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from hermes_exec.guest.core.loop import Loop
from hermes_exec.guest.shell.polling_watcher import PollingWatcher

if TYPE_CHECKING:
    from pathlib import Path

_SHELL = "read line; exec >&2; echo closed; read line"  # no redirect of echo: it would move descriptor 1


def test_a_status_counts_once_the_shell_has_its_own_output_back(tmp_path: Path) -> None:
    """Until then the shell's standard output is the status file, and nobody can see where the output went before."""
    (tmp_path / "s").mkdir()
    watches = PollingWatcher(Loop())
    seen: list[bytes] = []
    numbers = watches.add(str(tmp_path), seen.append)
    pipe = subprocess.PIPE
    with (tmp_path / "s" / "0").open("wb") as status:
        shell = subprocess.Popen(["sh", "-c", _SHELL], stdin=pipe, stdout=status, stderr=pipe)
    with shell:
        assert shell.stdin
        assert shell.stderr
        watches.expect(numbers, shell.pid)
        watches.catch_up()
        assert not seen
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        assert shell.stderr.readline() == b"closed\n"
        watches.catch_up()
        assert seen == [b"0"]
