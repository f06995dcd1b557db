"""Call one function of a skill with several requests, each in a process of its own; report each outcome as JSON.

Each request may have a text of its own, which replaces that of the skill's script.
"""

from __future__ import annotations

import contextlib
import json
import marshal
import os
import shutil
import signal
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any

DATA = "/app/data"
_LONGEST_S = 2.0
"""The most seconds of one call."""
_ALL_S = 20.0
"""The seconds after which no further call begins."""


def run(folder: str, entry: str, function: str, packages: str) -> None:
    """Serve the requests on standard input, a list; what the skill prints goes to the log."""
    own = os.dup(1)  # closed in the skill's processes
    os.dup2(2, 1)
    texts, requests, kept = marshal.load(sys.stdin.buffer)  # noqa: S302  the judge writes it
    sys.path[:0] = [f"{folder}/{entry}".rpartition("/")[0], *([packages] if packages else [])]
    sys.argv = [f"{folder}/{entry}"]
    signal.signal(signal.SIGALRM, _interrupt)
    began = time.monotonic()
    for number, request in enumerate(requests):
        if time.monotonic() - began > _ALL_S:
            break
        os.write(2, b"\nHXCALL %d\n" % number)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(own)
            os.close(reading)
            serve(f"{folder}/{entry}", texts[number] if texts else "", function, request, writing)
        os.close(writing)
        outcome = read_outcome(reading, pid)
        if kept:
            outcome["left"] = read_files(kept)
        os.write(own, json.dumps({"request": number, **outcome}).encode() + b"\n")
        clear()


def serve(script: str, text: str, function: str, request: Any, writing: int) -> None:
    """Call the function of a script, or of a ``text`` instead, in the child process; write its outcome."""
    try:
        os.setpgid(0, 0)
        names: dict[str, Any] = {}
        exec(CALLER, names)  # noqa: S102  the program that calls a skill in use
        try:
            outcome = names["to_json"](
                {"result": names["call_function"](getattr(load(names, script, text), function), request)}
            )
        except BaseException as error:  # noqa: BLE001  SystemExit is reported, too
            outcome = names["to_json"]({"error": names["describe"](error)})
        with os.fdopen(writing, "w") as file:
            file.write(outcome)
    finally:
        os._exit(0)


def load(names: dict[str, Any], script: str, text: str) -> ModuleType:
    """Import a script under its own name; another ``text`` has its path, so the script cannot read the change."""
    if not text:
        loaded: ModuleType = names["load"](script)
        return loaded
    name = script.rpartition("/")[2].removesuffix(".py")
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, script)
    if spec is None:
        raise ImportError(script)
    module = sys.modules[name] = module_from_spec(spec)
    exec(compile(text, script, "exec"), module.__dict__)  # noqa: S102  in the skill's own sandbox
    return module


def read_files(most: int) -> dict[str, str]:
    """Return the first texts of the folder for data, up to ``most`` bytes of them."""
    found: dict[str, str] = {}
    for folder, _, names in os.walk(DATA):
        for name in sorted(names):
            path = f"{folder}/{name}"
            with contextlib.suppress(OSError, ValueError):
                file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    size = os.fstat(file).st_size
                    if stat.S_ISREG(os.fstat(file).st_mode) and size <= most:
                        found[path.removeprefix(f"{DATA}/")] = os.read(file, size).decode()
                        most -= size
                finally:
                    os.close(file)
    return found


def read_outcome(reading: int, pid: int) -> dict[str, Any]:
    """Return what a child process tells; it is killed with its process group if it takes too long."""
    data = b""
    late = False
    signal.setitimer(signal.ITIMER_REAL, _LONGEST_S)
    try:
        while piece := os.read(reading, 65536):
            data += piece
    except TimeoutError:
        late = True
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.close(reading)
    status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    try:
        outcome: dict[str, Any] = json.loads(data)
    except ValueError:
        killed = -os.waitstatus_to_exitcode(status)
        kind = "timeout" if late else f"signal {killed}" if killed > 0 else "no result"
        outcome = {"error": {"type": kind, "message": ""}}
    return outcome


def clear() -> None:
    """Empty the folder for data before the next request."""
    for entry in os.scandir(DATA):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            os.remove(entry.path)  # noqa: PTH107  pathlib is not imported here


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError


CALLER = sys.argv[5]
run(*sys.argv[1:5])
