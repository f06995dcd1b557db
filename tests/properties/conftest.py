"""A place for all examples of a property, and bash itself to compare with."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing import SuiteTarget
from hermes_exec_backends.local import LocalBackend

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from hermes_exec.terminal.terminal import Terminal


@dataclass(frozen=True)
class Bare:
    """What bash gave by itself."""

    stdout: bytes
    stderr: bytes
    code: int


@pytest.fixture(scope="module")
def place() -> Generator[SuiteTarget]:
    place = SuiteTarget(LocalBackend())
    yield place
    place.close()


@pytest.fixture(scope="module")
def terminal(place: SuiteTarget) -> Terminal:
    return place.run(place.get_shared_terminal())


@pytest.fixture(scope="module")
def environment(place: SuiteTarget, terminal: Terminal) -> Mapping[str, str]:
    """The variables that a session's shell starts with."""
    listed = place.run(terminal.run(["env", "-0"])).stdout.decode()
    return dict(line.split("=", 1) for line in listed.split("\0") if line)


def bare_bash(script: str, environment: Mapping[str, str], folder: Path) -> Bare:
    """Run a script by ``bash -c``, as the terminal's session would be compared with."""
    done = subprocess.run(
        ["bash", "--norc", "-c", script, "bash"],
        env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30,
    )  # fmt: skip
    return Bare(done.stdout, done.stderr, done.returncode)
