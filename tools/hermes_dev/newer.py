"""Packages of a newer suite of Debian, from the archive that this machine's apt is set up with.

The machine's sources and its lists of packages stay as they are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from hermes_dev.place import DevError, environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def find_archive() -> str | None:
    """Where this machine's apt has Debian's own archive; None where it has none, as on Ubuntu."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)|$(ORIGIN)|$(LABEL)", "Created-By: Packages"]
    archives = [line.split("|") for line in run(targets).splitlines()]
    return next((uri for uri, origin, label in archives if origin == label == "Debian"), None)


def download(package: str, suite: str, folder: Path) -> Path:
    """Fetch a package of a suite into a folder, and return its file.

    Raises:
        DevError: this machine has no archive of Debian, or it has no such package.
    """
    uri = find_archive()
    if uri is None:
        raise DevError(f"no Debian archive is configured here. Try: apt-get update, or install {package} by hand")
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (folder / "sources.list").write_text(f"deb [signed-by={key}] {uri} {suite} main\n", encoding="utf-8")
    (folder / "status").touch()
    settings = {
        "Dir::Etc::sourcelist": f"{folder}/sources.list",
        "Dir::Etc::sourceparts": os.devnull,
        "Dir::Etc::preferences": os.devnull,
        "Dir::Etc::preferencesparts": os.devnull,
        "Dir::State::lists": f"{folder}/lists",
        "Dir::State::status": f"{folder}/status",
        "Dir::Cache::archives": f"{folder}/archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",
        "Acquire::Check-Valid-Until": "false",  # a mirror that stands still for some days is good enough
        "Acquire::Languages": "none",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    for old in folder.glob(f"{package}_*.deb"):
        old.unlink()
    run(["apt-get", *options, "-qq", "update"])
    run(["apt-get", *options, "-qq", "download", package], folder)
    shutil.rmtree(folder / "lists")
    return next(folder.glob(f"{package}_*.deb"))


def run(argv: Sequence[str], cwd: Path | None = None) -> str:
    """Run a program to its end, and return its output.

    Raises:
        DevError: it failed.
    """
    done = subprocess.run(
        argv,
        check=False,
        cwd=cwd,
        env={**environment(), "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise DevError(f"{' '.join(argv[:2])} failed: {done.stderr.strip()[-400:]}")
    return done.stdout
