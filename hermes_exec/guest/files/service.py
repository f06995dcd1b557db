"""The guest's file service: passes each operation to a worker, and the worker's streams to the link.

A worker is a process that does one file operation at a time, so that a slow disk blocks only that operation. The guest
forks it once; the arguments and the descriptors of the streams arrive over a socket, as for a runner. SIGTERM ends an
operation after cleanup.
"""

import _signal
import _socket
import errno
import os
import struct
from _collections import deque

from ..core import wire
from ..core.fdutil import enlarge_pipe
from ..core.process_tree import TreeKill
from ..process import runner
from ..process.command import resolve_folder
from ..process.runner import keep_channel, receive_exactly
from . import safe_paths, staging, transfers
from .atomic_writer import BrokeOff
from .operations import FileTask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque

    from ..core.server import Client, GuestServer, Request


_SPARE = 2
"""Idle workers that are kept."""
_MOST = 32
"""Most workers of one client; further operations wait in a queue."""
_GRACE_S = 2.0
_WITH_INPUT = ("write", "put", "put_tree")

LENGTH = struct.Struct(">I")
_CLOEXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0x40000000)


class Worker:
    """The guest's handle of one worker process."""

    def __init__(self, pool: "WorkerPool") -> None:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                serve_worker(theirs.fileno())
            finally:
                os._exit(1)
        theirs.close()
        self.doomed = False
        self._pool = pool
        self._loop = pool.server.loop
        self._channel = ours
        self._answer = b""
        self._operation: "FileOperation | None" = None
        self._loop.on_read(ours.fileno(), self._readable)
        self._loop.on_exit(self.pid, _ignore_exit)

    def start(self, operation: "FileOperation", arguments: "dict[str, Any]", fds: "list[int]") -> None:
        """Start an operation; its ``answered`` is called once."""
        self._operation = operation
        try:
            runner.send_spec(self._channel, arguments, fds)
        except OSError:
            pass  # it has just been killed; the end of the channel reports that

    def _readable(self) -> None:
        try:
            data = self._channel.recv(65536)
        except OSError:  # killed before it had read all of its input
            data = b""
        self._answer += data
        size = LENGTH.size
        if not data:
            self.doomed = True
            self._on_answer({"error": "os", "errno": errno.EIO, "message": "its process was killed", "path": b""})
        elif len(self._answer) >= size + LENGTH.unpack_from(self._answer.ljust(size, b"\xff"))[0]:
            answer = wire.unpack(self._answer[size:])
            self._answer = b""
            self._on_answer(answer)

    def _on_answer(self, answer: "dict[str, Any]") -> None:
        operation = self._operation
        self._operation = None
        self._pool.give_back(self)
        if operation is not None:
            operation.set_answer(answer)

    def close(self) -> None:
        """Close the channel; an idle worker then exits."""
        self._loop.ignore_read(self._channel.fileno())
        self._channel.close()


def _ignore_exit(status: int) -> None:
    """Ignore the exit status of a reaped worker; its closed channel has reported the end."""
    del status


class WorkerPool:
    """The workers of one client, and the operations that wait for one."""

    def __init__(self, server: "GuestServer") -> None:
        self.server = server
        self._idle: "list[Worker]" = []
        self._busy = 0
        self._waiting: "Deque[FileOperation]" = deque()
        self._closed = False

    def run(self, operation: "FileOperation") -> None:
        """Start an operation now, or as soon as a worker is free."""
        if self._busy >= _MOST:
            self._waiting.append(operation)
            return
        self._busy += 1
        operation.begin(self._idle.pop() if self._idle else Worker(self))

    def forget(self, operation: "FileOperation") -> None:
        """Drop an operation that was cancelled before it started."""
        self._waiting.remove(operation)

    def give_back(self, worker: Worker) -> None:
        """Take back a worker that is idle again or has ended."""
        if worker in self._idle:
            self._idle.remove(worker)
            self._busy += 1
        self._busy -= 1
        if self._closed or worker.doomed or len(self._idle) >= _SPARE:
            worker.close()
        else:
            self._idle.append(worker)
        if self._waiting:
            self.run(self._waiting.popleft())

    def close(self) -> None:
        """Close the pool; no more operations follow."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class FileOperation:
    """One request; its answer waits for the last byte of its output."""

    def __init__(self, pool: WorkerPool, request: "Request", arguments: "dict[str, Any]") -> None:
        self._pool = pool
        self._request = request
        self._arguments = arguments
        self._worker: "Worker | None" = None
        self._answer: "dict[str, Any] | None" = None
        self._stopping = False
        self._output = -1
        self._outlet = request.open_output(wire.STDOUT, bulk=True)
        if arguments["do"] in _WITH_INPUT or arguments.get("near") or arguments.get("beside"):
            request.expect_input()
        request.cancel = self._cancel
        pool.run(self)

    def begin(self, worker: Worker) -> None:
        """Pass the streams and the operation to a worker."""
        self._worker = worker
        self._output, writing = os.pipe()
        enlarge_pipe(writing)
        os.set_blocking(self._output, False)
        self._outlet.read_from(self._output, self._output_ended)
        reading = self._input()
        worker.start(self, self._arguments, [reading, writing])
        os.close(reading)
        os.close(writing)

    def _input(self) -> int:
        if self._request.input is None:
            return os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        reading, ours = os.pipe()
        enlarge_pipe(ours)
        os.set_blocking(ours, False)
        self._request.input.write_to(ours)
        return reading

    def _output_ended(self) -> None:
        if self._output >= 0:
            self._outlet.release()
            os.close(self._output)
            self._output = -1
            self._finish()

    def set_answer(self, answer: "dict[str, Any]") -> None:
        """Set the answer after the worker has finished or ended."""
        if self._answer is None:
            self._answer = {"cancelled": True} if self._stopping else answer
            if self._request.input is not None:
                self._request.input.close()
            self._finish()

    def _finish(self) -> None:
        if self._answer is not None and self._output < 0:
            self._request.finish(self._answer)

    def _cancel(self) -> None:
        worker = self._worker
        if worker is None:
            self._pool.forget(self)
            self._on_stop([])
        elif self._answer is not None:
            self._output_ended()
        elif not self._stopping:
            self._stopping = True
            worker.doomed = True
            TreeKill(self._pool.server.loop, lambda: [worker.pid], _GRACE_S, self._on_stop)

    def _on_stop(self, survivors: "list[int]") -> None:
        del survivors  # a worker that hangs in the kernel is not waited for
        self._stopping = True
        self.set_answer({})
        self._output_ended()


def install(server: "GuestServer") -> None:
    """Register the ``file`` operation, whose argument ``do`` selects the function."""
    pools: "dict[Client, WorkerPool]" = {}

    def perform(request: "Request", arguments: "dict[str, Any]") -> None:
        client = request.client
        if client not in pools:
            pools[client] = WorkerPool(server)
            client.on_close.append(lambda: pools.pop(client).close())
        arguments["cwd"] = resolve_folder(client, arguments.get("cwd"))
        if arguments.get("beside"):
            arguments["shelf"] = os.fsencode(server.spool_folder())
        FileOperation(pools[client], request, arguments)

    server.operations["file"] = perform


class Stopped(BaseException):
    """The cancellation of the current operation."""


def _stop(signum: int, stack: "Any") -> None:
    del signum, stack
    _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
    raise Stopped


def serve_worker(fd: int) -> None:
    """Run as a worker until the other end of ``fd`` closes. Does not return."""
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
    channel = keep_channel(fd)
    while True:
        head, ancillary, _, _ = channel.recvmsg(LENGTH.size, _socket.CMSG_SPACE(8), _CLOEXEC)
        if not head:
            os._exit(0)
        fds = struct.unpack("2i", ancillary[0][2])
        arguments = wire.unpack(receive_exactly(channel, LENGTH.unpack(head)[0]))
        _signal.signal(_signal.SIGTERM, _stop)
        try:
            answer = perform_task(FileTask(arguments, *fds))
        except Stopped:
            os._exit(0)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        for stream in fds:
            os.close(stream)
        packed = wire.pack(answer)
        channel.sendall(LENGTH.pack(len(packed)) + packed)


def perform_task(task: FileTask) -> "dict[str, Any]":
    """Run the operation and return its answer; every error becomes an answer."""
    try:
        return transfers.OPERATIONS[task.arguments["do"]](task)
    except OSError as error:
        path = error.filename
        answer = _failure("os", error.strerror or str(error))
        answer["errno"] = error.errno or 0
        answer["path"] = os.fsencode(path) if isinstance(path, (str, bytes)) else b""
        return answer
    except safe_paths.InvalidTreeData as error:
        return _failure("refused", str(error))
    except staging.NotStaged:
        return {"elsewhere": True}
    except BrokeOff:
        return _failure("refused", "the stream broke off")
    except (KeyError, TypeError, ValueError) as error:
        return _failure("malformed", "{}: {}".format(type(error).__name__, error))
    except MemoryError:
        return _failure("os", "not enough memory")


def _failure(kind: str, message: str) -> "dict[str, Any]":
    return {"error": kind, "message": message, "errno": 0}
