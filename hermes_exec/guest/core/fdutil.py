"""Utilities for descriptors and folders."""

import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

_F_SETPIPE_SZ = 1031
_BIG_PIPE = 1 << 20


def close_above(last: int) -> None:
    """Close every descriptor above ``last``."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = list(range(last + 1, 4096))
    for number in numbers:
        if number > last:
            try:
                os.close(number)
            except OSError:
                pass  # the listing's own descriptor, closed already


def enlarge_pipe(fd: int) -> bool:
    """Set a pipe's size to 1 MiB, which doubles its throughput; return whether that succeeded."""
    try:
        fcntl.fcntl(fd, _F_SETPIPE_SZ, _BIG_PIPE)
    except OSError:
        return False
    return True


def remove_folder(path: str) -> None:
    """Remove a folder with everything in it, following no link."""
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            _remove(os.unlink, os.path.join(folder, name))
        for name in folders:
            _remove(os.rmdir, os.path.join(folder, name))
    try:
        os.rmdir(path)
    except OSError:
        pass  # never created, or a file was added: the supervisor removes the whole runtime folder


def _remove(how: "Callable[[str], None]", path: str) -> None:
    try:
        how(path)
    except FileNotFoundError:
        pass  # another process removes the folder too
