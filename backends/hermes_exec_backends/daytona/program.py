"""A program that the relay starts in the sandbox: its process and its pipes. Sent as source, like the relay."""

import _signal
import fcntl
import os
import struct
import termios

from .frames import ERR, OUT, STATUS

_SET_PIPE_SIZE = 1031
_PIPE = 1 << 20


class Program:
    """One program: its process, its pipes, and the number of bytes transferred on each."""

    def __init__(self, number: int, pid: int, stdin: int, outputs: "dict[int, int]") -> None:
        self.number = number
        self.pid = pid
        self.stdin = stdin
        self.outputs = outputs
        """Kind of frame by descriptor, while it is open."""
        self.input = bytearray()
        self.later: "list[bytes | int]" = []
        """Input that follows ``input``: bytes, or the descriptor of a file."""
        self.eof = False
        self.taken = 0
        self.sent = 0
        self.used = 0
        self.code: "int | None" = None
        self.told = False
        self.owed: "dict[int, int]" = {}
        """Bytes by descriptor that were in the pipes when it ended, and are sent before the report of its end."""

    def more(self) -> bool:
        """Return whether there is input; ``input`` has some of it then."""
        while not self.input and self.later:
            source = self.later[0]
            data = source if isinstance(source, bytes) else os.read(source, _PIPE)
            self.input += data
            if isinstance(source, bytes) or not data:
                del self.later[0]
                if not isinstance(source, bytes):
                    os.close(source)
        return bool(self.input)

    def open(self) -> "list[int]":
        """Return all of its open descriptors."""
        files = [source for source in self.later if not isinstance(source, bytes)]
        return ([self.stdin] if self.stdin >= 0 else []) + list(self.outputs) + files


def launch(number: int, argv: "list[bytes]", env: "dict[bytes, bytes]") -> "tuple[Program, bytes]":
    """Start a program; return it with the error message, if it could not be started."""
    (stdin, feed), (out, stdout), (err, stderr), (why, told) = (os.pipe() for _ in range(4))
    pid = os.fork()
    if pid == 0:
        become(argv, env, (stdin, stdout, stderr), told)
    for fd in (stdin, stdout, stderr, told):
        os.close(fd)
    said = os.read(why, STATUS.size)
    os.close(why)
    for fd in (feed, out, err):
        os.set_blocking(fd, False)
        try:
            fcntl.fcntl(fd, _SET_PIPE_SIZE, _PIPE)
        except OSError:
            pass  # the kernel limits the large pipes of a user
    return Program(number, pid, feed, {out: OUT, err: ERR}), said


def waiting(fd: int) -> int:
    """Return the number of bytes that can be read from a pipe now."""
    return int(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0])


def become(argv: "list[bytes]", env: "dict[bytes, bytes]", streams: "tuple[int, int, int]", told: int) -> None:
    """Run the program in the new process, in a session of its own, so that the terminal's end does not end it."""
    try:
        _signal.set_wakeup_fd(-1)
        for number in (_signal.SIGCHLD, _signal.SIGHUP, _signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT):
            _signal.signal(number, _signal.SIG_DFL)
        os.setsid()
        try:
            os.chdir(env.get(b"HOME") or b"/")
        except OSError:  # as login and sshd do
            os.chdir(b"/")
        told = fcntl.fcntl(told, fcntl.F_DUPFD_CLOEXEC, 10)
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        os.closerange(3, told)
        os.closerange(told + 1, 256)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(told, STATUS.pack(error.errno or 5))
    finally:
        os._exit(127)
