"""The registry of attempts, and the code that runs and reports them."""

import json
import os
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional

    Config = Dict[str, Any]
    Attempt = Callable[[Config], Optional[str]]

PATIENCE_S = 60
"""Seconds that one attempt may take, even on a busy machine; a longer one counts as hung and proves nothing."""
ATTEMPTS: "Dict[str, Attempt]" = {}


class Absent(Exception):
    """The subject of an attempt does not exist in the sandbox."""


def outside(config: "Config", key: str) -> str:
    """Return a decoy's value. The configuration has it reversed, as a sandbox can read its own argv."""
    return str(config["outside"][key])[::-1]


def attempt(name: str) -> "Callable[[Attempt], Attempt]":
    """Register the function as the attempt ``name``."""

    def register(function: "Attempt") -> "Attempt":
        ATTEMPTS[name] = function
        return function

    return register


def run_attempt(name: str, config: "Config") -> "dict[str, Any]":
    """Run one attempt in a process of its own, and return its outcome."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _make(name, config, writing)
    os.close(writing)
    said = _read(reading, pid)
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    if said:
        return {"name": name, **json.loads(said.decode())}
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return {"name": name, "outcome": "hung"} if number == signal.SIGKILL else _signal(name, number)
    return {"name": name, "outcome": "error", "detail": "it ended with {} and said nothing".format(status >> 8)}


def _signal(name: str, number: int) -> "dict[str, Any]":
    return {"name": name, "outcome": "signal", "signal": number}


def _make(name: str, config: "Config", writing: int) -> None:
    """Run an attempt in the child process and report its outcome; never return."""
    try:
        got = ATTEMPTS[name](config)
        told: "dict[str, Any]" = {"outcome": "worked", "detail": str(got or "")[:200]}
    except Absent as error:
        told = {"outcome": "absent", "detail": str(error)[:200]}
    except OSError as error:
        # A timeout of a socket has no errno, and proves nothing.
        told = {"outcome": "errno", "errno": error.errno} if error.errno else {"outcome": "hung"}
    except MemoryError:
        told = {"outcome": "errno", "errno": 12}
    except BaseException as error:  # noqa: BLE001  a fault of an attempt is reported, and makes the proof invalid
        told = {"outcome": "error", "detail": "{}: {}".format(type(error).__name__, error)[:200]}
    try:
        os.write(writing, json.dumps(told).encode())
    finally:
        os._exit(0)


def _read(fd: int, pid: int) -> bytes:
    said = b""
    while True:
        if not select.select([fd], [], [], PATIENCE_S)[0]:
            os.kill(pid, signal.SIGKILL)
            return b""
        chunk = os.read(fd, 65536)
        if not chunk:
            return said
        said += chunk


def main(config: "Config") -> None:
    """Run the requested attempts, and report each in a line, between a first and a last line with the nonce."""
    names = config["attempts"]
    _say({"started": config["nonce"], "python": "%d.%d.%d" % sys.version_info[:3], "machine": os.uname()[4]})
    for name in names:
        _say({"begins": name})
        _say(
            run_attempt(name, config)
            if name in ATTEMPTS
            else {"name": name, "outcome": "error", "detail": "no such attempt"}
        )
    _say({"ended": config["nonce"], "count": len(names)})


def _say(line: "dict[str, Any]") -> None:
    # An attempt may have filled or closed any descriptor but this one, so nothing is buffered.
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]
