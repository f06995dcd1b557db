"""``run``: streams, exit codes and words, as if the command ran here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

EVERY_BYTE = bytes(range(256)) * 41


def test_outputs_come_apart_and_unchanged(cli: Cli) -> None:
    done = cli("run", r"printf 'a\377\0b'; printf 'e\376' >&2")
    assert (done.stdout, done.stderr, done.returncode) == (b"a\xff\0b", b"e\xfe", 0)


@pytest.mark.parametrize("code", [0, 1, 2, 77, 255])
def test_the_exit_code_is_the_commands(cli: Cli, code: int) -> None:
    assert cli("run", f"exit {code}").returncode == code


def test_the_exit_code_of_a_program_is_the_programs(cli: Cli) -> None:
    assert cli("run", "sh", "-c", "exit 9").returncode == 9


def test_a_signal_is_128_and_its_number(cli: Cli) -> None:
    assert cli("run", "sh", "-c", "kill -KILL $$").returncode == 137


def test_one_word_is_shell_text(cli: Cli) -> None:
    assert cli("run", "echo $((6 * 7)) | tr 4 x").stdout == b"x2\n"


def test_several_words_are_looked_at_by_no_shell(cli: Cli) -> None:
    assert cli("run", "printf", "%s|", "$HOME", "a b", "*", "-n").stdout == b"$HOME|a b|*|-n|"


def test_words_can_be_made_shell_text(cli: Cli) -> None:
    assert cli("run", "--shell", "echo", "a;", "echo", "b").stdout == b"a\nb\n"


def test_one_word_can_be_made_a_program(cli: Cli) -> None:
    done = cli("run", "--no-shell", "echo hi")
    assert done.returncode == 127
    assert b"echo hi: " in done.stderr


def test_a_missing_program_is_127_and_says_so(cli: Cli) -> None:
    done = cli("run", "no-such-program", "x")
    assert (done.returncode, done.stdout) == (127, b"")
    assert done.stderr.startswith(b"hermes-exec: no-such-program: ")
    assert done.stderr.count(b"\n") == 1


def test_a_timeout_is_124_and_keeps_the_output(cli: Cli) -> None:
    done = cli("run", "--timeout", "0.4s", "echo first; sleep 60; echo never")
    assert (done.returncode, done.stdout) == (124, b"first\n")
    assert b"time limit" in done.stderr


def test_the_configured_timeout_counts_unless_another_is_said(cli: Cli) -> None:
    cli.configure("[limits]\ntimeout_s = 0.4\n")
    assert cli("run", "sleep 60").returncode == 124
    assert cli("run", "--timeout", "0", "sleep 0.6").returncode == 0


def test_piped_input_is_passed_on_unchanged(cli: Cli) -> None:
    assert cli("run", "cat", stdin=EVERY_BYTE).stdout == EVERY_BYTE


def test_more_input_than_any_buffer_is_passed_on(cli: Cli) -> None:
    data = os.urandom(1 << 20) * 24
    done = cli("run", "sh", "-c", "cat; exit 5", stdin=data)
    assert done.stdout == data
    assert done.returncode == 5


def test_input_from_a_file_is_passed_on(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(EVERY_BYTE)
    with (tmp_path / "input").open("rb") as source:
        child = cli.start("run", "wc", "-c", stdin=source)
        assert child.communicate()[0].split() == [b"%d" % len(EVERY_BYTE)]


def test_input_that_cannot_be_read_is_told_and_ends(cli: Cli, tmp_path: Path) -> None:
    unreadable = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    child = cli.start("run", "cat; echo end", stdin=unreadable)
    assert child.communicate() == (b"end\n", b"hermes-exec: standard input: Bad file descriptor\n")
    os.close(unreadable)


def test_input_can_be_left_alone(cli: Cli) -> None:
    read, write = os.pipe()
    os.write(write, b"for the next one\n")
    child = cli.start("run", "-n", "cat", stdin=read)
    assert child.communicate() == (b"", b"")
    assert os.read(read, 100) == b"for the next one\n"
    os.close(read)
    os.close(write)


def test_a_command_that_does_not_read_ends_before_its_input(cli: Cli) -> None:
    read, write = os.pipe()
    child = cli.start("run", "echo", "done", stdin=read)
    assert child.communicate()[0] == b"done\n"
    os.close(read)
    os.close(write)


def test_output_comes_while_the_command_runs(cli: Cli) -> None:
    child = cli.start("run", "echo first; read line; echo $line", stdin=subprocess.PIPE)
    assert child.stdin is not None
    assert child.out.readline() == b"first\n"
    child.stdin.write(b"second\n")
    child.stdin.close()
    assert child.out.read() == b"second\n"


def test_a_file_that_output_goes_to_is_appended_to(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"before\n")
    with (tmp_path / "out").open("ab") as out:
        cli.start("run", "seq 3", stdout=out).wait()
        out.write(b"after\n")
    assert (tmp_path / "out").read_bytes() == b"before\n1\n2\n3\nafter\n"


def test_our_outputs_stay_blocking_for_others(cli: Cli) -> None:
    read, write = os.pipe()
    child = cli.start("run", "seq 3", stdout=write)
    child.wait()
    assert os.get_blocking(write)
    os.close(write)
    os.close(read)


def test_outputs_can_be_one(cli: Cli) -> None:
    done = cli("run", "--merge", "echo 1; echo 2 >&2; echo 3")
    assert (done.stdout, done.stderr) == (b"1\n2\n3\n", b"")


def test_folder_and_variables_are_the_commands(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        "run",
        "-C",
        str(tmp_path),
        "-e",
        "A=x y",
        "--env",
        "HERE",
        "pwd; echo $A $HERE",
        env={"HERE": "from here"},
    )
    assert done.stdout.decode() == f"{tmp_path}\nx y from here\n"


def test_a_folder_that_is_missing_is_told_in_a_line(cli: Cli) -> None:
    done = cli("run", "--cwd", "/no/such/folder", "true", "x")
    assert done.returncode == 2
    assert b"/no/such/folder" in done.stderr
    assert done.stderr.count(b"\n") == 1


def test_limits_are_set(cli: Cli) -> None:
    assert cli("run", "--limit", "open-files=33", "sh", "-c", "ulimit -n").stdout == b"33\n"


def test_nothing_but_the_usual_variables_reaches_the_command(cli: Cli) -> None:
    assert b"hunter2" not in cli("run", "env", env={"PRIVATE_TOKEN": "hunter2"}).stdout


def test_json_is_one_document(cli: Cli) -> None:
    done = cli("run", "--json", r"printf 'a\377'; echo e >&2; exit 3")
    told = json.loads(done.stdout)
    assert done.returncode == 3
    assert told["exit_code"] == 3
    assert (told["stdout"], told["stdout_base64"], told["stderr"]) == ("a�", "Yf8=", "e\n")
    assert told["target"] == "local"


def test_json_says_what_is_left_out(cli: Cli) -> None:
    cli.configure('[limits]\nmax_output = "1 KiB"\n')
    told = cli.json("run", "--json", "head -c 5000 /dev/zero | tr '\\0' x")
    assert told["stdout_omitted"] == 5000 - 1024


@pytest.mark.parametrize("sink", [["head", "-1"], ["true"]])
def test_it_ends_quietly_when_nobody_reads_on(cli: Cli, sink: list[str]) -> None:
    child = cli.start("run", "yes")
    reader = subprocess.run(sink, check=True, stdin=child.stdout, capture_output=True)
    child.out.close()
    assert child.wait(20) == 141
    assert child.err.read() == b""
    assert reader.stdout in {b"y\n", b""}


def test_a_full_disk_is_told_in_a_line(cli: Cli) -> None:
    with Path("/dev/full").open("wb") as full:
        child = cli.start("run", "echo hi", stdout=full)
        assert (
            child.communicate()[1]
            == b"hermes-exec: No space left on device. Try: free space; df -h shows which disk is full\n"
        )
    assert child.returncode == 125


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_closed_descriptor_does_no_harm(cli: Cli, number: int) -> None:
    text = f"exec \"$0\" -I -m hermes_exec run 'cat; exit 6' {number}>&-"
    argv = ["sh", "-c", text, sys.executable]
    done = subprocess.run(argv, check=False, capture_output=True, input=b"", env=cli.env)
    assert (done.returncode, done.stderr) == (6, b"")
