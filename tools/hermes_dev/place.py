"""Where things are in this checkout, how a child is started, and how a line is said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
LOCK = ROOT / "dev.lock"
SOURCES = ("hermes_exec", "backends", "policies", "agent", "tests", "tools", "benchmarks", "examples")


class DevError(Exception):
    """Something that ends ``./dev`` with one line and exit code 1."""


class UsageError(DevError):
    """The same, with exit code 2: the call itself cannot be right."""


def say(text: str) -> None:
    """Tell the person one line, at once and out of the way of a child's output."""
    print(f"dev: {text}", file=sys.stderr, flush=True)


def venv() -> Path:
    """The environment in use: ``.venv``, or ``.venv-3.13`` and the like when ``$PYTHON`` chose the Python.

    A second one, so that trying another Python never takes the first away from a run that uses it.
    """
    if os.environ.get("PYTHON"):
        return ROOT / f".venv-{sys.version_info.major}.{sys.version_info.minor}"
    return ROOT / ".venv"


def venv_python() -> str:
    """The environment's interpreter."""
    return str(venv() / "bin" / "python")


def environment() -> dict[str, str]:
    """The environment of every child: ours, without what bends Python, with each cache in the checkout."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ours.pop("VIRTUAL_ENV", None)
    caches = {
        "UV_CACHE_DIR": "uv",
        "PIP_CACHE_DIR": "pip",
        "npm_config_cache": "npm-cache",
        "HYPOTHESIS_STORAGE_DIRECTORY": "hypothesis",
        "APPTAINER_CACHEDIR": "apptainer",
        "SINGULARITY_CACHEDIR": "apptainer",
        "XDG_CACHE_HOME": "xdg",
    }
    quiet = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # it would ask the network for a newer version
    return {name: str(CACHE / folder) for name, folder in caches.items()} | quiet | ours


def call(argv: Sequence[str]) -> int:
    """Run ``argv`` in the checkout, its output shown as it comes, and return its exit code.

    Ctrl-C reaches the child too; the person sees the child's own ending before ours.
    """
    with subprocess.Popen(argv, cwd=ROOT, env=environment()) as child:
        while True:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                continue
            return code if code >= 0 else 128 - code


def replace(argv: list[str], **more: str) -> NoReturn:
    """Become ``argv``, with ``more`` in its environment: its signals, terminal and exit code are then its own."""
    os.chdir(ROOT)
    os.execvpe(argv[0], argv, environment() | more)
