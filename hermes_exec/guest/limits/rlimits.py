"""Limits by setrlimit(2) where there is no control group, and whether they are effective here."""

import os
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

_NO_LIMIT = resource.RLIM_INFINITY
_MANY = 1 << 22  # the most pids that Linux knows


def clamp(number: int, soft: int, hard: int) -> "tuple[int, int, int]":
    """Return the resource with bounds that an unprivileged process may set."""
    most = resource.getrlimit(number)[1]
    if most != _NO_LIMIT:
        soft, hard = min(soft, most), min(hard, most)
    return number, soft, hard


def memory() -> int:
    """Return the resource that bounds memory.

    RLIMIT_DATA does not count address space that is reserved but unused, of which many runtimes have gigabytes; older
    kernels count only the heap for it, so this is tested.
    """
    return resource.RLIMIT_DATA if _in_child(_map_beyond_data) else resource.RLIMIT_AS


def _map_beyond_data() -> bool:
    import mmap

    resource.setrlimit(resource.RLIMIT_DATA, clamp(resource.RLIMIT_DATA, 64 << 20, 64 << 20)[1:])
    try:
        mmap.mmap(-1, 128 << 20)
        mmap.mmap(-1, 128 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, ValueError):
        return True
    return False


def _in_child(test: "Callable[[], bool]") -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if test() else 1)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def bounds_processes() -> bool:
    """Whether the kernel limits this user's processes at all; it does not for root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    try:
        return not _forks(1, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


def processes() -> int:
    """Return the number of processes that the kernel counts for this user now.

    Those of other containers with the same user may count too, and are not visible; so the smallest limit at which a
    fork
    succeeds is searched.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    most = _MANY if hard == _NO_LIMIT else hard
    try:
        low, high = 1, 2
        while high < most and not _forks(high, hard):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if _forks(middle, hard):
                high = middle
            else:
                low = middle
        return high - 1
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))


def _forks(bound: int, hard: int) -> bool:
    resource.setrlimit(resource.RLIMIT_NPROC, (bound if hard == _NO_LIMIT else min(bound, hard), hard))
    try:
        pid = os.fork()
    except OSError:
        return False
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True
