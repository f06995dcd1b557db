"""The first process of a cell: starts what it is told to in there, and collects whatever ends.

It speaks JSON packets over the socket that it was given. What an exec consists of comes in a file of its own, so that
no size of arguments or variables is too large for a packet. Debian's own Python runs it, so it keeps to what that has.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
import termios
from typing import Any

FDS = 8
"""As many descriptors as one packet carries at most."""


class Init:
    """Everything that runs in a cell, by the numbers that the side outside gave."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._numbers: dict[int, int] = {}  # pid -> the number of the exec
        self._read, self._wake = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._wake, False)

    def run(self) -> None:
        """Until the other side hangs up, or kills us, and all of the cell with us."""
        signal.signal(signal.SIGCHLD, woken)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._read, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._read, 4096)
            self._collect()
            if self._control.fileno() in ready and not self._serve():
                return

    def _serve(self) -> bool:
        fds: array.array[int] = array.array("i")
        data, ancillary, _, _ = self._control.recvmsg(
            65536, socket.CMSG_SPACE(FDS * fds.itemsize), socket.MSG_CMSG_CLOEXEC
        )
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        if not data:
            return False
        request = json.loads(data)
        answer: dict[str, Any] = {"id": request["id"]}
        passed: list[int] = []
        try:
            passed = getattr(self, "do_" + request["do"])(request, answer, list(fds))
        except OSError as error:
            answer["error"] = [error.errno, error.filename or ""]
        finally:
            for fd in fds:
                os.close(fd)
        self._tell(answer, passed)
        for fd in passed:
            os.close(fd)
        return True

    def do_exec(self, request: dict[str, Any], answer: dict[str, Any], fds: list[int]) -> list[int]:
        """Start a program with the streams that were handed over."""
        with os.fdopen(os.dup(fds[0]), "rb") as file:
            file.seek(0)
            parts = [part.encode("utf-8", "surrogateescape") for part in json.load(file)]
        count = request["argc"]
        argv = parts[:count]
        env = {name: value for name, _, value in (part.partition(b"=") for part in parts[count:])}
        complaint, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            start(argv, env, request["cwd"], fds[1:4], request["pty"], told)
        os.close(told)
        said = os.read(complaint, 4096)
        os.close(complaint)
        if said:
            os.waitpid(pid, 0)
            code, name = json.loads(said)
            raise OSError(code, os.strerror(code), name)
        self._numbers[pid] = request["id"]
        answer["pid"] = pid
        return []

    def do_kill(self, request: dict[str, Any], answer: dict[str, Any], fds: list[int]) -> list[int]:
        """Send a signal to a program that was started here, if it is still there."""
        for pid, number in self._numbers.items():
            if number == request["exec"]:
                os.kill(pid, request["signal"])
        return []

    def do_connect(self, request: dict[str, Any], answer: dict[str, Any], fds: list[int]) -> list[int]:
        """Hand out a connection to a port of the cell."""
        made = socket.create_connection(("127.0.0.1", request["port"]), 5)
        made.settimeout(None)
        return [made.detach()]

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            number = self._numbers.pop(pid, None)
            if number is not None:  # any other was an orphan
                self._tell({"id": number, "code": os.waitstatus_to_exitcode(status)}, [])

    def _tell(self, answer: dict[str, Any], fds: list[int]) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self._control.sendmsg([json.dumps(answer).encode()], rights)


def woken(number: int, frame: object) -> None:
    """The poll has ended, which is all that is wanted."""


def start(argv: list[bytes], env: dict[bytes, bytes], cwd: str, streams: list[int], pty: bool, told: int) -> None:
    """Become the program; what fails is told instead."""
    name = cwd
    try:
        for number in range(1, signal.NSIG):
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.chdir(cwd)
        told = fcntl.fcntl(told, fcntl.F_DUPFD_CLOEXEC, 10)
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        if pty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        name = os.fsdecode(argv[0])
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(told, json.dumps([error.errno or errno.EIO, name]).encode())
    finally:
        os._exit(127)


if __name__ == "__main__":
    os.set_inheritable(int(sys.argv[1]), False)
    Init(socket.socket(fileno=int(sys.argv[1]))).run()
