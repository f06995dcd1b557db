"""Read the kernel's view of a process in a sandbox from outside, where no program in the sandbox can falsify it.

It is read while the process waits to become the program: it is confined already, and no untrusted code has run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hermes_exec.errors import PlaceUnavailable

_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The credentials, namespaces, mounts and limits of one process."""

    pid: int
    """Its number outside the sandbox."""
    seccomp: int
    """2 with a filter, 0 without."""
    no_new_privs: bool
    caps: dict[str, int]
    """Its five sets of capabilities, by the names of /proc/PID/status."""
    label: str
    """The label of the security module; empty without one."""
    next_label: str
    """The label that it gets with the next exec."""
    namespaces: dict[str, int]
    """Inode numbers of its namespaces."""
    mounts: tuple[str, ...]
    """The lines of its mountinfo."""
    cgroup: tuple[str, ...]
    uid_map: tuple[str, ...]
    gid_map: tuple[str, ...]
    uids: tuple[int, int, int, int]
    """Real, effective, saved and file system user, as seen from outside."""
    gids: tuple[int, int, int, int]
    groups: tuple[int, ...]
    rlimits: tuple[str, ...]
    """The lines of its limits."""


def read_facts(pid: int) -> ProcessFacts:
    """Read the facts of a process.

    Raises:
        PlaceUnavailable: the process has ended, or we lack the permission to read it.
    """
    folder = Path("/proc", str(pid))
    try:
        status = _status(folder)
        return ProcessFacts(
            pid=pid,
            seccomp=int(status.get("Seccomp", "0")),
            no_new_privs=status["NoNewPrivs"] == "1",
            caps={name: int(status[name], 16) for name in _CAPABILITIES},
            label=_label(folder, "current"),
            next_label=_label(folder, "exec"),
            namespaces={name: os.stat(folder / "ns" / name).st_ino for name in _NAMESPACES},  # noqa: PTH116  a magic link
            mounts=_lines(folder / "mountinfo"),
            cgroup=_lines(folder / "cgroup"),
            uid_map=_lines(folder / "uid_map"),
            gid_map=_lines(folder / "gid_map"),
            uids=_four(status["Uid"]),
            gids=_four(status["Gid"]),
            groups=tuple(map(int, status["Groups"].split())),
            rlimits=_lines(folder / "limits"),
        )
    except (OSError, KeyError, ValueError) as error:
        raise PlaceUnavailable(f"the process {pid} of a sandbox cannot be read from outside: {error}") from error


def _status(folder: Path) -> dict[str, str]:
    lines = _lines(folder / "status")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _lines(file: Path) -> tuple[str, ...]:
    return tuple(file.read_text(encoding="utf-8", errors="surrogateescape").splitlines())


def _label(folder: Path, name: str) -> str:
    for file in (folder / "attr/apparmor" / name, folder / "attr" / name):
        try:
            return file.read_text(encoding="utf-8", errors="replace").rstrip("\0\n")
        except OSError:
            continue  # without a security module the file exists and cannot be read
    return ""


def _four(text: str) -> tuple[int, int, int, int]:
    first, second, third, fourth = map(int, text.split())
    return first, second, third, fourth
