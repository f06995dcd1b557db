"""Become a program for whose processes no /proc/PID/task/TID/children exists, as on kernels that have none.

A filter of system calls sees no path. So it has the calls that take one ask a process beside: that reads the path in
the caller's memory, and lets the call go on, or fail with "no such file". Everything that the program starts is under
the same filter. Debian's own Python runs this, as it does ``cell_init``, so it keeps to what that has.
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import re
import socket
import struct
import sys

PATHS = {2: 0, 4: 0, 6: 0, 21: 0, 257: 1, 262: 1, 269: 1, 332: 1, 437: 1, 439: 1}
"""open, stat, lstat, access, openat, newfstatat, faccessat, statx, openat2, faccessat2: which argument is the path."""
HIDDEN = re.compile(rb"/proc/[^/]+/task/[^/]+/children\Z")
_SECCOMP, _FILTER = 317, 1
_NEW_LISTENER, _WAIT_KILLABLE = 8, 32
"""The second lets signals wait while a call is being decided on; kernels before 5.19 know it not."""
_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101
_GO_ON = 1
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_LONGEST = 128
_libc = ctypes.CDLL(None, use_errno=True)


def program() -> bytes:
    """The filter: these calls are asked about."""
    lines = [(_LOAD, 0, 0, 0), *((_EQUAL, len(PATHS) - at, 0, number) for at, number in enumerate(PATHS))]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ASK)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def install() -> int:
    """Put this process under the filter; gives the descriptor on which it asks."""
    lines = ctypes.create_string_buffer(program(), len(program()))
    told = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program()) // 8, ctypes.addressof(lines)))
    fd = _libc.syscall(_SECCOMP, _FILTER, _NEW_LISTENER | _WAIT_KILLABLE, told)
    if fd < 0:
        fd = _libc.syscall(_SECCOMP, _FILTER, _NEW_LISTENER, told)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "no filter")
    return int(fd)


def serve(listener: int) -> None:
    """Answer what is asked, until nobody is left who could ask."""
    while True:
        asked = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECEIVE, asked)
            number, pid, call = struct.unpack_from("QI4xi", asked)
            address: int = struct.unpack_from("6Q", asked, 32)[PATHS[call]]
            error, flags = (-errno.ENOENT, 0) if HIDDEN.match(path(pid, address)) else (0, _GO_ON)
            fcntl.ioctl(listener, _ANSWER, struct.pack("QqiI", number, 0, error, flags))
        except OSError as failed:
            if failed.errno != errno.ENOENT:  # which is a caller that has ended meanwhile
                return


def path(pid: int, address: int) -> bytes:
    """The text at an address of another process; nothing where it cannot be read."""
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(memory, _LONGEST, address).partition(b"\0")[0]
    except OSError:
        return b""
    finally:
        os.close(memory)


def main(argv: list[str]) -> None:
    """Have the one who answers, then become the program."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        _, ancillary, _, _ = theirs.recvmsg(1, socket.CMSG_SPACE(4))
        (listener,) = array.array("i", ancillary[0][2])
        os.closerange(3, listener)
        os.closerange(listener + 1, 256)
        serve(listener)
        os._exit(0)
    listener = install()
    ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
    os.execv(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1:])
