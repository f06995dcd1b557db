"""Commands of the plain carrier: words, folders, variables, statuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hermes_exec.backend import Backend
from hermes_exec.errors import PlaceError, UsageError
from hermes_exec_backends.local.environment import CLEAN, select_variables

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.terminal.terminal import Terminal

SET_BY_SHELLS = {"PWD", "OLDPWD", "SHLVL", "_", "LC_ALL", "LC_CTYPE"}
Plain = Callable[..., None]
MakeBehind = Callable[[str], Backend]
ODD_WORDS = ["", " ", "a b", "-n", "$HOME", "`id`", "'", '"', "\\", "*", "new\nline", "\n", "ünï"]


def test_text_is_run_by_a_shell_with_its_outputs_apart(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run("echo out; echo err >&2; exit 3")
        assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")

    plain(scenario)


def test_words_reach_the_program_unchanged(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run(["printf", "[%s]", *ODD_WORDS, b"\xff\x81\x88"])
        assert result.stdout == b"".join(b"[%b]" % word.encode() for word in ODD_WORDS) + b"[\xff\x81\x88]"

    plain(scenario)


@pytest.mark.parametrize("size", [0, 100_000], ids=["as they are", "staged"])
def test_variables_reach_the_program_unchanged(plain: Plain, size: int) -> None:
    async def scenario(terminal: Terminal) -> None:
        for value in [*ODD_WORDS, "trailing\n\n", "\udcff"]:
            env = {"MINE": value, "FILLER": "x" * size}
            result = await terminal.run(["sh", "-c", 'printf "%s" "$MINE"'], env=env)
            assert result.stdout == os.fsencode(value)

    plain(scenario)


def test_a_program_sees_no_variable_of_ours_and_keeps_all_of_its_own(plain: Plain) -> None:
    names = ["s", "n", "line", "signal", "known", "table", "folder", "mode", "part"]

    async def scenario(terminal: Terminal) -> None:
        command = ["cat", "/proc/self/environ"]
        bare = set((await terminal.run(command)).stdout.split(b"\0"))
        full = set((await terminal.run(command, env=dict.fromkeys(names, "kept"))).stdout.split(b"\0"))
        assert full - bare == {f"{name}=kept".encode() for name in names}
        there = {line.partition(b"=")[0].decode() for line in bare}
        assert there <= {*CLEAN, *select_variables(os.environ, "tools").variables} | SET_BY_SHELLS | {""}

    plain(scenario)


@pytest.mark.parametrize("name", ["with space", "-", "--", "-P", "$x", "new\nline", "quo'te", "\udcff"])
def test_a_command_starts_in_the_folder_it_is_given(plain: Plain, tmp_path: Path, name: str) -> None:
    (tmp_path / name / "below").mkdir(parents=True)

    here = os.fsencode(tmp_path / name / "below")

    async def scenario(terminal: Terminal) -> None:
        for cwd in (tmp_path / name / "below", f"{name}/below"):
            for command in (["sh", "-c", "pwd"], "pwd"):
                result = await terminal.run(command, cwd=cwd, env={"CDPATH": "/tmp:/usr"})
                assert result.stdout == here + b"\n"

    plain(scenario, cwd=str(tmp_path))


def test_a_missing_folder_is_an_error_and_nothing_runs(plain: Plain, tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        for command in (["touch", str(tmp_path / "ran")], f"touch {tmp_path}/ran"):
            with pytest.raises(UsageError, match=r"no folder .*/no/such"):
                await terminal.run(command, cwd="/no/such")
        assert not (tmp_path / "ran").exists()

    plain(scenario)


def test_a_missing_program_is_127_and_named(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run(["no-such-program", "x"])
        assert result.exit_code == 127
        assert result.stderr == b"no-such-program: No such file or directory\n"

    plain(scenario)


def test_every_exit_code_is_the_commands_own(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        for code in (0, 1, 2, 97, 100, 126, 127, 128, 130, 137, 255):
            for command in (["sh", "-c", f"exit {code}"], f"exit {code}"):
                result = await terminal.run(command)
                assert (result.exit_code, result.signal, result.note, result.stderr) == (code, None, "", b"")

    plain(scenario)


def test_a_file_that_is_no_program_is_126(plain: Plain, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")

    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run([str(tmp_path / "text")])
        assert result.exit_code == 126
        assert b"ermission denied" in result.stderr

    plain(scenario)


def test_a_signal_is_told_as_one(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run(["sh", "-c", "kill -9 $$"])
        assert (result.exit_code, result.signal) == (None, 9)

    plain(scenario)


def test_merged_outputs_keep_their_order(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        text = "for i in 1 2 3; do echo out$i; echo err$i >&2; done"
        long = "x" * 40_000
        for command in (text, ["sh", "-c", text], f"{text} #{long}", ["sh", "-c", text, long]):
            result = await terminal.run(command, merge_stderr=True)
            assert result.stdout == b"out1\nerr1\nout2\nerr2\nout3\nerr3\n"
            assert result.stderr == b""

    plain(scenario)


def test_what_a_place_says_before_the_start_is_no_output(plain: Plain, behind: MakeBehind) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run("echo mine >&2; echo out")
        assert (result.stdout, result.stderr) == (b"out\n", b"mine\n")

    plain(scenario, behind("echo 'Welcome to this host' >&2; exec \"$@\""))


def test_a_place_that_starts_nothing_is_an_error_of_ours(plain: Plain, behind: MakeBehind) -> None:
    async def scenario(terminal: Terminal) -> None:
        with pytest.raises(PlaceError, match="engine: no space left") as caught:
            await terminal.run(["echo", "refused"])
        assert caught.value.state == "nothing ran"

    refuses = 'case "$*" in *refused*) echo "engine: no space left" >&2; exit 126 ;; *) exec "$@" ;; esac'
    plain(scenario, behind(refuses))


def test_secrets_stay_out_of_every_argv(plain: Plain, behind: MakeBehind, tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        for filler in ("", "x" * 40_000):
            env = {"TOKEN": "s3cr3t-value", "FILLER": filler}
            result = await terminal.run(["sh", "-c", 'echo "$TOKEN"'], env=env)
            assert result.stdout == b"s3cr3t-value\n"
        words = (tmp_path / "words").read_bytes()
        assert b'echo "$TOKEN"' in words
        assert b"s3cr3t-value" not in words

    plain(scenario, behind(f'printf "%s\\0" "$@" >>"{tmp_path}/words"; exec "$@"'))
