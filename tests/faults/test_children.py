"""What this process has started and left is reaped, and nothing is complained of at its end."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import asyncio, gc, os
from pathlib import Path
from hermes_exec_backends.local import LocalBackend

class Nobody:
    def on_data(self, data): pass
    def on_stderr(self, data): pass
    def on_close(self, exit): pass

def take_your_time():
    asyncio.get_running_loop().slow_callback_duration = 60  # or a slow machine is complained of

async def kill_and_close():
    take_your_time()
    backend = LocalBackend()
    channel = await backend.spawn(["sleep", "100"], Nobody())
    channel.kill()
    await backend.close()

async def leave():
    take_your_time()
    channel = await LocalBackend().spawn(["sleep", "1"], Nobody())
    channel.abandon()

def children():
    return Path("/proc/self/task/%d/children" % os.getpid()).read_text().split()

{work}
gc.collect()
"""


def complaints(work: str) -> str:
    """What a process says that does this."""
    argv = [sys.executable, "-X", "dev", "-W", "always", "-c", SCRIPT.replace("{work}", work)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=50)
    return done.stdout + done.stderr


def test_what_was_killed_is_gone_when_the_backend_is_closed() -> None:
    assert complaints("asyncio.run(kill_and_close()); print(children())") == "[]\n"


def test_what_is_left_to_go_on_is_not_complained_of() -> None:
    assert complaints("asyncio.run(leave())") == ""


def test_what_ended_after_its_loop_is_reaped_by_the_next_close() -> None:
    work = """
before = len(os.listdir("/proc/self/fd"))
asyncio.run(leave())
os.waitid(os.P_PID, int(children()[0]), os.WEXITED | os.WNOWAIT)
asyncio.run(LocalBackend().close())
print(children(), len(os.listdir("/proc/self/fd")) - before)
"""
    assert complaints(work) == "[] 0\n"
