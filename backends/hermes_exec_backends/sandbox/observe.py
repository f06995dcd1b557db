"""Observe from outside the system calls of a program: every call that its filter refuses, and chosen allowed ones.

The kernel notifies us of such a call and waits (seccomp_unotify(2), Linux 5.5). The reply is the filter's own verdict,
computed here from the same BPF program and the same arguments, so observing changes no result. Without an observer the
call fails: a program that is no longer observed can do less, never more.
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
from hermes_exec_backends.sandbox.syscall_args import read_texts

NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "open": 2, "openat": 257, "creat": 85, "execve": 59, "execveat": 322, "connect": 42, "kill": 62,
        "link": 86, "linkat": 265, "symlink": 88, "symlinkat": 266, "unlink": 87, "unlinkat": 263, "rmdir": 84,
        "rename": 82, "renameat": 264, "renameat2": 316, "mkdir": 83, "mkdirat": 258, "chmod": 90, "fchmodat": 268,
        "chown": 92, "lchown": 94, "fchownat": 260, "truncate": 76, "setxattr": 188, "lsetxattr": 189,
        "fsetxattr": 190, "sched_setscheduler": 144, "bind": 49,
    },
    "aarch64": {
        "openat": 56, "execve": 221, "execveat": 281, "connect": 203, "kill": 129, "linkat": 37, "symlinkat": 36,
        "unlinkat": 35, "renameat": 38, "renameat2": 276, "mkdirat": 34, "fchmodat": 53, "fchownat": 54,
        "truncate": 45, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "sched_setscheduler": 119,
        "bind": 200,
    },
}  # fmt: skip
"""Allowed calls that can be observed, with their numbers by machine."""
_HANDS_OVER = {"x86_64": 46, "aarch64": 211}  # sendmsg, which the launcher needs after it loaded the filter
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NOTIFY, _ALLOW, _ERRNO, _EPERM = 0x7FC00000, 0x7FFF0000, 0x00050000, 0x00050001
_LOAD, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _JUMP, _AND, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x05, 0x54, 0x06
_STEP = struct.Struct("=HBBI")
_CALL = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_RECEIVE, _SEND, _SET_FLAGS, _CONTINUE = 0xC0502100, 0xC0182101, 0x40082104, 1
_MAX_CALLS, _POLL_S = 256, 0.02
_OPENS = frozenset({"open", "openat", "creat"})
_SOMETIMES = 16
DESCRIPTORS = "descriptors"
"""Not a system call: a process approached its limit of descriptors. The arguments are the count and the limit."""

Steps = tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """One system call that a program made or tried to make."""

    pid: int
    """The calling thread, by its number outside the sandbox."""
    call: int
    """The number of the system call."""
    name: str
    """Its name if ``NUMBERS`` lists it, else empty."""
    arguments: tuple[int, ...]
    refused: bool
    """Whether the filter refused it."""
    texts: tuple[str, ...] = ()
    """Texts that an allowed call points to: a path, an address, an argv. The program may change them while we read."""


@dataclass(frozen=True, slots=True)
class WatchSpec:
    """What to observe of a program besides refused calls."""

    calls: frozenset[str]
    notable: Callable[[ObservedCall], bool]
    """Whether to keep a call. It is evaluated at once, so that many harmless calls cannot crowd out others."""
    linger_s: float | None = 5.0
    """Seconds that child processes may outlive the program before they count as leftovers; None to not check."""


@lru_cache(maxsize=32)
def observing_filter(program: bytes, calls: frozenset[str]) -> bytes:
    """A filter that notifies us where ``program`` refuses with EPERM, and of each of ``calls``.

    Raises:
        Unsupported: this machine or this filter does not allow it.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        raise Unsupported(f"system calls cannot be observed on {machine}", remedy="a machine with x86_64 or aarch64")
    numbers = NUMBERS[machine]
    if evaluate_filter(decode_filter(program), _HANDS_OVER[machine], _MACHINES[machine], (0,) * 6) != _ALLOW:
        raise Unsupported("system calls cannot be observed with a filter that refuses sendmsg")
    wanted = sorted(numbers[name] for name in calls if name in numbers)
    asked = [(_EQUAL, len(wanted) - at, 0, number) for at, number in enumerate(wanted)]
    first: list[tuple[int, int, int, int]] = [
        (_LOAD, 0, 0, 4), (_EQUAL, 0, len(asked) + 3, _MACHINES[machine]), (_LOAD, 0, 0, 0),
        *asked, (_JUMP, 0, 0, 1), (_RETURN, 0, 0, _NOTIFY),
    ]  # fmt: skip
    rest = [
        (*step[:3], _NOTIFY) if step[0] == _RETURN and step[3] == _EPERM else step for step in decode_filter(program)
    ]
    return b"".join(_STEP.pack(*step) for step in (*first, *rest))


@lru_cache(maxsize=32)
def decode_filter(program: bytes) -> Steps:
    """The instructions of a filter."""
    return tuple(_STEP.iter_unpack(program))


def evaluate_filter(steps: Steps, call: int, machine: int, arguments: tuple[int, ...]) -> int:
    """Evaluate a filter for a call, as the kernel's BPF interpreter does (seccomp(2), classic BPF).

    Raises:
        Unsupported: the filter has an instruction that no filter of this project uses.
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
            raise Unsupported(f"the filter has an unknown instruction: {code:#x}")


class Observer:
    """Replies to the notifications of one sandbox from ``begin`` to ``close``, and keeps notable calls."""

    def __init__(self, listener: int, program: bytes, watch: WatchSpec) -> None:
        """Take ownership of the descriptor ``listener``; ``program`` is the filter without notifications."""
        self.acts: list[ObservedCall] = []
        self.failure = ""
        """Why calls may have been missed; if not empty, ``acts`` prove nothing."""
        self._listener = listener
        self._steps = decode_filter(program)
        self._watch = watch
        self._names = {number: name for name, number in NUMBERS[platform.machine()].items()}
        self._opened: Counter[int] = Counter()
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        with contextlib.suppress(OSError):  # one processor for both sides is faster (Linux 6.6)
            fcntl.ioctl(listener, _SET_FLAGS, struct.pack("=Q", 1))

    def begin(self) -> None:
        """Start to reply."""
        asyncio.get_running_loop().add_reader(self._listener, self._on_notification)

    def close(self) -> None:
        """Stop to reply; pending calls are refused. Safe to call twice."""
        if self._listener >= 0:
            asyncio.get_running_loop().remove_reader(self._listener)
            os.close(self._listener)
            self._listener = -1

    def _on_notification(self) -> None:
        # After a hang-up the descriptor stays readable, and reading it may block.
        if not any(event & select.POLLIN for _, event in self._poll.poll(0)):
            asyncio.get_running_loop().remove_reader(self._listener)
            return
        question = bytearray(_CALL.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, question, True)
        except OSError:
            return  # the caller was killed meanwhile
        key, pid, _, call, machine, _, *given = _CALL.unpack(question)
        arguments = tuple(given)
        verdict = evaluate_filter(self._steps, call, machine, arguments)
        try:
            self._keep(pid, call, arguments, refused=verdict != _ALLOW)
        except Exception as failure:  # noqa: BLE001  the caller still waits for a reply
            self.failure = repr(failure)
        error = 0 if verdict == _ALLOW else -(verdict & 0xFFFF) if verdict & 0xFFFF0000 == _ERRNO else -1
        reply = _ANSWER.pack(key, 0, error, 0 if error else _CONTINUE)
        with contextlib.suppress(OSError):  # as above
            fcntl.ioctl(self._listener, _SEND, reply)

    def _keep(self, pid: int, call: int, arguments: tuple[int, ...], *, refused: bool) -> None:
        name = self._names.get(call, "")
        found = () if refused else read_texts(pid, name, arguments)
        act = ObservedCall(pid, call, name, arguments, refused, found)
        if len(self.acts) < _MAX_CALLS and self._watch.notable(act):
            self.acts.append(act)
        if name in _OPENS:
            self._opened[pid] += 1
            if self._opened[pid] > 0 and self._opened[pid] % _SOMETIMES == 0:
                self._count(pid, call)

    def _count(self, pid: int, call: int) -> None:
        """Record if a process has nearly as many descriptors as its limit allows."""
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended, or has no limit
            limits = Path(f"/proc/{pid}/limits").read_bytes()
            most = int(limits.partition(b"Max open files")[2].split()[0])
            there = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  counted often
            if there >= most - 2 * _SOMETIMES:
                self.acts.append(ObservedCall(pid, call, DESCRIPTORS, (there, most), refused=False))
                self._opened[pid] = -(1 << 20)  # once is enough


async def find_survivors(first: int, linger_s: float) -> tuple[str, ...]:
    """The command lines of processes below ``first`` that still run after ``linger_s`` seconds, if any."""
    give_up = time.monotonic() + linger_s
    while True:
        states = {pid: process_tree.stat(pid)[0] for pid in process_tree.descendants([first])}
        running = [pid for pid, state in states.items() if state not in {b"", b"Z", b"X"}]
        if not running:
            return ()
        if time.monotonic() >= give_up:
            return tuple(map(_read_command_line, running[:_MAX_CALLS]))
        await asyncio.sleep(_POLL_S)


def _read_command_line(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "?"
    return words.replace(b"\0", b" ").decode("utf-8", "replace")[:200].strip() or "?"
