"""Environments of their own for other projects' released packages, with this checkout in them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
_CACHE = ROOT / ".cache" / "peers"
_QUIET = {"MSWEA_SILENT_STARTUP": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "off"}
"""Let peers print less, and send and fetch nothing: prices would take ten seconds of each start."""


def find_python(newest: int = 14, oldest: int = 12) -> str:
    """Return a Python 3 between two minor versions; skip where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    names = [f"python3.{minor}" for minor in range(newest, oldest - 1, -1)]
    found = [str(path) for name in names for path in pyenv.glob(f"versions/*/bin/{name}")]
    found += [path for name in names if (path := shutil.which(name))]
    for python in found:
        if subprocess.run([python, "-I", "-c", ""], check=False, capture_output=True).returncode == 0:
            return python
    pytest.skip(f"needs a Python 3.{oldest} to 3.{newest}. Try: uv python install 3.{oldest}")


def install_peer(
    *requirements: str, alone: str = "", extras: str = "", interpreter: str = sys.executable, checkout: bool = True
) -> Path:
    """Return the Python of an environment with these packages and this checkout; skip where no index is reachable.

    Args:
        requirements: the packages; the first one names the environment.
        alone: a package that is installed without its dependencies.
        extras: of this checkout.
        interpreter: the Python of the environment.
        checkout: whether this checkout is installed as well.
    """
    ours = (ROOT / "pyproject.toml").read_text() if checkout else ""
    words = [*requirements, alone, extras, interpreter, ours]
    digest = hashlib.sha256(" ".join(words).encode()).hexdigest()[:12]
    folder = _CACHE / f"{re.split('[=<>]', requirements[0])[0]}-{digest}"
    python = folder / "bin/python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "-q", "--python", interpreter, str(folder)], check=True)
        argv = [uv, "pip", "install", "-q", "--python", str(python)]
        own = ["-e", f"{ROOT}[{extras}]" if extras else str(ROOT)] if checkout else []
        done = subprocess.run([*argv, *requirements, *own], capture_output=True, text=True, check=False)
        if alone and not done.returncode:
            done = subprocess.run([*argv, "--no-deps", alone], capture_output=True, text=True, check=False)
        if done.returncode and not os.environ.get("CI"):
            pytest.skip(f"{requirements[0]} cannot be installed: {done.stderr.strip()[-300:]}")
        assert done.returncode == 0, done.stderr
        (folder / "ready").touch()
    return python


def run_peer(
    python: Path, *argv: str, cwd: Path, limit_s: float = 300, more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program there, in an empty home; ``more`` are variables."""
    environ = {
        **dict(more or {}),
        "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin",
        "HOME": str(cwd),
        "LANG": "C.UTF-8",
    }
    return subprocess.run(
        [python, *argv], cwd=cwd, env={**environ, **_QUIET}, capture_output=True, text=True,
        check=False, timeout=limit_s,
    )  # fmt: skip
