"""On a real terminal: the interactive shell, Ctrl-C as it is typed, tables with lines, questions."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]


class Screen:
    """A terminal with ``hermes-exec`` in its foreground."""

    def __init__(self, cli: Cli, *words: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.shown = b""
        self.child = subprocess.Popen(
            [sys.executable, "-I", "-m", "hermes_exec", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cli.cwd,
            env=cli.env | {"TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no thread runs here
        )

    def see(self, pattern: str) -> re.Match[bytes]:
        """Wait until it shows that."""
        give_up = time.monotonic() + 30
        while (found := re.search(pattern.encode(), self.shown)) is None:
            left = give_up - time.monotonic()
            assert left > 0, self.shown
            if select.select([self.ours], [], [], left)[0]:
                self.shown += self._read()
        self.shown = self.shown[found.end() :]
        return found

    def _read(self) -> bytes:
        return os.read(self.ours, 65536)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.ours, keys.encode())

    def end(self) -> int:
        """Wait for its end and give the exit code."""
        give_up = time.monotonic() + 30
        while self.child.poll() is None:
            assert time.monotonic() < give_up, self.shown
            if select.select([self.ours], [], [], 0.05)[0]:
                self.shown += self._read()
        while select.select([self.ours], [], [], 0)[0]:
            self.shown += self._read()
        return self.child.returncode

    def close(self) -> None:
        """Take the terminal away."""
        self.child.kill()
        self.child.wait()
        os.close(self.theirs)
        os.close(self.ours)


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


def test_tables_have_lines_on_a_terminal(screen: Callable[..., Screen]) -> None:
    here = screen("backends")
    assert here.end() == 0
    assert "─" in here.shown.decode()


def test_json_is_for_people_on_a_terminal(screen: Callable[..., Screen]) -> None:
    here = screen("backends", "--json")
    assert here.end() == 0
    assert b'\r\n    "type": "local"' in here.shown


@pytest.mark.parametrize(("answer", "code"), [("y\r", 0), ("n\r", 1), ("\x03", 130)])
def test_trust_shows_the_file_and_asks(cli: Cli, screen: Callable[..., Screen], answer: str, code: int) -> None:
    (cli.cwd / "hermes.toml").write_text('[backends.box]\ntype = "local"\n# \x1b[2J\n')
    here = screen("profile", "trust", "hermes.toml")
    here.see(r"\[backends.box\]")
    here.see(r"Trust .*\?")
    assert b"\x1b[2J" not in here.shown
    here.type(answer)
    assert here.end() == code
    trusted = b"ignored" not in cli("profile", "list").stderr
    assert trusted == (code == 0)
