"""Sessions of shells that are not bash: they keep less (docs/conformance.md), and what they keep is kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing.machinery import Machinery
from hermes_exec.testing.sessions import Sessions
from hermes_exec.testing.state import State
from hermes_exec_backends.local import LocalBackend
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from hermes_exec.backend import Backend

leave_out("a column of its own")


class Shells(Sessions, State, Machinery):
    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend()


class TestDash(Shells):
    @pytest.fixture
    def shell(self) -> str:
        return shutil.which("dash") or pytest.skip("needs dash")


class TestBusybox(Shells):
    @pytest.fixture
    def shell(self, tmp_path_factory: pytest.TempPathFactory) -> str:
        busybox = shutil.which("busybox") or pytest.skip("needs busybox")
        shell = Path(tmp_path_factory.mktemp("ash")) / "ash"
        shell.symlink_to(busybox)
        return str(shell)
