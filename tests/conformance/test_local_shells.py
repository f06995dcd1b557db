"""Sessions of shells that are not bash: they keep less (docs/conformance.md), and what they keep is kept."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing.machinery import MachinerySuite
from hermes_exec.testing.sessions import SessionsSuite
from hermes_exec.testing.state import StateSuite
from hermes_exec_backends.local import LocalBackend
from tests.rigs.breadth import leave_out

if TYPE_CHECKING:
    from hermes_exec.backend import Backend
    from hermes_exec.testing import SuiteTarget

leave_out("a column of its own")


class Shells(SessionsSuite, StateSuite, MachinerySuite):
    @pytest.fixture
    def backend(self) -> Backend:
        return LocalBackend()


class TestDash(Shells):
    @pytest.fixture
    def shell(self) -> str:
        return shutil.which("dash") or pytest.skip("needs dash")

    async def test_one_that_tells_its_status_only_as_it_dies_takes_no_later_command_with_it(
        self, place: SuiteTarget
    ) -> None:
        """It cannot move its descriptors out of the way then, so the file that tells is closed with all others."""
        for _ in range(12):
            async with await place.session() as session:
                assert "broke the shell" in (await session.run("ulimit -n 5")).note
                assert (await session.run("echo on")).stdout == b"on\n"


class TestBusybox(Shells):
    @pytest.fixture
    def shell(self, tmp_path_factory: pytest.TempPathFactory) -> str:
        busybox = shutil.which("busybox") or pytest.skip("needs busybox")
        shell = Path(tmp_path_factory.mktemp("ash")) / "ash"
        shell.symlink_to(busybox)
        return str(shell)
