"""The processes of this machine, looked at from outside of every place.

A process may end between any two steps of a look, and between the opening and the reading of one file of it: the
kernel then says that there is no such file, or no such process, or that the argument is invalid (the mounts of one
that nobody has reaped). All are answers here, never errors.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def read(pid: int, file: str) -> bytes:
    """A file of a process; empty when the process is gone, or somebody else's."""
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid), file).read_bytes()
    return b""


def stat(pid: int) -> list[str]:
    """What the kernel says of a process from its state on, as ``proc_pid_stat(5)`` counts from 3; empty when gone."""
    return read(pid, "stat").rpartition(b") ")[2].decode("ascii").split()


def alive(pid: int) -> bool:
    """Whether a process is there, and not merely waiting to be reaped."""
    return stat(pid)[:1] not in ([], ["Z"], ["X"])


def parent(pid: int) -> int:
    """The parent of a process; 0 when it is gone."""
    return int((stat(pid) or "?0")[1])


def name(pid: int) -> str:
    """The name of a process; empty when it is gone."""
    return read(pid, "comm").decode().strip()


def argv(pid: int) -> list[bytes]:
    """The arguments of a process; none when it is gone."""
    return read(pid, "cmdline").split(b"\0")[:-1]


def children(pid: int) -> list[int]:
    """What the threads of a process started and is there still."""
    tasks: list[str] = []
    with contextlib.suppress(OSError):
        tasks = os.listdir(f"/proc/{pid}/task")
    return [int(child) for task in tasks for child in read(pid, f"task/{task}/children").split()]


def tree(pid: int) -> set[int]:
    """A process and everything below it."""
    return {pid}.union(*map(tree, children(pid)))


def every() -> list[int]:
    """The numbers of all processes that are there."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def owner(pid: int) -> int:
    """The effective user of a process; -1 when it is gone."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}").st_uid
    return -1


def namespace(pid: int, kind: str) -> str:
    """The name of a process's namespace, such as ``pid:[4026531836]``; empty when it is gone."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    return ""


def with_mark(mark: str) -> list[int]:
    """The processes that have ``mark`` somewhere in their arguments."""
    return [pid for pid in every() if mark.encode() in read(pid, "cmdline")]


def started_as(*words: str) -> list[int]:
    """The processes whose arguments are these words."""
    return [pid for pid in every() if argv(pid) == [word.encode() for word in words]]


def runs(mark: str) -> bool:
    """Whether a process has ``mark`` as one of its arguments."""
    return any(mark.encode() in argv(pid) for pid in every())
