"""Controls: operations that must work. If one fails, the failures of forbidden operations prove nothing."""

import os
import socket
import subprocess
import threading

from .kit import attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .kit import Config


@attempt("control-write")
def write(config: "Config") -> str:
    """Write, read back and remove a file in each writable folder."""
    for folder in config["write"] + config["scratch"]:
        path = folder + "/hermes-canary-control"
        with open(path, "w") as file:
            file.write("hermes")
        with open(path) as file:
            if file.read() != "hermes":
                raise RuntimeError("what was written in {} is not there".format(folder))
        os.unlink(path)
    return str(len(config["write"] + config["scratch"]))


@attempt("control-read")
def read(_: "Config") -> str:
    """Read a file of the system."""
    with open(os.__file__, "rb") as file:
        return str(len(file.read()))


@attempt("control-run")
def run(_: "Config") -> str:
    """Start a program of the system."""
    return subprocess.check_output(["/bin/echo", "ran"], stdin=subprocess.DEVNULL).decode().strip()


@attempt("control-socket")
def unix_socket(_: "Config") -> str:
    """Send a byte over a pair of unix sockets."""
    one, other = socket.socketpair()
    one.sendall(b"x")
    return other.recv(1).decode()


@attempt("control-thread")
def thread(_: "Config") -> str:
    """Start a thread."""
    done: "list[int]" = []
    started = threading.Thread(target=lambda: done.append(1))
    started.start()
    started.join()
    return str(done[0])


@attempt("control-signal")
def signal_child(_: "Config") -> str:
    """Start a child, end it with a signal, and wait for it."""
    pid = os.fork()
    if pid == 0:
        while True:
            select_forever()
    os.kill(pid, 15)
    return str(os.waitpid(pid, 0)[1])


def select_forever() -> None:
    """Wait for a signal."""
    import signal

    signal.pause()
