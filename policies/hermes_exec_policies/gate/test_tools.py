"""Folders with pytest and pip for sandboxes, copied from those that are installed beside us."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from hermes_exec.extras import missing_extra

PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
PIP = ("pip",)


def tools(parent: Path, names: tuple[str, ...] = PYTEST) -> Path:
    """The folder of ``names``, made below ``parent`` where it is not there yet.

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
    with contextlib.suppress(OSError):  # somebody else was faster
        os.rename(made, target)  # noqa: PTH104  it must not replace
    shutil.rmtree(made, ignore_errors=True)
    return target
