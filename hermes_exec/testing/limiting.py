"""Limits: bounds on a command's resources, and the report of the limit that ended it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import UsageError
from hermes_exec.terminal.limits import Limits
from hermes_exec.testing.behaviours import Behaviours, exercises, needs
from hermes_exec.testing.input import WAYS, as_command

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal


class LimitingSuite(Behaviours, exercises="target"):
    """A limit holds for one command and its process tree."""

    @pytest.mark.parametrize("way", WAYS)
    @needs("limits")
    async def test_cpu_time_is_limited_and_that_is_said(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "while :; do :; done"), limits=Limits(cpu_s=1), timeout=25)
        assert (result.limit, result.timed_out, result.ok) == ("cpu", False, False)

    @pytest.mark.parametrize("way", WAYS)
    @needs("limits")
    async def test_memory_is_limited(self, terminal: Terminal, way: str) -> None:
        text = "x=$(head -c 400000000 /dev/zero | tr '\\0' x); echo ${#x}"
        result = await terminal.run(as_command(way, text), limits=Limits(memory_mib=64), timeout=25)
        assert result.stdout != b"400000000\n"

    @pytest.mark.parametrize("way", WAYS)
    @needs("limits")
    async def test_the_size_of_files_is_limited(self, terminal: Terminal, folder: str, way: str) -> None:
        text = f"head -c 3000000 /dev/zero > {folder}/file; wc -c < {folder}/file"
        result = await terminal.run(as_command(way, text), limits=Limits(file_size_mib=1), timeout=25)
        assert result.stdout.strip() == b"1048576"

    @pytest.mark.parametrize("way", WAYS)
    @needs("limits")
    async def test_open_files_are_limited(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "ulimit -n"), limits=Limits(open_files=33), timeout=25)
        assert result.stdout == b"33\n"

    @needs("limits")
    async def test_the_next_command_is_not_limited(self, terminal: Terminal) -> None:
        usual = await terminal.run("ulimit -n")
        await terminal.run("ulimit -n", limits=Limits(open_files=33))
        assert (await terminal.run("ulimit -n")).stdout == usual.stdout

    @pytest.mark.parametrize("limits", [{"memory_mib": 0}, {"cpu_s": -1}, {"processes": 0}])
    @exercises("guest")
    async def test_a_limit_that_makes_no_sense_is_refused(self, limits: dict[str, int]) -> None:
        with pytest.raises(UsageError):
            Limits(**limits)

    @needs("limits")
    async def test_the_place_says_what_enforces_each_limit(self, terminal: Terminal) -> None:
        assert (await terminal.limits()) is not None
