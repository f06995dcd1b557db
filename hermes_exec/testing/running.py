"""Running: programs and shell text, their arguments, folders, variables and exit codes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import CommandFailed, UsageError
from hermes_exec.result import ShellState
from hermes_exec.testing.behaviours import Behaviours, exercises
from hermes_exec.testing.place import ending_signal

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.testing.place import SuiteTarget

ODD_WORDS = [
    "",
    " ",
    "two words",
    "quo'te",
    'dou"ble',
    "$HOME",
    "*",
    "a\nb",
    "\\",
    "-n",
    "ünïcödé",
    "\x01\x7f",
]


class RunningSuite(Behaviours, exercises="target"):
    """Commands run as specified, and their exit is reported exactly."""

    async def test_text_is_run_by_a_shell(self, terminal: Terminal) -> None:
        result = await terminal.run("echo one | tr a-z A-Z; echo $((40 + 2))")
        assert (result.stdout, result.exit_code) == (b"ONE\n42\n", 0)

    async def test_words_are_run_without_a_shell(self, terminal: Terminal) -> None:
        result = await terminal.run(["echo", "$HOME", "*", "a;b", "`id`"])
        assert result.stdout == b"$HOME * a;b `id`\n"
        assert result.shell is ShellState.NONE

    async def test_words_arrive_unchanged(self, terminal: Terminal) -> None:
        result = await terminal.run(["printf", "[%s]", *ODD_WORDS])
        assert result.stdout.decode() == "".join(f"[{word}]" for word in ODD_WORDS)

    async def test_words_may_be_bytes_that_are_not_text(self, terminal: Terminal) -> None:
        result = await terminal.run([b"printf", b"%s", b"\xff\xfe\x80"])
        assert result.stdout == b"\xff\xfe\x80"

    async def test_text_may_be_bytes_that_are_not_text(self, terminal: Terminal) -> None:
        result = await terminal.run(b"printf '%s' '\xff\xfe\x80'")
        assert result.stdout == b"\xff\xfe\x80"

    @pytest.mark.parametrize("code", [0, 1, 2, 42, 126, 127, 255])
    @exercises("guest")
    async def test_the_exit_code_of_a_program_is_its_own(self, terminal: Terminal, code: int) -> None:
        result = await terminal.run(["sh", "-c", f"exit {code}"])
        assert (result.exit_code, result.signal, result.ok) == (code, None, code == 0)

    @pytest.mark.parametrize("code", [0, 1, 2, 42, 126, 127, 255])
    @exercises("guest")
    async def test_the_exit_code_of_text_is_its_last_commands(self, terminal: Terminal, code: int) -> None:
        result = await terminal.run(f"true; (exit {code})")
        assert (result.exit_code, result.signal, result.ok) == (code, None, code == 0)

    @pytest.mark.parametrize("number", [1, 2, 6, 9, 13, 15])
    @exercises("guest")
    async def test_a_signal_that_ended_a_program_is_told_as_a_signal(self, terminal: Terminal, number: int) -> None:
        result = await terminal.run(["sh", "-c", f"kill -{number} $$; sleep 5"])
        assert ending_signal(result) == number
        assert terminal.capabilities.carrier == "plain" or result.exit_code is None
        assert result.shell_code == 128 + number
        assert not result.ok

    async def test_a_missing_program_gives_127_and_says_which(self, terminal: Terminal) -> None:
        result = await terminal.run(["no-such-program-anywhere", "x"])
        assert result.exit_code == 127
        assert b"no-such-program-anywhere" in result.stderr

    async def test_a_missing_program_in_text_gives_127_and_says_which(self, terminal: Terminal) -> None:
        result = await terminal.run("no-such-program-anywhere x")
        assert result.exit_code == 127
        assert b"no-such-program-anywhere" in result.stderr

    async def test_a_file_that_is_no_program_gives_126(self, terminal: Terminal, folder: str) -> None:
        await terminal.run(["sh", "-c", "echo nothing > text"], cwd=folder, check=True)
        assert (await terminal.run([f"{folder}/text"])).exit_code == 126

    async def test_a_folder_as_a_program_gives_126(self, terminal: Terminal, folder: str) -> None:
        assert (await terminal.run([folder])).exit_code == 126

    async def test_a_program_is_found_on_the_path_that_it_is_given(self, terminal: Terminal, folder: str) -> None:
        make = "printf '#!/bin/sh\\necho mine\\n' > tool; chmod +x tool"
        await terminal.run(["sh", "-c", make], cwd=folder, check=True)
        result = await terminal.run(["tool"], env={"PATH": f"{folder}:/usr/bin:/bin"})
        assert result.stdout == b"mine\n"

    async def test_a_program_runs_in_the_folder_that_it_is_given(self, terminal: Terminal, folder: str) -> None:
        assert (await terminal.run(["pwd", "-P"], cwd=folder)).stdout.decode() == f"{folder}\n"

    async def test_text_runs_in_the_folder_that_it_is_given(self, terminal: Terminal, folder: str) -> None:
        assert (await terminal.run("pwd -P", cwd=folder)).stdout.decode() == f"{folder}\n"

    @pytest.mark.parametrize("way", ["text", "words"])
    async def test_in_a_missing_folder_nothing_runs_and_the_error_names_it(
        self, terminal: Terminal, folder: str, way: str
    ) -> None:
        proof = f"{folder}/ran"
        wanted = f"echo > {proof}" if way == "text" else ["touch", proof]
        with pytest.raises(UsageError, match=f"{folder}/missing") as caught:
            await terminal.run(wanted, cwd=f"{folder}/missing")
        assert caught.value.state == "nothing ran"
        assert (await terminal.run(["test", "-e", proof])).exit_code == 1

    async def test_a_relative_folder_is_below_the_terminals_own(self, place: SuiteTarget) -> None:
        async with place.fresh(cwd="/usr") as terminal:  # it exists on a target that was just created
            for command in ("pwd -P", ["pwd", "-P"]):
                assert (await terminal.run(command)).stdout.decode() == "/usr\n"
                assert (await terminal.run(command, cwd="bin")).stdout.decode() == "/usr/bin\n"
            if terminal.capabilities.sessions:
                async with terminal.session(cwd="bin") as session:
                    assert (await session.run("pwd -P")).stdout.decode() == "/usr/bin\n"

    async def test_variables_reach_a_program(self, terminal: Terminal) -> None:
        result = await terminal.run(["sh", "-c", 'printf "%s" "$A|$B"'], env={"A": "x y", "B": ""})
        assert result.stdout == b"x y|"

    @pytest.mark.parametrize("way", ["text", "words"])
    @exercises("guest")
    async def test_the_values_of_variables_arrive_unchanged(self, terminal: Terminal, way: str) -> None:
        env = {f"V{index}": word for index, word in enumerate(ODD_WORDS)} | {
            "B": "\udcff\udc80",
            "E": "a=b=c",
        }
        show = "printf '[%s]' " + " ".join(f'"${name}"' for name in env)
        result = await terminal.run(show if way == "text" else ["sh", "-c", show], env=env)
        wanted = "".join(f"[{value}]" for value in env.values())
        assert result.stdout == wanted.encode("utf-8", "surrogateescape")

    async def test_variables_of_one_command_are_gone_for_the_next(self, terminal: Terminal) -> None:
        assert (await terminal.run("echo ${HX_ONE-none}", env={"HX_ONE": "1"})).stdout == b"1\n"
        assert (await terminal.run("echo ${HX_ONE-none}")).stdout == b"none\n"

    @pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "A B", "É"])
    @exercises("guest")
    async def test_a_name_that_no_variable_can_have_is_refused(self, terminal: Terminal, name: str) -> None:
        with pytest.raises(UsageError):
            await terminal.run(["true"], env={name: "x"})

    @pytest.mark.parametrize("command", ["echo \0", ["echo", "a\0b"], ["\0"]])
    @exercises("guest")
    async def test_a_nul_byte_in_a_command_is_refused(self, terminal: Terminal, command: str | list[str]) -> None:
        with pytest.raises(UsageError, match="NUL"):
            await terminal.run(command)

    @exercises("guest")
    async def test_text_that_has_no_bytes_is_refused(self, terminal: Terminal) -> None:
        for command in ("echo \ud800", ["echo", "\ud800"]):
            with pytest.raises(UsageError):
                await terminal.run(command)
        with pytest.raises(UsageError):
            await terminal.run(["cat"], stdin="\ud800")

    @exercises("guest")
    async def test_no_words_at_all_are_refused(self, terminal: Terminal) -> None:
        with pytest.raises(UsageError):
            await terminal.run([])

    @pytest.mark.parametrize("text", ["", " ", "\n\n", "# a remark", ":", "true #'\""])
    @exercises("guest")
    async def test_text_without_a_command_succeeds_silently(self, terminal: Terminal, text: str) -> None:
        await terminal.run("(exit 3)")
        result = await terminal.run(text)
        assert (result.exit_code, result.stdout, result.stderr) == (0, b"", b"")

    async def test_a_failure_is_a_result_unless_an_error_is_asked_for(self, terminal: Terminal) -> None:
        assert not (await terminal.run("echo out; exit_here() { return 5; }; exit_here")).ok
        with pytest.raises(CommandFailed) as caught:
            await terminal.run(["sh", "-c", "echo out; echo err >&2; exit 5"], check=True)
        assert caught.value.result.exit_code == 5
        assert (caught.value.result.stdout, caught.value.result.stderr) == (b"out\n", b"err\n")
        assert str(caught.value).endswith(": exit code 5; it wrote: err")

    async def test_the_error_of_a_failure_shows_the_end_of_what_it_wrote_on_one_line(self, terminal: Terminal) -> None:
        text = r"""printf 'x%.0s' $(seq 5000) >&2; printf 'why\n\033[31mnot\n\n' >&2; exit 5"""
        with pytest.raises(CommandFailed) as caught:
            await terminal.run(text, check=True)
        assert str(caught.value).endswith(r"xxwhy\n\x1b[31mnot")
        assert len(str(caught.value)) < 500
        with pytest.raises(CommandFailed, match=r"it wrote: both$"):
            await terminal.run("echo both; exit_here() { return 5; }; exit_here", check=True, merge_stderr=True)

    @pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
    @exercises("guest")
    async def test_a_time_limit_that_makes_no_sense_is_refused(self, terminal: Terminal, timeout: float) -> None:
        with pytest.raises(UsageError):
            await terminal.run(["true"], timeout=timeout)

    async def test_the_duration_is_that_of_the_command(self, terminal: Terminal) -> None:
        # The clock may start a little after the command, on a busy machine.
        assert 0.2 < (await terminal.run(["sleep", "0.3"])).duration_s < 5

    async def test_programs_run_beside_each_other(self, terminal: Terminal, folder: str) -> None:
        await terminal.run(["mkfifo", "a", "b"], cwd=folder, check=True)
        one = terminal.run(["sh", "-c", "echo from one > a; cat b"], cwd=folder, timeout=20)
        two = terminal.run(["sh", "-c", "cat a; echo from two > b"], cwd=folder, timeout=20)
        results = await asyncio.gather(one, two)  # each waits for the other: one after the other they would never end
        assert [result.stdout for result in results] == [b"from two\n", b"from one\n"]

    async def test_many_programs_at_once_each_get_their_own_answer(self, terminal: Terminal) -> None:
        one = 'printf "%s" "$1"; printf "%s" "$1" >&2; exit "$1"'
        results = await asyncio.gather(*(terminal.run(["sh", "-c", one, "sh", str(n)]) for n in range(40)))
        for n, result in enumerate(results):
            assert (result.stdout, result.stderr, result.exit_code) == (b"%d" % n, b"%d" % n, n)

    @exercises("guest")
    async def test_the_end_of_the_text_needs_no_newline(self, terminal: Terminal) -> None:
        assert (await terminal.run("cat <<E\nhere\nE")).stdout == b"here\n"
        assert (await terminal.run("echo a \\\n b")).stdout == b"a b\n"

    async def test_a_failing_command_is_run_once_whatever_it_printed(self, terminal: Terminal, folder: str) -> None:
        said = "Connection reset by peer; Broken pipe; Timeout expired; try again; EOF; command not found"
        for code in (255, 1):
            text = f"echo x >> {folder}/count; echo '{said}' >&2; echo '{said}'"
            await terminal.run(f"{text}; (exit {code})")
            await terminal.run(["sh", "-c", f"{text}; exit {code}"])
        assert (await terminal.run(["cat", f"{folder}/count"])).stdout == b"x\n" * 4
