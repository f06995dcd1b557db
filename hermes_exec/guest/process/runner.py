"""A runner: a small process that starts one program at a time and is the subreaper of its process tree.

Forking the guest for each program would cost more than the program (the page tables are copied), so the guest keeps
a few runners, each forked once, and they start programs by ``posix_spawn``. A process that outlives its program becomes
the runner's child, which identifies the program that left it.
"""

import _signal
import _socket
import errno
import os
import struct

from ..core import libc, wire
from ..core.fdutil import close_above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REPLY = struct.Struct("<BBi")
"""Kind, whether the program left processes behind, and a value: errno, pid or wait status."""
NO_PROGRAM, NO_FOLDER, STARTED, ENDED, NO_LIMITS, NO_ROOM = range(6)
RESOURCE_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""Errors that prevent any program from being started, and so are independent of the program and its folder."""
_LENGTH = struct.Struct(">I")
_CLOEXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0x40000000)
RESET = [number for number in range(1, 32) if number not in (_signal.SIGKILL, _signal.SIGSTOP)]
"""Signals that are reset to their default for a program, even if Python, the guest or its parent ignores them."""


def send_spec(channel: "_socket.socket", spec: "dict[str, Any]", fds: "list[int]") -> None:
    """Ask a runner to start a program with these descriptors as 0, 1 and 2."""
    payload = wire.pack(spec)
    rights = struct.pack("{}i".format(len(fds)), *fds)
    sent = channel.sendmsg([_LENGTH.pack(len(payload)), payload], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    rest = payload[max(0, sent - 4) :]
    if rest:
        channel.sendall(rest)


def open_pipes(count: int) -> "list[tuple[int, int]]":
    """Open ``count`` pipes, or none and raise OSError."""
    pipes: "list[tuple[int, int]]" = []
    try:
        while len(pipes) < count:
            pipes.append(os.pipe())
    except OSError:
        for ends in pipes:
            for fd in ends:
                os.close(fd)
        raise
    return pipes


_usual_limit: "list[tuple[int, int]]" = []


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit: a live shell needs three."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _usual_limit.append((soft, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def usual_descriptor_limit() -> None:
    """Restore the original limit of open files, for a process that is about to be started."""
    if _usual_limit:
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, _usual_limit[0])


def serve(fd: int) -> None:
    """Run as a runner until the other end of ``fd`` closes. Does not return."""
    _signal.set_wakeup_fd(-1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    try:
        channel = keep_channel(fd)
        usual_descriptor_limit()
        libc.become_subreaper()
        usual = dict(os.environb)  # a slow copy, so not made for every program
        while True:
            head, ancillary, _, _ = channel.recvmsg(4, _socket.CMSG_SPACE(12), _CLOEXEC)
            if not head:
                _outlive_children()
            fds = _unpack_fds(ancillary)
            spec = wire.unpack(receive_exactly(channel, _LENGTH.unpack(head)[0]))
            _run(channel, spec, fds, dict(usual))
    except (MemoryError, OSError) as error:  # the program was not started
        try:
            os.write(3, REPLY.pack(NO_ROOM, 0, _errno_of(error)))
        except OSError:  # the guest was killed meanwhile
            _outlive_children()


def _unpack_fds(ancillary: "list[tuple[int, int, bytes]]") -> "list[int]":
    if not ancillary or len(ancillary[0][2]) < 12:
        raise OSError(errno.EMFILE, "the kernel could not hand over the descriptors")
    return list(struct.unpack("3i", ancillary[0][2]))


def keep_channel(fd: int) -> "_socket.socket":
    """Close every inherited descriptor in a new process but one end of a socket."""
    os.dup2(fd, 3, False)
    if fd != 3:
        os.close(fd)  # frees a descriptor, even at the limit of open files
    close_above(3)
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(null)
    return _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, 3)


def _errno_of(error: Exception) -> int:
    return errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None) or errno.EIO


def _outlive_children() -> None:
    """Exit once no process is left below this one: the next guest finds a killed guest's processes there."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(0)


def receive_exactly(channel: "_socket.socket", size: int) -> bytes:
    """Return the next ``size`` bytes; exit if the guest has closed the other end."""
    parts: "list[bytes]" = []
    while size:
        part = channel.recv(min(size, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _run(channel: "_socket.socket", spec: "dict[str, Any]", fds: "list[int]", env: "dict[bytes, bytes]") -> None:
    env.update(spec["env"])
    stage = NO_FOLDER
    try:
        os.chdir(spec["cwd"])
        stage = NO_PROGRAM
        pid = _start(find_program(spec["argv"][0], env), spec, env, fds)
    except (MemoryError, OSError) as error:
        for fd in fds:
            os.close(fd)
        code = _errno_of(error)
        if isinstance(error, NotConfined):
            stage = NO_LIMITS
        elif code in RESOURCE_ERRNOS:
            stage = NO_ROOM
        channel.sendall(REPLY.pack(stage, 0, code))
        return
    for fd in fds:
        os.close(fd)
    try:
        if spec.get("tell"):
            channel.sendall(REPLY.pack(STARTED, 0, pid))
        status = _wait(pid)
        channel.sendall(REPLY.pack(ENDED, _has_processes(), status))
    except MemoryError:
        os._exit(1)  # once started, no failure may report that nothing ran
    except OSError:  # the guest was killed meanwhile
        _outlive_children()


def find_program(name: bytes, env: "dict[bytes, bytes]") -> bytes:
    """Return the path of a program as execvp(3) finds it; raise OSError with its errno."""
    if b"/" in name:
        return name
    code = errno.ENOENT
    for folder in env.get(b"PATH", os.defpath.encode()).split(b":"):
        path = (folder or b".") + b"/" + name
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        if os.path.lexists(path):
            code = errno.EACCES
    raise OSError(code, os.strerror(code))


def _start(program: bytes, spec: "dict[str, Any]", env: "dict[bytes, bytes]", fds: "list[int]") -> int:
    argv = spec["argv"]
    tty = spec.get("tty")
    confine = spec.get("confine")
    if confine or not hasattr(os, "posix_spawn"):  # Python 3.7 and older
        return fork_exec(program, argv, env, fds, tty, confine)
    actions: "list[tuple[Any, ...]]"
    if tty:  # opened by a session leader that has none, it becomes the controlling terminal
        actions = [(os.POSIX_SPAWN_OPEN, 0, tty, os.O_RDWR, 0)]
        actions += [(os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2)]
    else:
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)]
    try:
        return os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=RESET)
    except NotImplementedError:  # an old C library
        return fork_exec(program, argv, env, fds, tty)


class NotConfined(OSError):
    """A process could not be put under its limits, so it did not become the program."""


def _enter(confine: "dict[str, Any]") -> None:
    """Put this process under its limits, which the guest's module ``confinement`` specifies."""
    import resource  # loaded already

    for path in confine["join"]:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, b"0")
        os.close(fd)
    for number, soft, hard in confine["rlimits"]:
        resource.setrlimit(number, (soft, hard))


def fork_exec(
    program: bytes,
    argv: "list[bytes]",
    env: "dict[bytes, bytes]",
    fds: "list[int]",
    tty: "str | None" = None,
    confine: "dict[str, Any] | None" = None,
) -> int:
    """Start a program in a session of its own, by fork and exec; raise OSError if it cannot be run.

    It is its own subreaper too, unless it is confined: zombies that it never reaps would count against its limits.
    """
    told, tell = os.pipe()
    libc.libc()
    if confine:
        __import__("resource")  # now, before the limits leave no descriptor for the import
    limited = False
    try:
        pid = os.fork()
    except OSError:
        os.close(told)
        os.close(tell)
        raise
    if pid == 0:
        try:
            os.setsid()
            _signal.set_wakeup_fd(-1)
            for default in RESET:
                _signal.signal(default, _signal.SIG_DFL)
            if tty:
                fds = [os.open(tty, os.O_RDWR)] * 3
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
            usual_descriptor_limit()
            if confine:
                _enter(confine)
                limited = True
            else:
                libc.become_subreaper()
            os.execve(program, argv, env)
        except OSError as error:
            code = error.errno or 0
            os.write(tell, struct.pack("i", -code if confine and not limited else code))
        finally:
            os._exit(127)
    os.close(tell)
    failure = os.read(told, 4)
    os.close(told)
    if failure:
        os.waitpid(pid, 0)
        code = struct.unpack("i", failure)[0]
        raise NotConfined(-code, os.strerror(-code)) if code < 0 else OSError(code, os.strerror(code))
    return pid


def _wait(pid: int) -> int:
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return status


def _has_processes() -> bool:
    """Whether any process that the program started still exists."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False
