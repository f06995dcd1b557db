"""Checks of ``doctor`` for Singularity and Apptainer on this machine."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.backend import Check
from hermes_exec_backends._shared.doctor import find_program, run_program
from hermes_exec_backends.sandbox.host import find_restriction, read_sysctls
from hermes_exec_backends.singularity.options import PROGRAMS

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.singularity import SingularityProfile

_LIMITS = {"cpus": "cpu", "memory": "memory", "pids": "pids"}
"""The controller that enforces each limit of a container."""
_STARTER = "/usr/libexec/{}/bin/starter"
"""The program that creates the namespaces, which an AppArmor profile has to name."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MOUNTERS = ("squashfuse_ll", "squashfuse")


def check_limits(root: Path, uid: int) -> Check:
    """Check that systemd enforces the limits of this user's containers, in delegated control groups of version 2."""
    own = "" if uid == 0 else f"user.slice/user-{uid}.slice/user@{uid}.service"
    try:
        controllers = (root / "sys/fs/cgroup" / own / "cgroup.controllers").read_text().split()
    except OSError:
        controllers = []
    runs = (root / "run/systemd/system").exists()
    lacks = [name for name, controller in _LIMITS.items() if not runs or controller not in controllers]
    if not lacks:
        return Check("limits", "ok", f"{', '.join(_LIMITS)} by cgroup v2, through systemd")
    return Check("limits", "warning", f"nothing enforces {', '.join(lacks)} of a container", "limit each command")


async def examine(profile: SingularityProfile | None = None) -> list[Check]:
    """Check the program, the mounting of image files, and the permissions of this user."""
    remedy = "install Apptainer, or use it elsewhere: via = 'ssh://HOST'"
    path = find_program(PROGRAMS, profile.program if profile else None, remedy)
    if isinstance(path, Check):
        return [path]
    code, version, complaint = await run_program([path, "--version"])
    if code != 0:
        why = " ".join(_COLOURS.sub("", complaint).split())
        return [Check("program", "missing", f"{path} does not run: {why}", "install it again")]
    checks = [Check("program", "ok", f"{version} at {path}")]
    if any(map(shutil.which, _MOUNTERS)):
        checks.append(Check("images", "ok", "image files are mounted by squashfuse"))
    else:
        checks.append(Check("images", "warning", "image files have to be unpacked at each start", "install squashfuse"))
    checks.append(check_limits(Path("/"), os.geteuid()))
    if os.geteuid() != 0:
        text = "in a user namespace no system call is filtered"
        checks.append(Check("seccomp", "warning", text, "security = ['seccomp:FILE']"))
    return [*checks, *namespaces(Path("/proc/sys"), Path(path).name)]


def namespaces(settings: Path, program: str) -> list[Check]:
    """Return a warning where the distribution forbids user namespaces to ordinary users."""
    why = find_restriction(read_sysctls(settings), _STARTER.format(program), program)
    return [] if why is None else [Check("namespaces", "warning", why.reason, f"{why.remedy}, unless its package did")]
