"""Arguments of a kind that no type checker has seen: one line says so, nothing ran, and the terminal goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec import Terminal

COMMANDS: dict[str, Any] = {"nothing": None, "number": 5, "map": {"echo": 1}, "numbers": ["echo", 1], "none": []}
OPTIONS: dict[str, dict[str, Any]] = {
    "stdin-number": {"stdin": 5},
    "stdin-list": {"stdin": ["a"]},
    "timeout-text": {"timeout": "soon"},
    "timeout-nan": {"timeout": float("nan")},
    "grace-below-0": {"grace_s": -1},
    "grace-nan": {"grace_s": float("nan")},
    "env-list": {"env": ["A=1"]},
    "env-number": {"env": {"A": 1}},
    "env-bytes": {"env": {b"A": "1"}},
    "cwd-number": {"cwd": 5},
    "most-below-0": {"max_output": -1},
    "most-text": {"max_output": "5"},
}
PLACES: dict[str, dict[str, Any]] = {
    "carrier": {"carrier": "pigeon"},
    "lease-0": {"lease_s": 0},
    "lease-text": {"lease_s": "x"},
    "most-below-0": {"max_output": -5},
}


async def goes_on(terminal: Terminal) -> None:
    async with asyncio.timeout(60):
        assert (await terminal.run("echo in")).stdout == b"in\n"


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
async def test_what_is_no_command_is_refused(command: Any) -> None:
    async with hermes_exec.open("local", audit=False) as terminal:
        with pytest.raises(UsageError):
            await terminal.run(command)
        await goes_on(terminal)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("command", ["cat", ["cat"]], ids=["text", "words"])
async def test_an_option_of_another_kind_is_refused(command: Any, options: dict[str, Any]) -> None:
    async with hermes_exec.open("local", audit=False) as terminal:
        with pytest.raises(UsageError):
            await terminal.run(command, **options)
        await goes_on(terminal)


@pytest.mark.parametrize("options", PLACES.values(), ids=PLACES)
async def test_a_place_is_not_opened_by_such_options(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        await hermes_exec.open("local", audit=False, **options)


async def test_input_may_be_any_bytes() -> None:
    async with hermes_exec.open("local", audit=False) as terminal:
        given: Any = bytearray(b"one")
        assert (await terminal.run("cat", stdin=given)).stdout == b"one"
        given = memoryview(b"two")
        assert (await terminal.run(["cat"], stdin=given)).stdout == b"two"


async def test_a_shell_that_is_not_there_is_named() -> None:
    async with hermes_exec.open("local", audit=False) as terminal:
        async with terminal.session(shell="/no/such/shell") as session:
            with pytest.raises(hermes_exec.PlaceError, match="/no/such/shell"):
                await session.run("true")
        await goes_on(terminal)


async def test_a_program_on_a_terminal_may_be_text_for_a_shell() -> None:
    async with hermes_exec.open("local", audit=False) as terminal, terminal.pty("test -t 0 && echo a; exit 4") as pty:
        shown = b"".join([data async for data in pty])
        assert shown == b"a\r\n"
        assert (await pty.wait()).exit_code == 4


async def test_one_pattern_is_not_taken_for_its_letters(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("kept.py", "left.pyc"):
        (source / name).write_text("")
    async with hermes_exec.open("local", audit=False) as terminal:
        await terminal.upload(source, tmp_path / "up", ignore="*.pyc")
        await terminal.sync(source, tmp_path / "same", ignore="*.pyc")
    assert [path.name for path in (tmp_path / "up").iterdir()] == ["kept.py"]
    assert [path.name for path in (tmp_path / "same").iterdir()] == ["kept.py"]


async def test_links_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    wish: Any = "follow"
    async with hermes_exec.open("local", audit=False) as terminal:
        with pytest.raises(UsageError, match="refuse, skip, keep"):
            await terminal.upload(tmp_path, tmp_path / "up", links=wish)


async def test_an_output_that_no_file_can_keep_is_cut_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    async with hermes_exec.open("local", audit=False, max_output=10) as terminal:
        result = await terminal.run("printf %s 0123456789abcdef")
        assert result.stdout.startswith(b"0123")
        assert result.stdout.endswith(b"abcdef")
        lost = result.truncated["stdout"]
        assert (lost.omitted, lost.spool, lost.spooled) == (6, None, 0)
        await goes_on(terminal)
