"""See from outside what a program asks the kernel for: every call that its filter refuses, and chosen ones it allows.

The kernel hands such a call to us and waits (seccomp_unotify(2), Linux 5.5). What is answered is what the filter itself
says, worked out here from the same program and the same arguments, so being seen changes no answer. Nobody there means
that the call fails: a program that is no longer seen can do less, never more.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import platform
import select
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hermes_exec.errors import Unsupported
from hermes_exec.guest.core import process_tree
from hermes_exec_backends.sandbox.syscall_args import words

NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "open": 2, "openat": 257, "creat": 85, "execve": 59, "execveat": 322, "connect": 42, "kill": 62,
        "link": 86, "linkat": 265, "symlink": 88, "symlinkat": 266, "unlink": 87, "unlinkat": 263, "rmdir": 84,
        "rename": 82, "renameat": 264, "renameat2": 316, "mkdir": 83, "mkdirat": 258, "chmod": 90, "fchmodat": 268,
        "chown": 92, "lchown": 94, "fchownat": 260, "truncate": 76, "setxattr": 188, "lsetxattr": 189,
        "fsetxattr": 190, "sched_setscheduler": 144,
    },
    "aarch64": {
        "openat": 56, "execve": 221, "execveat": 281, "connect": 203, "kill": 129, "linkat": 37, "symlinkat": 36,
        "unlinkat": 35, "renameat": 38, "renameat2": 276, "mkdirat": 34, "fchmodat": 53, "fchownat": 54,
        "truncate": 45, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "sched_setscheduler": 119,
    },
}  # fmt: skip
"""Calls that can be seen though they are allowed, by machine."""
_HANDS_OVER = {"x86_64": 46, "aarch64": 211}  # sendmsg, which the launcher needs under the filter
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NOTIFY, _ALLOW, _ERRNO, _EPERM = 0x7FC00000, 0x7FFF0000, 0x00050000, 0x00050001
_LOAD, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _JUMP, _AND, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x05, 0x54, 0x06
_STEP = struct.Struct("=HBBI")
_CALL = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_RECEIVE, _SEND, _SET_FLAGS, _CONTINUE = 0xC0502100, 0xC0182101, 0x40082104, 1
_MOST, _LOOK_S = 256, 0.02
_OPENS = frozenset({"open", "openat", "creat"})
_SOMETIMES = 16
DESCRIPTORS = "descriptors"
"""The name of what is no call: a process came near the most descriptors that it may have; how many, and the most."""

Steps = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Act:
    """One call that a program made, or tried to make."""

    pid: int
    """The thread that made it, by its number outside."""
    call: int
    """Its number."""
    name: str
    """Its name, if it is one of ``NUMBERS``; empty otherwise."""
    arguments: tuple[int, ...]
    refused: bool
    """Whether the filter refused it."""
    words: tuple[str, ...] = ()
    """What an allowed call names: a path, an address, the words of a program. It may be changed while we read it."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What is to be seen of a program beside the calls that are refused."""

    calls: frozenset[str]
    notable: Callable[[Act], bool]
    """Whether an act is kept; it is asked at once, so that many harmless acts hide none."""
    linger_s: float | None = 5.0
    """How long what the program started may outlive it before it counts as left behind; None where nobody asks."""


@lru_cache(maxsize=32)
def observing(program: bytes, calls: frozenset[str]) -> bytes:
    """A filter that asks us where ``program`` refuses with EPERM, and for ``calls`` in any case.

    Raises:
        Unsupported: not on such machines, or with such a filter.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        raise Unsupported(f"what a program does cannot be seen on {machine}", remedy="a machine of x86_64 or aarch64")
    numbers = NUMBERS[machine]
    if answer(decoded(program), _HANDS_OVER[machine], _MACHINES[machine], (0,) * 6) != _ALLOW:
        raise Unsupported("a program whose filter refuses sendmsg cannot be seen")
    wanted = sorted(numbers[name] for name in calls if name in numbers)
    asked = [(_EQUAL, len(wanted) - at, 0, number) for at, number in enumerate(wanted)]
    first: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4), (_EQUAL, 0, len(asked) + 3, _MACHINES[machine]), (_LOAD, 0, 0, 0),
        *asked, (_JUMP, 0, 0, 1), (_RETURN, 0, 0, _NOTIFY),
    ]  # fmt: skip
    rest = [(*step[:3], _NOTIFY) if step[0] == _RETURN and step[3] == _EPERM else step for step in decoded(program)]
    return b"".join(_STEP.pack(*step) for step in (*first, *rest))


@lru_cache(maxsize=32)
def decoded(program: bytes) -> Steps:
    """The steps of a filter."""
    return tuple(_STEP.iter_unpack(program))


def answer(steps: Steps, call: int, machine: int, arguments: tuple[int, ...]) -> int:
    """What a filter returns for a call, as the kernel's own machine would (seccomp(2), classic BPF).

    Raises:
        Unsupported: it has a step that no filter of ours has.
    """
    data = struct.pack("=iIQ6Q", call, machine, 0, *arguments)
    held = at = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == _LOAD:
            held = int.from_bytes(data[value : value + 4], "little")
        elif code == _EQUAL:
            at += yes if held == value else no
        elif code == _GREATER:
            at += yes if held > value else no
        elif code == _AT_LEAST:
            at += yes if held >= value else no
        elif code == _ANY_BIT:
            at += yes if held & value else no
        elif code == _AND:
            held &= value
        elif code == _JUMP:
            at += value
        elif code == _RETURN:
            return value
        else:
            raise Unsupported(f"a filter has a step that is not known: {code:#x}")


class Observer:
    """Answers the calls of one sandbox from ``begin`` to ``close``, and keeps the notable ones."""

    def __init__(self, listener: int, program: bytes, watch: Watch) -> None:
        """Takes over the descriptor ``listener``; ``program`` is the filter without us."""
        self.acts: list[Act] = []
        self.failure = ""
        """Why not everything was seen, if so: then ``acts`` prove nothing."""
        self._listener = listener
        self._steps = decoded(program)
        self._watch = watch
        self._names = {number: name for name, number in NUMBERS[platform.machine()].items()}
        self._opened: Counter[int] = Counter()
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        with contextlib.suppress(OSError):  # both sides on one processor are quicker (Linux 6.6)
            fcntl.ioctl(listener, _SET_FLAGS, struct.pack("=Q", 1))

    def begin(self) -> None:
        """Answer from now on."""
        asyncio.get_running_loop().add_reader(self._listener, self._asked)

    def close(self) -> None:
        """Answer no more: what still asks is refused. Safe to call twice."""
        if self._listener >= 0:
            asyncio.get_running_loop().remove_reader(self._listener)
            os.close(self._listener)
            self._listener = -1

    def _asked(self) -> None:
        # A descriptor that has hung up is readable for ever, and reading it may block.
        if not any(event & select.POLLIN for _, event in self._poll.poll(0)):
            asyncio.get_running_loop().remove_reader(self._listener)
            return
        question = bytearray(_CALL.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, question, True)
        except OSError:
            return  # the one who asked was killed meanwhile
        key, pid, _, call, machine, _, *given = _CALL.unpack(question)
        arguments = tuple(given)
        said = answer(self._steps, call, machine, arguments)
        try:
            self._keep(pid, call, arguments, refused=said != _ALLOW)
        except Exception as failure:  # noqa: BLE001  whatever it is, somebody waits for an answer
            self.failure = repr(failure)
        error = 0 if said == _ALLOW else -(said & 0xFFFF) if said & 0xFFFF0000 == _ERRNO else -1
        reply = _ANSWER.pack(key, 0, error, 0 if error else _CONTINUE)
        with contextlib.suppress(OSError):  # as above
            fcntl.ioctl(self._listener, _SEND, reply)

    def _keep(self, pid: int, call: int, arguments: tuple[int, ...], *, refused: bool) -> None:
        name = self._names.get(call, "")
        found = () if refused else words(pid, name, arguments)
        act = Act(pid, call, name, arguments, refused, found)
        if len(self.acts) < _MOST and self._watch.notable(act):
            self.acts.append(act)
        if name in _OPENS:
            self._opened[pid] += 1
            if self._opened[pid] > 0 and self._opened[pid] % _SOMETIMES == 0:
                self._count(pid, call)

    def _count(self, pid: int, call: int) -> None:
        """See whether a process has nearly all the descriptors that it may have."""
        with contextlib.suppress(OSError, ValueError, IndexError):  # it is gone, or has no limit
            limits = Path(f"/proc/{pid}/limits").read_bytes()
            most = int(limits.partition(b"Max open files")[2].split()[0])
            there = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  counted often
            if there >= most - 2 * _SOMETIMES:
                self.acts.append(Act(pid, call, DESCRIPTORS, (there, most), refused=False))
                self._opened[pid] = -(1 << 20)  # once is enough


async def remaining(first: int, linger_s: float) -> tuple[str, ...]:
    """What still runs below process ``first`` after ``linger_s`` seconds; empty as soon as nothing does."""
    give_up = time.monotonic() + linger_s
    while True:
        states = {pid: process_tree.stat(pid)[0] for pid in process_tree.descendants([first])}
        running = [pid for pid, state in states.items() if state not in {b"", b"Z", b"X"}]
        if not running:
            return ()
        if time.monotonic() >= give_up:
            return tuple(map(_called, running[:_MOST]))
        await asyncio.sleep(_LOOK_S)


def _called(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "?"
    return words.replace(b"\0", b" ").decode("utf-8", "replace")[:200].strip() or "?"
