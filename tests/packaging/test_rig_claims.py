"""Two runs of the tests on one machine share nothing, and what a killed run left is removed by the next."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.rigs import claims, processes

ROOT = Path(__file__).parents[2]
HOLDS = """
import subprocess, sys
from tests.rigs import claims
user, _ = claims.take_user() if sys.argv[1] == "root" else (0, None)
folder = claims.make_folder("hx-claimed")
subprocess.Popen(["sleep", "1000"], env={"RIG": str(folder)}, start_new_session=True)
become = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--"] if user else []
child = subprocess.Popen([*become, "sleep", "1000"], env={"RIG": str(folder)}, start_new_session=True)
print(claims.free_port(), user, folder, child.pid, flush=True)
sys.stdin.read()
"""


class Run:
    """Another run, which holds a port, a user and a folder, in which programs run."""

    def __init__(self) -> None:
        argv = [sys.executable, "-c", HOLDS, "root" if os.geteuid() == 0 else "user"]
        self.process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        port, user, folder, child = self.process.stdout.readline().split()
        self.port, self.user, self.folder, self.child = int(port), int(user), Path(folder), int(child)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def test_two_runs_never_hold_the_same() -> None:
    first, second = Run(), Run()
    try:
        assert first.port != second.port
        assert first.folder != second.folder
        assert first.user != second.user or os.geteuid() != 0
        assert claims.take("port", first.port) is None
        assert processes.alive(first.child)
        assert first.folder.is_dir()  # the second looked for what the dead have left, and this one lives
    finally:
        for run in (first, second):
            run.kill()
            claims.remove_folder(run.folder)


def test_the_next_rig_removes_what_a_killed_run_left() -> None:
    dead = Run()
    dead.kill()
    assert processes.alive(dead.child)
    claims.remove_folder(claims.make_folder("hx-claimed"))
    assert not processes.alive(dead.child)
    assert not dead.folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts programs as another user")
def test_a_user_is_taken_over_without_processes_and_files() -> None:
    dead = Run()
    file = Path(f"/tmp/hx-{os.urandom(8).hex()}")
    file.touch()
    os.chown(file, dead.user, dead.user)
    dead.kill()
    claim = claims.take("user", dead.user)
    assert claim is not None
    claims.remove_traces(dead.user)
    assert not processes.alive(dead.child)
    assert not file.exists()
    claim.release()
    claims.remove_folder(claims.make_folder("hx-claimed"))


def test_a_claim_ends_with_its_process_and_is_never_two() -> None:
    run = Run()
    give_up = time.monotonic() + 60
    run.kill()
    while (claim := claims.take("port", run.port)) is None:
        assert time.monotonic() < give_up
    assert claims.take("port", run.port) is None
    claim.release()
    assert not claim.path.exists()
    claims.remove_folder(claims.make_folder("hx-claimed"))
