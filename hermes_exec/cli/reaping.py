"""Remove what is left of guests that were killed together with their keepers: folders and processes.

A guest is gone when nothing listens at the door in its folder. Its live shells are known by that folder in
their argv; its runners are orphans with the guest's own argv and nothing but a torn socket. All that
descends from these goes too, for shells and runners are the subreapers of what they start.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.guest import tree
from hermes_exec.guest.folders import remove_folder

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

_NAME = re.compile(r"hx-([0-9a-f]{16})")
_NONCE = re.compile(rb"<hx [0-9a-f]{24}>")
_STARTING_S = 60.0
"""A folder without a door is a guest's that starts, unless it is older."""
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Swept:
    """What was done about one guest, or (``folder`` is empty) about programs whose guest is not known."""

    folder: str
    ended: tuple[int, ...]
    """The processes that were killed."""
    left: str
    """What could not be removed, and why; empty when everything is gone."""


def reap(only: Container[str] | None = None) -> list[Swept]:
    """Kill and remove all that gone guests of this user left on this machine.

    ``only`` names the guests (16 hexadecimal digits) that are looked at, and leaves orphaned runners alone.
    """
    swept: list[Swept] = []
    guests = _folders()
    for name in sorted(guests):
        if (only is None or name in only) and not _is_alive(guests[name]):
            ended, left = _kill(_shells_of(name))
            swept += [Swept(folder, (), _remove(folder)) for folder in guests[name][1:]]
            swept.append(Swept(guests[name][0], ended, left or _remove(guests[name][0])))
    if only is None:
        ended, left = _kill(_orphaned_runners())
        if ended or left:
            swept.append(Swept("", ended, left))
    return swept


def _folders() -> dict[str, list[str]]:
    """The folders of each guest, by its name: one at run time, at times one on disk."""
    bases = dict.fromkeys(
        (f"/run/user/{os.getuid()}", "/dev/shm", "/tmp", "/var/tmp", os.environ.get("TMPDIR", ""))  # noqa: S108  where guests are, looked at only
    )
    found: dict[str, list[str]] = {}
    for base in filter(os.path.isdir, bases):
        for entry in os.scandir(base):
            match = _NAME.fullmatch(entry.name)
            if match and entry.is_dir(follow_symlinks=False) and entry.stat().st_uid == os.getuid():
                found.setdefault(match[1], []).append(entry.path)
    return found


def _is_alive(folders: list[str]) -> bool:
    for folder in folders:
        door = Path(folder, "door")
        if door.exists():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
                knocking.setblocking(False)
                if knocking.connect_ex(str(door)) == 0:
                    return True
    newest = max(Path(folder).stat().st_mtime for folder in folders)
    return not any(Path(folder, "door").exists() for folder in folders) and time.time() - newest < _STARTING_S


def _ours() -> Iterator[tuple[int, bytes]]:
    """The processes of this user with their argv, without us and those that we are below of."""
    above: set[int] = set()
    pid = os.getpid()
    while pid > 1:
        above.add(pid)
        pid = tree.stat(pid)[1]
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) not in above:
            argv = _argv(int(entry.name))
            if argv and _owner(entry.path) == os.getuid():
                yield int(entry.name), argv


def _argv(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _owner(path: str) -> int:
    try:
        return Path(path).stat().st_uid
    except OSError:
        return -1


def _shells_of(name: str) -> list[int]:
    mark = f"/hx-{name}/".encode()
    return [pid for pid, argv in _ours() if mark in argv]


def _orphaned_runners() -> list[int]:
    found: list[int] = []
    for pid, argv in _ours():
        nonce = _NONCE.search(argv)
        if nonce and _is_runner(pid) and nonce[0] not in _argv(tree.stat(pid)[1]):
            found.append(pid)
    return found


def _is_runner(pid: int) -> bool:
    """A runner has /dev/null three times and its socket; no other process with a guest's argv has that."""
    try:
        links = {int(fd.name): str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    except OSError:
        return False
    plain = all(links.pop(number, "") == os.devnull for number in (0, 1, 2))
    return plain and [link.partition(":")[0] for link in links.values()] == ["socket"]


def _kill(pids: list[int]) -> tuple[tuple[int, ...], str]:
    """Kill these and all below them; gives those that were killed, and a complaint if some live on."""
    roots = tree.living(pids)
    for root in roots:
        tree.send(root, signal.SIGSTOP)  # or a shell goes on to its next command when one is killed
    ended: set[int] = set()
    give_up = time.monotonic() + _PATIENCE_S
    while True:
        standing = [pid for pid, _ in tree.still(roots)]
        # Those below first: what they start meanwhile then still has its root above it, and is found.
        left = tree.living(tree.descendants(standing)) or tree.living(standing)
        if not left:
            return tuple(sorted(ended)), ""
        if time.monotonic() > give_up:
            return tuple(sorted(ended)), f"processes that cannot be ended: {sorted(pid for pid, _ in left)}"
        for process in left:
            tree.send(process, signal.SIGKILL)
            ended.add(process[0])
        time.sleep(0.005)


def _remove(folder: str) -> str:
    try:
        remove_folder(folder)
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    return f"{folder} is still there" if Path(folder).exists() else ""
