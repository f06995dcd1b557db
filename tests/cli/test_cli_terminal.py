"""On a real terminal: the interactive shell, Ctrl-C as it is typed, tables with lines, questions."""

from __future__ import annotations

import contextlib
import re
import termios
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import pytest

from tests.cli.screen import Screen

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def screen(cli: Cli) -> Generator[Callable[..., Screen]]:
    """``screen("shell")`` starts a command on a terminal."""
    with contextlib.ExitStack() as stack:

        def start(*words: str) -> Screen:
            started = Screen(cli, *words)
            stack.callback(started.close)
            return started

        yield start


def test_shell_is_a_terminal_of_the_same_size_whose_exit_code_is_ours(screen: Callable[..., Screen]) -> None:
    here = screen("shell", "--env", "PS1=there> ", "--env", "GREETING=hello")
    here.type("tty; stty size; echo $GREETING-$TERM\r")
    here.see(r"/dev/pts/\d+\r\n")
    here.see(r"30 100\r\n")
    here.see(r"hello-xterm\r\n")
    here.type("exit 7\r")
    assert here.end() == 7
    assert termios.tcgetattr(here.theirs) == here.before


def test_ctrl_c_in_the_shell_is_the_shells(
    screen: Callable[..., Screen], running: Running, until: Until, nap: str
) -> None:
    here = screen("shell")
    here.type(f"{nap}; echo no\r")
    until(lambda: running(nap))
    here.type("\x03")
    here.type("echo still th''ere\r")
    here.see("still there")
    here.type("exit\r")
    here.end()


def test_run_gives_a_program_a_terminal_when_asked_to(screen: Callable[..., Screen]) -> None:
    here = screen("run", "--pty", "sh", "-c", "test -t 0 && stty size; exit 4")
    assert here.end() == 4
    assert b"30 100" in here.shown


def test_ctrl_c_on_the_terminal_ends_the_tree(screen: Callable[..., Screen], running: Running, nap: str) -> None:
    here = screen("run", f"setsid {nap} & echo ready; {nap}")
    here.see("ready")
    here.type("\x03")
    assert here.end() == 130
    assert not running(nap)
    assert b"Traceback" not in here.shown


def test_the_terminals_input_is_left_alone_unless_asked_for(screen: Callable[..., Screen]) -> None:
    here = screen("run", "cat; echo end")
    here.see("end")
    assert here.end() == 0


def test_the_terminals_input_is_passed_on_when_asked_for(screen: Callable[..., Screen]) -> None:
    here = screen("run", "-i", "echo ready; read x; echo got:$x")
    here.see("ready")
    here.type("some words\r")
    here.see("got:some words")
    assert here.end() == 0


def test_tables_fit_a_terminal_and_split_no_word(screen: Callable[..., Screen]) -> None:
    here = screen("backends")
    assert here.end() == 0
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in here.shown.decode().splitlines()]
    assert lines[0].split()[:2] == ["TYPE", "USABLE"]
    assert all(len(line) <= 100 for line in lines)
    assert "\x1b[32myes" in here.shown.decode()


def test_json_is_for_people_on_a_terminal(screen: Callable[..., Screen]) -> None:
    here = screen("backends", "--json")
    assert here.end() == 0
    assert b'\r\n    "type": "local"' in here.shown


@pytest.mark.parametrize(("answer", "code"), [("y\r", 0), ("n\r", 1), ("\x03", 130)])
def test_trust_shows_the_file_and_asks(cli: Cli, screen: Callable[..., Screen], answer: str, code: int) -> None:
    (cli.cwd / "hermes.toml").write_text('[backends.box]\ntype = "local"\n# \x1b[2J\n')
    here = screen("profile", "trust", "hermes.toml")
    here.see(r"\[backends.box\]")
    here.see(r"Trust .*\? \[y/N\]: ")
    assert b"\x1b[2J" not in here.shown
    here.type(answer)
    assert here.end() == code
    trusted = b"ignored" not in cli("profile", "list").stderr
    assert trusted == (code == 0)


@pytest.mark.parametrize(
    ("typed", "output", "code"), [(b"", b"", 0), (b"echo hi", b"hi\n", 0), (b"echo hi\nexit 3\nno\n", b"hi\n", 3)]
)
def test_shell_runs_what_is_piped_into_it_without_a_terminal(cli: Cli, typed: bytes, output: bytes, code: int) -> None:
    done = cli("shell", "--cwd", "/", stdin=typed)
    assert (done.stdout, done.stderr, done.returncode) == (output, b"", code)


def test_a_piped_shell_is_the_login_shell(cli: Cli) -> None:
    done = cli("shell", "--env", "SHELL=/bin/echo")
    assert (done.stdout, done.returncode) == (b"-l\n", 0)


@pytest.mark.parametrize("words", [["run", "-t", "--", "bash"], ["shell", "--keep"]], ids=["run", "shell"])
@pytest.mark.parametrize("typed", [b"", b"echo h''i; exit 3", b"echo h''i; exit 3\n"])
def test_the_end_of_piped_input_ends_a_shell_on_a_terminal(cli: Cli, words: list[str], typed: bytes) -> None:
    done = cli(*words, stdin=typed, env={"SHELL": "/bin/bash"})
    assert (b"hi\r\n" in done.stdout, done.returncode) == ((True, 3) if typed else (False, 0))
