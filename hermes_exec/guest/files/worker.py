"""A worker: a small process that does one file operation at a time, so that a slow disk blocks only that operation.

The guest forks it once; it then waits for work: the arguments and the descriptors of the streams arrive over a
socket, as for a runner. SIGTERM ends an operation after cleanup.
"""

import _signal
import _socket
import os
import struct

from ..core import wire
from ..process.runner import keep_channel, receive_exactly
from . import safe_paths, staging, transfers
from .atomic_writer import BrokeOff
from .operations import FileTask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LENGTH = struct.Struct(">I")
_CLOEXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0x40000000)


class Stopped(BaseException):
    """The cancellation of the current operation."""


def _stop(signum: int, stack: "Any") -> None:
    del signum, stack
    _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)
    raise Stopped


def serve(fd: int) -> None:
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
            answer = perform(FileTask(arguments, *fds))
        except Stopped:
            os._exit(0)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        for stream in fds:
            os.close(stream)
        packed = wire.pack(answer)
        channel.sendall(LENGTH.pack(len(packed)) + packed)


def perform(task: FileTask) -> "dict[str, Any]":
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
