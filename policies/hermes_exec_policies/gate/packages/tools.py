"""Unpack wheels with pip, in a sandbox that has only the wheels and a folder for the result."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.extras import missing_extra
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.sandbox.host import this_machine
from hermes_exec_policies.confinement import build_confinement
from hermes_exec_policies.gate.launch import PYTHON, SKILLS
from hermes_exec_policies.gate.verdict import SkillRefused, functional
from hermes_exec_policies.load import override_policy

if TYPE_CHECKING:
    from hermes_exec_policies.model import Policy

PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
PIP = ("pip",)
_WHEELS, _PIP = f"{SKILLS}/.wheels", f"{SKILLS}/.pip"
_ROOM = {
    "limits": {
        "disk": "2 GiB", "file_size": "1 GiB", "inodes": 100_000, "memory": "3 GiB", "cpu_time": 600.0, "time": 600.0,
    }
}  # fmt: skip
_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pip._internal.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


async def unpack_wheels(policy: Policy, wheels: Path, pip: Path, into: Path) -> Path:
    """Unpack the wheels that ``lock.txt`` in ``wheels`` lists into a new folder below ``into``.

    Raises:
        SkillRefused: a wheel is broken, or does not match its hash.
        Unsupported: a required rule cannot be enforced here.
        PlaceUnavailable: no sandbox can be created.
    """
    roomy = override_policy(policy, _ROOM)
    readonly = {str(wheels): _WHEELS, str(pip): _PIP}
    confinement, limits = build_confinement(roomy, this_machine(), readonly=readonly)
    words = ["install", "--isolated", "--no-index", "--find-links", _WHEELS, "--require-hashes", "--no-deps"]
    words += ["--no-compile", "--no-cache-dir", "--disable-pip-version-check", "--no-warn-script-location", "--quiet"]
    words += ["--only-binary", ":all:", "--target", "/app/data/packages", "-r", f"{_WHEELS}/lock.txt"]
    argv = [PYTHON, "-I", "-S", "-B", "-c", _PROGRAM, _PIP, *words]
    async with await start(confinement, argv, limits=dataclasses.replace(limits, output=1 << 20)) as run:
        run.go()
        ended = await run.wait()
        if ended.exit.code != 0:
            said = " ".join(ended.stderr.decode("utf-8", "replace").split())[-300:]
            raise SkillRefused(
                functional("dependencies.unpack", f"its packages cannot be unpacked: {said or ended.limit}")
            )
        run.collect("/app/data", into / "data", max_bytes=2 << 30, max_files=100_000)
    packages = into / "data" / "packages"
    if (packages / "bin").is_dir():
        shutil.rmtree(packages / "bin")  # scripts of packages, whose interpreter does not exist
    return packages


def copy_tools(parent: Path, names: tuple[str, ...] = PYTEST) -> Path:
    """Return the folder with the packages ``names``, created below ``parent`` if it does not exist.

    Raises:
        MissingExtra: one of them is not installed.
    """
    try:
        found = [distribution(name) for name in names]
    except PackageNotFoundError as error:
        raise missing_extra("skills", str(error.name), "to judge skills") from error
    key = " ".join(f"{each.name}={each.version}" for each in found)
    target = parent / f"tools-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if target.is_dir():
        return target
    parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
    for each in found:
        for file in each.files or ():
            if file.parts[0] != ".." and file.suffix != ".pyc":
                to = made / str(file)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(file.locate()), to)
    for path in (made, *made.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with contextlib.suppress(OSError):  # another process was faster
        os.rename(made, target)  # noqa: PTH104  it must not replace
    shutil.rmtree(made, ignore_errors=True)
    return target
