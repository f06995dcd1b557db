"""The limits of one command: its control groups, its setrlimit(2) bounds, and which of them ended it.

A control group counts all processes of a command together; setrlimit(2) bounds each process separately. A group has
no limit of CPU time, so the guest checks the group's clock, no earlier than the time can be used up.
"""

import _signal
import os
import resource

from ..core import process_tree
from ..core.process_tree import read_file
from ..shell.shell_text import quote
from . import cgroups, rlimits
from .cgroups import CPU, MEMORY, PROCESSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..core.loop import Loop

FILE_SIZE, OPEN_FILES = "file_size", "open_files"
_FLAGS = {
    resource.RLIMIT_CPU: b"t",
    resource.RLIMIT_DATA: b"d",
    resource.RLIMIT_AS: b"v",
    resource.RLIMIT_NPROC: b"u",
    resource.RLIMIT_FSIZE: b"f",
    resource.RLIMIT_NOFILE: b"n",
}
_KIBIBYTES = (resource.RLIMIT_DATA, resource.RLIMIT_AS)
_LOOK_S = 0.02
_GRACE_S = 1.0


class CommandLimits:
    """The limits of one command, with the groups created for it."""

    def __init__(
        self, loop: "Loop", limits: "dict[str, Any]", groups: "dict[str, tuple[cgroups.CgroupParent, str]]"
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._groups = groups
        self._folders = sorted({folder for _, folder in groups.values()})
        self._rlimits: "list[tuple[int, int, int]]" = []
        self._hit = False
        self._refusal = ""
        self._pause = _LOOK_S

    @property
    def removed(self) -> bool:
        """Whether all of its groups are removed."""
        return not self._folders

    def set_limits(self, memory: int, processes: int) -> None:
        """Set the groups' limits, and compute setrlimit(2) values where there is no group."""
        for kind, value in self._limits.items():
            if kind in self._groups:
                self._limit_group(kind, value)
            elif kind == MEMORY:
                self._add(memory, value)
            elif kind == PROCESSES:
                self._add(resource.RLIMIT_NPROC, processes + value)
            elif kind == FILE_SIZE:
                self._add(resource.RLIMIT_FSIZE, value)
            elif kind == OPEN_FILES:
                self._add(resource.RLIMIT_NOFILE, value)
            if kind == CPU:  # bounds each process, in addition to the check of the group
                seconds = int(-(-value // 1))
                self._add(resource.RLIMIT_CPU, seconds, seconds + 1)  # SIGXCPU first, SIGKILL one second later

    def _add(self, number: int, soft: int, hard: "int | None" = None) -> None:
        self._rlimits.append(rlimits.clamp(number, soft, soft if hard is None else hard))

    def _limit_group(self, kind: str, value: int) -> None:
        home, folder = self._groups[kind]
        if kind != CPU:
            cgroups.write("{}/{}".format(folder, home.file(kind)), str(value).encode())
        if kind == MEMORY:
            swap = ("memory.memsw.limit_in_bytes", value) if home.version == 1 else ("memory.swap.max", 0)
            try:
                cgroups.write("{}/{}".format(folder, swap[0]), str(swap[1]).encode())
            except OSError:
                pass  # the kernel does not count swap

    def spec(self) -> "dict[str, Any]":
        """Return the limits that a runner's child applies to itself before it becomes the program."""
        return {"join": [folder + "/cgroup.procs" for folder in self._folders], "rlimits": self._rlimits}

    def text(self, bash: bool, folder: str) -> bytes:
        """Return shell text that applies the limits to a subshell; on failure, nothing else runs in it."""
        self._refusal = folder + "/refused"
        builtin = b"\\builtin " if bash else b"\\command "
        join = builtin + b"echo 0 >|"
        steps = [join + quote(os.fsencode(path + "/cgroup.procs")) for path in self._folders]
        steps += [_ulimit(builtin, bash, *bounds) for bounds in self._rlimits]
        return b"{ %b; } 2>/dev/null || { >|%b; \\exit 126; };" % (
            b" && ".join(steps),
            self._refusal.encode(),
        )

    def begin(self) -> None:
        """Start checking the CPU time."""
        if CPU in self._groups:
            self._look()

    def _read_used_s(self) -> float:
        home, folder = self._groups[CPU]
        if home.version == 1:
            return int(read_file(folder + "/cpuacct.usage") or 0) / 1e9
        return cgroups.counter(folder + "/cpu.stat", b"usage_usec") / 1e6

    def _look(self) -> None:
        if self.removed:
            return
        left = self._limits[CPU] - self._read_used_s()
        if left > 0:
            self._loop.call_later(max(_LOOK_S, left / (os.cpu_count() or 1)), self._look)
            return
        self._hit = True
        self._kill(_signal.SIGXCPU)
        self._loop.call_later(_GRACE_S, self._kill_on)

    def _kill_on(self) -> None:
        if not self.removed and self._kill(_signal.SIGKILL):
            self._loop.call_later(_LOOK_S, self._kill_on)

    def _kill(self, number: int) -> bool:
        pids = [int(pid) for pid in read_file(self._groups[CPU][1] + "/cgroup.procs").split()]
        for process in process_tree.living_processes(pids):
            process_tree.send(process, number)
        return bool(pids)

    def end(self, answer: "dict[str, Any]") -> None:
        """Report the limit that ended the command in its answer, and release the groups."""
        if self._refusal and os.path.exists(self._refusal):
            os.unlink(self._refusal)
            answer.update(error="unsupported", errno=1, message="its limits could not be set, so it was not started")
        elif "error" not in answer:
            limit = self._verdict(answer)
            if limit:
                answer["limit"] = limit
        self._remove_on()

    def _verdict(self, answer: "dict[str, Any]") -> str:
        if self._hit:
            return CPU
        if "timed_out" in answer or "cancelled" in answer or answer.get("code") == 0:
            return ""
        for kind, files, name in (
            (MEMORY, ("", "memory.oom_control", "memory.events"), b"oom_kill"),
            (PROCESSES, ("", "pids.events", "pids.events"), b"max"),
        ):
            home, folder = self._groups.get(kind, (None, ""))
            if kind in self._limits and home and cgroups.counter("{}/{}".format(folder, files[home.version]), name):
                return kind
        number = answer.get("signal") or answer.get("code", 0) - 128  # a shell reports the signal of its child so
        for kind, signal in ((CPU, _signal.SIGXCPU), (FILE_SIZE, _signal.SIGXFSZ)):
            if kind in self._limits and number == signal:
                return kind
        return ""

    def _remove_on(self) -> None:
        """Remove the groups once the command's background processes are gone."""
        if not self.remove():
            self._pause = min(2 * self._pause, 5.0)
            self._loop.call_later(self._pause, self._remove_on)

    def remove(self) -> bool:
        """Remove the groups if they are empty; return whether they are gone."""
        self._folders = [folder for folder in self._folders if not cgroups.remove(folder)]
        return self.removed


def _ulimit(builtin: bytes, bash: bool, number: int, soft: int, hard: int) -> bytes:
    def text(flag: bytes, unit: int = 1) -> bytes:
        step = builtin + b"ulimit -%b -%b %d"
        return step % (b"S", flag, soft // unit) + b" && " + step % (b"H", flag, hard // unit)

    flag = _FLAGS[number]
    if number == resource.RLIMIT_FSIZE:  # POSIX counts in blocks of 512 bytes
        choice = b"case :$SHELLOPTS: in *:posix:*) %b;; *) %b;; esac"
        return choice % (text(flag, 512), text(flag, 1024)) if bash else text(flag, 512)
    if number == resource.RLIMIT_NPROC and not bash:
        return b"{ { %b; } || { %b; }; }" % (text(b"p"), text(flag))
    return text(flag, 1024 if number in _KIBIBYTES else 1)
