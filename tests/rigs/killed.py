"""A process that started a job in a place that it created, and was killed; and another one that looks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from hermes_exec.terminal.guest_records import read_records

if TYPE_CHECKING:
    from pathlib import Path

STARTS = """
import asyncio, sys, hermes_exec

async def main():
    terminal = await hermes_exec.open(sys.argv[1], audit=False)
    job = await terminal.start("read word; echo got $word; exit 7", stdin=True)
    print(job.id, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""
LIMIT_S = 170


class Left:
    """The job, and the records of its person, who is in ``folder`` and has ``config`` as configuration."""

    def __init__(self, folder: Path, config: Path, target: str) -> None:
        self._env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "XDG_STATE_HOME": str(folder / "state"),
            "HERMES_EXEC_CONFIG": str(config),
        }
        with subprocess.Popen(
            [sys.executable, "-c", STARTS, target], env=self._env, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            self.job = process.stdout.readline().strip()
            process.kill()
        assert self.job, "no job was started"

    def cli(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """``hermes-exec`` in a process of its own."""
        argv = [sys.executable, "-m", "hermes_exec", *words]
        return subprocess.run(argv, check=False, capture_output=True, env=self._env, input=stdin, timeout=LIMIT_S)

    def ends_as_it_should(self) -> None:
        """Its input, its log and its exit status are all those of the one job, seen from other processes."""
        attached = self.cli("attach", self.job, stdin=b"on\n")
        assert (attached.stdout, attached.returncode) == (b"got on\n", 7), attached.stderr
        logs = self.cli("logs", self.job)
        assert (logs.stdout, logs.returncode) == (b"got on\n", 0), logs.stderr

    def forget(self) -> None:
        """Prune it, so that its guest and its place may end."""
        pruned = self.cli("jobs", "--prune")
        assert pruned.returncode == 0, pruned.stderr
        assert self.records() == []

    def records(self) -> list[str]:
        """The guests that are recorded."""
        return [record.id for record in read_records(self._env)]
