"""The layers of a sandbox, and how each is switched off; a proof has to notice that it is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_exec_backends.sandbox import Confinement, Tmpfs

if TYPE_CHECKING:
    from collections.abc import Callable

QUICK = {"limits": dict.fromkeys(("time", "output", "memory", "processes"), "unlimited")}
"""Of a policy without the limits that need a twin each, for what is not about them."""


def _runnable(made: Confinement) -> Confinement:
    folders = [Tmpfs(target=each.target, size=each.size, inodes=each.inodes, executable=True) for each in made.tmpfs]
    return replace(made, tmpfs=tuple(folders))


def _larger(made: Confinement) -> Confinement:
    return replace(made, tmpfs=tuple(replace(each, size=1 << 30, inodes=1 << 20) for each in made.tmpfs))


def _without(name: str) -> Callable[[Confinement], Confinement]:
    return lambda made: replace(made, namespaces=made.namespaces - {name})


LAYERS: dict[str, tuple[Callable[[Confinement], Confinement], str]] = {
    "seccomp": (lambda made: replace(made, seccomp=b"", filter_document=""), "syscalls.filtered"),
    "landlock": (lambda made: replace(made, landlock=None), "lsm"),
    "noexec": (_runnable, "files.run"),
    "limits of processes": (lambda made: replace(made, rlimits=()), "limits.open_files"),
    "sizes of folders": (_larger, "limits.disk"),
    "masks": (lambda made: replace(made, masked=()), "files.masked"),
    "network": (_without("net"), "network.isolated"),
    "ipc": (_without("ipc"), "processes.ipc"),
    "environment": (lambda made: replace(made, env=(*made.env, ("AWS_SECRET", "x"))), "environment.cleared"),
    "user": (lambda made: replace(made, uid=0, gid=0), "user.ordinary"),
}
"""How each is lost, and the rule that is then found broken."""

ALWAYS = {"singularity": {"ipc", "user"}}
"""Layers that cannot be left out of a kind of place: Apptainer makes that namespace itself, and no root is let in."""
