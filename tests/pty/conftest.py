"""A guest that really runs, of this Python and of the oldest one, and eyes for what a PTY shows."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from hermes_exec.link.link import Link
from hermes_exec.pty import Pty
from hermes_exec_backends.local import LocalBackend

Scenario = Callable[[Link], Awaitable[None]]
Live = Callable[[Scenario], None]


class OldPython(LocalBackend):
    """This machine, seen by an interpreter that cannot take our compiled code."""

    def __init__(self, python: str) -> None:
        self._python = python

    @property
    def pythons(self) -> Sequence[str]:
        return (self._python,)

    @property
    def same_python(self) -> bool:
        return False


def python_3_6() -> str:
    """The path of an interpreter that really is 3.6, or nothing."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [os.environ.get("HERMES_EXEC_PYTHON36"), shutil.which("python3.6")]
    candidates += [str(path) for path in pyenv.glob("versions/3.6.*/bin/python3.6")]
    probe = "import sys; sys.exit(sys.version_info[:2] != (3, 6))"
    for python in filter(None, candidates):
        if subprocess.run([python, "-I", "-c", probe], check=False, capture_output=True).returncode == 0:
            return python
    return ""


PYTHON_3_6 = python_3_6()


@pytest.fixture(params=["this python", "python 3.6"])
def backend(request: pytest.FixtureRequest) -> LocalBackend:
    if request.param == "this python":
        return LocalBackend()
    if not PYTHON_3_6:
        pytest.skip("no Python 3.6 on this machine. Try: HERMES_EXEC_PYTHON36=/path/to/python3.6")
    return OldPython(PYTHON_3_6)


@pytest.fixture
def live(backend: LocalBackend) -> Live:
    """Run a scenario with a link to a new guest, and close the link."""

    def run(scenario: Scenario) -> None:
        async def whole() -> None:
            link = Link(backend, env={"PS1": "$ ", "HISTFILE": ""}, cwd=None)
            await link.open()
            try:
                async with asyncio.timeout(40):
                    await scenario(link)
            finally:
                await link.close()
            assert vars(link)["_attempt"].stderr == b""  # a fault in the guest's loop is told there

        asyncio.run(whole())

    return run


async def read_until(pty: Pty, text: bytes) -> bytes:
    """All that is shown up to and with ``text``, to the end of what came with it."""
    shown = b""
    while text not in shown:
        piece = await pty.read()
        assert piece, f"it ended without {text!r}: {shown!r}"
        shown += piece
    return shown


@pytest.fixture
def until() -> Callable[[Pty, bytes], Awaitable[bytes]]:
    return read_until
