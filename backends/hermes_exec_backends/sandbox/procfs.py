"""A process as the kernel shows it to us from outside, which nothing that runs in a sandbox can change.

Read while the process waits for the word to become the program: it is confined already, and nothing foreign has run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hermes_exec.errors import PlaceUnavailable

_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


@dataclass(frozen=True, slots=True)
class Facts:
    """What one process is, and what holds it."""

    pid: int
    """Its number outside."""
    seccomp: int
    """2 is a filter, 0 is none."""
    no_new_privs: bool
    caps: dict[str, int]
    """Its five sets of capabilities, by the names of /proc/PID/status."""
    label: str
    """That of the security module; empty where there is none."""
    next_label: str
    """The one that it gets when it becomes the program."""
    namespaces: dict[str, int]
    """The numbers of its namespaces."""
    mounts: tuple[str, ...]
    """The lines of its mountinfo."""
    cgroup: tuple[str, ...]
    uid_map: tuple[str, ...]
    gid_map: tuple[str, ...]
    uids: tuple[int, int, int, int]
    """Real, effective, saved and of the file system, as seen from outside."""
    gids: tuple[int, int, int, int]
    groups: tuple[int, ...]
    rlimits: tuple[str, ...]
    """The lines of its limits."""


def read(pid: int) -> Facts:
    """Read all of it.

    Raises:
        PlaceUnavailable: the process has ended, or the kernel does not show it to us.
    """
    folder = Path("/proc", str(pid))
    try:
        status = _status(folder)
        return Facts(
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
        raise PlaceUnavailable(f"the process {pid} of a sandbox cannot be looked at from outside: {error}") from error


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
            continue  # without such a module the file is there, and cannot be read
    return ""


def _four(text: str) -> tuple[int, int, int, int]:
    first, second, third, fourth = map(int, text.split())
    return first, second, third, fourth
