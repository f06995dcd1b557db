"""Terminals on this machine, and scripts that run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hermes_exec.sync as hx

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    Script = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def terminal() -> Generator[hx.Terminal]:
    with hx.open("local", audit=False) as opened:
        yield opened


@pytest.fixture
def script(tmp_path: Path) -> Generator[Script]:
    """``script(text)`` starts a Python program that has ``hx``; what it prints can be read."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str, **names: object) -> subprocess.Popen[str]:
        lines = [
            "import hermes_exec.sync as hx",
            *(f"{name} = {str(value)!r}" for name, value in names.items()),
        ]
        path = tmp_path / "script.py"
        path.write_text("\n".join(lines) + "\n" + textwrap.dedent(text))
        quiet = "ignore:This process:DeprecationWarning"  # of a fork beside threads, which the tests are about
        argv = [sys.executable, "-W", "error", "-W", quiet, str(path)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(argv, env=environment, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        with process:
            process.kill()


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Whoever reads it waits until a command has written to it."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path
