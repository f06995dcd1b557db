"""Guests under other interpreters than our own."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec_backends.local import LocalBackend

if TYPE_CHECKING:
    from hermes_exec.backend import BackendTraits


class OtherPython(LocalBackend):
    """This machine, with a certain interpreter for the guest, which cannot take our compiled code."""

    def __init__(self, python: str) -> None:
        self._python = python

    @property
    def traits(self) -> BackendTraits:
        return replace(super().traits, pythons=(self._python,), same_python=False)


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
