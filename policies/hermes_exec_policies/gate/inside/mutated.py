"""Run the tests of a skill over several mutants of it, each in a process of its own; report each exit code.

One sandbox and one import of pytest serve all of them. The processes run one after the other, and the skill's folder
for data is emptied between them.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import shutil
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

DATA = "/app/data"
_PATIENCE = 10.0
"""The time limit of a process, as a multiple of the first one's duration; the limit is at least 1 s."""


def run(module: str, folder: str, testing: str, packages: str, numbers: str, seconds: str) -> None:
    """Test the mutants in FOLDER/NUMBER/MODULE, one after the other, until ``seconds`` of CPU time are used up."""
    own = os.dup(1)  # closed in the skill's processes
    os.dup2(2, 1)
    sys.path[:0] = [*([packages] if packages else []), testing]
    import pytest
    from _pytest.config import default_plugins

    for name in default_plugins:  # otherwise each process imports the plugins, and copies what a collection touches
        importlib.import_module(f"_pytest.{name}")
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGALRM, _interrupt)
    longest = 0.0
    for number in numbers.split():
        if sum(os.times()[:4]) > float(seconds):
            break
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.close(own)
            test(pytest.main, f"{folder}/{number}/{module}")
        code = wait_for_end(pid, longest)
        longest = longest or max(1.0, (time.monotonic() - began) * _PATIENCE)
        os.write(own, json.dumps({"mutant": int(number), "code": code}).encode() + b"\n")
        clear()


def test(main: object, folder: str) -> None:
    """Run the tests in a folder, in the child process; never return."""
    code = 3
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        options = ["-q", "-c", os.devnull, "--noconftest", "--rootdir", folder, "--confcutdir", folder]
        code = int(main([*options, "-x", "-p", "no:cacheprovider", f"{folder}/tests"]))  # type: ignore[operator]  # from a module
    finally:
        os._exit(code)


def wait_for_end(pid: int, longest: float) -> int:
    """Return the exit code of a process; kill it with its process group if it takes longer than ``longest`` seconds."""
    signal.setitimer(signal.ITIMER_REAL, longest)
    try:
        status = os.waitpid(pid, 0)[1]
    except TimeoutError:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def clear() -> None:
    """Empty the folder for data before the next mutant."""
    for entry in os.scandir(DATA):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.remove(entry.path)  # noqa: PTH107  pathlib is not imported here


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError


run(*sys.argv[1:7])
