"""Environments of their own for other projects' released packages, with this checkout in them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_CACHE = ROOT / ".cache" / "peers"


def install_peer(*requirements: str, alone: str = "", extras: str = "") -> Path:
    """Return the Python of an environment with these packages and this checkout; skip where no index is reachable.

    Args:
        requirements: the packages; the first one names the environment.
        alone: a package that is installed without its dependencies.
        extras: of this checkout.
    """
    words = [*requirements, alone, extras, (ROOT / "pyproject.toml").read_text()]
    digest = hashlib.sha256(" ".join(words).encode()).hexdigest()[:12]
    folder = _CACHE / f"{requirements[0].partition('==')[0]}-{digest}"
    python = folder / "bin/python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, str(folder)], check=True)
        argv = [uv, "pip", "install", "-q", "--python", str(python)]
        checkout = f"{ROOT}[{extras}]" if extras else str(ROOT)
        done = subprocess.run([*argv, *requirements, "-e", checkout], capture_output=True, text=True, check=False)
        if alone and not done.returncode:
            done = subprocess.run([*argv, "--no-deps", alone], capture_output=True, text=True, check=False)
        if done.returncode and not os.environ.get("CI"):
            pytest.skip(f"{requirements[0]} cannot be installed: {done.stderr.strip()[-300:]}")
        assert done.returncode == 0, done.stderr
        (folder / "ready").touch()
    return python


def run_peer(python: Path, *argv: str, cwd: Path, limit_s: float = 300) -> subprocess.CompletedProcess[str]:
    """Run a program there, in an empty home."""
    environ = {"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin", "HOME": str(cwd), "LANG": "C.UTF-8"}
    return subprocess.run(
        [python, *argv], cwd=cwd, env={**environ, "MSWEA_SILENT_STARTUP": "1"}, capture_output=True, text=True,
        check=False, timeout=limit_s,
    )  # fmt: skip
