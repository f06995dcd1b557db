"""What ``doctor`` says of Singularity and Apptainer on this machine."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.backend import Check
from hermes_exec_backends.sandbox.host import forbidden, read_settings
from hermes_exec_backends.singularity.backend import PROGRAMS

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.singularity import SingularityProfile

_LIMITS = {"cpus": "cpu", "memory": "memory", "pids": "pids"}
"""The controller that enforces each limit of a container."""
_STARTER = "/usr/libexec/{}/bin/starter"
"""What makes its namespaces, which a profile has to name."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MOUNTERS = ("squashfuse_ll", "squashfuse")


def check_limits(root: Path, uid: int) -> Check:
    """What enforces the limits of this user's containers: systemd, in control groups of version 2 that it hands on."""
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
    """Look for the program, for what mounts image files, and for what this user may do."""
    named = profile.program if profile else None
    path = next((found for name in ([named] if named else PROGRAMS) if (found := shutil.which(name))), None)
    if path is None and named:
        return [Check("program", "missing", f"there is no program {named!r}", "another `program`, or leave it out")]
    if path is None:
        remedy = "install Apptainer, or use it elsewhere: via = 'ssh://HOST'"
        return [Check("program", "missing", "neither apptainer nor singularity is on the PATH", remedy)]
    process = await asyncio.create_subprocess_exec(
        path,
        "--version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, complaint = await process.communicate()
    said = out.decode("utf-8", "replace").strip()
    if process.returncode != 0:
        why = " ".join(_COLOURS.sub("", complaint.decode("utf-8", "replace")).split())
        return [Check("program", "missing", f"{path} does not run: {why}", "install it again")]
    checks = [Check("program", "ok", f"{said} at {path}")]
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
    """A warning where a distribution keeps user namespaces from ordinary users."""
    why = forbidden(read_settings(settings), _STARTER.format(program), program)
    return [] if why is None else [Check("namespaces", "warning", why.reason, f"{why.remedy}, unless its package did")]
