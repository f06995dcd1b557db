"""Checks of ``doctor`` that several backends need: installed packages, programs, and the clock."""

from __future__ import annotations

import asyncio
import email.utils
import importlib.metadata
import shutil
import time
from typing import TYPE_CHECKING

from hermes_exec.backend import Check
from hermes_exec.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Sequence

_SKEW_S = 60.0


def check_package(package: str, extra: str, *, tested: str = "", name: str = "sdk") -> Check:
    """Check that a package is installed, in the ``tested`` release line if one is given."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, "missing", f"the package {package!r} is not installed", install_command(extra))
    if tested and not f"{version}.".startswith(f"{tested}."):
        detail = f"{package} {version}; this is tested with {tested}"
        return Check(name, "warning", detail, install_command(extra, upgrade=True))
    return Check(name, "ok", f"{package} {version}")


def find_program(names: Sequence[str], named: str | None, remedy: str) -> str | Check:
    """Return the path of the program ``named`` by a profile, else of the first of ``names``; or the failed check."""
    path = next((found for name in ([named] if named else names) if (found := shutil.which(name))), None)
    if path:
        return path
    if named:
        return Check("program", "missing", f"there is no program {named!r}", "another `program`, or leave it out")
    neither = names[0] if len(names) == 1 else f"program {' or '.join(names)}"
    return Check("program", "missing", f"no {neither} on the PATH", remedy)


async def run_program(argv: Sequence[str]) -> tuple[int | None, str, str]:
    """Run a program without input; return its exit code, its output, and its error output."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, complaint = await process.communicate()
    return process.returncode, out.decode("utf-8", "replace").strip(), complaint.decode("utf-8", "replace").strip()


def check_clock(date: str) -> Check:
    """Compare the clock with ``date``, the Date header of a service's response."""
    try:
        ahead_s = time.time() - email.utils.parsedate_to_datetime(date).timestamp()
    except ValueError:
        return Check("clock", "ok", "the service sends no date to compare with")
    if abs(ahead_s) > _SKEW_S:
        detail = f"keys seem expired or not valid yet: this clock is {abs(ahead_s):.0f} s "
        return Check(
            "clock", "warning", detail + ("ahead" if ahead_s > 0 else "behind"), "sudo timedatectl set-ntp true"
        )
    return Check("clock", "ok", f"within {max(1, abs(ahead_s)):.0f} s of the service's")
