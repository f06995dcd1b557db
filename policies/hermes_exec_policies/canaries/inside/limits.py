"""Attempts to exceed each limit. Those that would end the whole sandbox run in a probe sandbox of their own."""

import errno
import mmap
import os
import resource
import time

from .kit import Absent, attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from .kit import Config

_MIB = 1 << 20
_PART = 8 * _MIB


def _build_refusal(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def _set(limit: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(limit, (soft, hard))
    except ValueError:  # Python raises it for EPERM
        raise _build_refusal(errno.EPERM) from None


@attempt("limits-open-files")
def open_files(config: "Config") -> str:
    """Open one file more than the limit."""
    for _ in range(config["limits"]["open_files"] + 1):
        os.open("/dev/null", os.O_RDONLY)
    return "{} descriptors".format(config["limits"]["open_files"] + 1)


@attempt("limits-file-size")
def file_size(config: "Config") -> str:
    """Create a sparse file that exceeds the limit of the file size."""
    path = config["write"][0] + "/hermes-large"
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        os.ftruncate(fd, config["limits"]["file_size"] + 1)
    finally:
        os.close(fd)
        os.unlink(path)
    return "a file of {} bytes".format(config["limits"]["file_size"] + 1)


@attempt("limits-disk")
def disk(config: "Config") -> str:
    """Reserve more than the limit in the writable folder, in many files."""
    return _fill(config["write"][0], config["limits"]["disk"], config["limits"].get("file_size"))


@attempt("limits-shared-memory")
def shared_memory(config: "Config") -> str:
    """Reserve more than the limit in the folder of shared memory."""
    return _fill("/dev/shm", config["limits"]["shared_memory"], config["limits"].get("file_size"))


def _fill(folder: str, size: int, largest: "Optional[int]") -> str:
    """Reserve more than ``size`` bytes, in files of at most ``largest`` bytes each."""
    part = min(size, largest or size) + (0 if largest else _MIB)
    names: "list[str]" = []
    try:
        for number in range(size // part + 1):
            names.append("{}/hermes-fill-{}".format(folder, number))
            fd = os.open(names[-1], os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                os.posix_fallocate(fd, 0, part)
            finally:
                os.close(fd)
    finally:
        for name in names:
            os.unlink(name)
    return "{} bytes".format(len(names) * part)


@attempt("limits-inodes")
def inodes(config: "Config") -> str:
    """Create more files than the limit."""
    made: "list[str]" = []
    try:
        for number in range(config["limits"]["inodes"] + 1):
            name = "{}/hermes-file-{}".format(config["write"][0], number)
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600))
            made.append(name)
    finally:
        for name in made:
            os.unlink(name)
    return "{} files".format(len(made))


@attempt("limits-core")
def core(_: "Config") -> str:
    """Enable core dumps; a limit of 0 does not stop the kernel from piping one to a program outside."""
    if resource.getrlimit(resource.RLIMIT_CORE)[0] == 0:
        return "core dumps for a program outside"
    _set(resource.RLIMIT_CORE, _MIB, resource.RLIM_INFINITY)
    return "core dumps"


@attempt("limits-raise")
def raise_limits(_: "Config") -> str:
    """Raise the hard limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _set(resource.RLIMIT_NOFILE, soft, hard + 1)
    return "more open files"


@attempt("limits-locked-memory")
def locked_memory(config: "Config") -> str:
    """Lock more memory than the limit."""
    import ctypes

    size = config["limits"]["locked_memory"] + _MIB
    held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(held))
    if libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)):
        raise _build_refusal(ctypes.get_errno())
    return "{} bytes".format(size)


@attempt("limits-processes")
def processes(config: "Config") -> str:
    """Start one process more than the limit, and end all of them."""
    children: "list[int]" = []
    try:
        for _ in range(config["limits"]["processes"] + 1):
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
            children.append(pid)
        time.sleep(config["hold"])
    finally:
        for pid in children:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    return "{} processes".format(len(children))


@attempt("limits-memory")
def memory(config: "Config") -> str:
    """Use more memory than the limit in child processes; if configured, also shared memory that no process maps."""
    for have in (_unmap_shared, _plain) if config["unmapped"] else (_plain,):
        pid = os.fork()
        if pid == 0:
            try:
                held = [have() for _ in range(config["limits"]["memory"] // _PART + 2)]
                time.sleep(config["hold"])
                os._exit(0 if held else 1)
            except (MemoryError, OSError):
                os._exit(12)
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        if status == 0:
            return "{} bytes".format(config["limits"]["memory"])
        if not os.WIFSIGNALED(status) and status >> 8 != 12:
            raise RuntimeError("a child ended with {}".format(status))
    raise _build_refusal(errno.ENOMEM)


def _plain() -> object:
    return bytearray(b"\1" * _PART)


def _unmap_shared() -> object:
    """Fill a shared anonymous mapping and unmap all of it but a page, which frees none of its memory."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    shared, anonymous, page = 1, 32, mmap.PAGESIZE
    prot = mmap.PROT_READ | mmap.PROT_WRITE
    at = libc.mmap(None, ctypes.c_size_t(_PART), prot, shared | anonymous, -1, ctypes.c_long(0))
    if at == ctypes.c_void_p(-1).value:
        raise _build_refusal(ctypes.get_errno())
    ctypes.memset(at, 1, _PART)
    libc.munmap(ctypes.c_void_p(at + page), ctypes.c_size_t(_PART - page))
    return at


@attempt("limits-cpu-time")
def cpu_time(config: "Config") -> str:
    """Check that the limit of CPU time is missing or too high."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if hard == resource.RLIM_INFINITY or hard > config["limits"]["cpu_time"] + 60:
        return "no limit of this process's time"
    raise Absent("{} s".format(hard))


@attempt("limits-time")
def clock(_: "Config") -> str:
    """Run longer than the time limit."""
    time.sleep(600)
    return "it went on"


@attempt("limits-output")
def output(config: "Config") -> str:
    """Write more output than the limit."""
    block = b"\0" * 65536 + b"\n"
    left = config["limits"]["output"] + _MIB
    while left > 0:
        left -= os.write(1, block)
    return "it was all taken"
