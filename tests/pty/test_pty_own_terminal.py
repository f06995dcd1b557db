"""Our own terminal, lent to a PTY: seen from the person's side of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.terminal.tty import EscapeParser, ScreenState, read_size
from tests.rigs.bounded import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAM = """
import asyncio, fcntl, sys, termios
try:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
except OSError:
    pass  # a pipe
from hermes_exec.transport.link import Link
from hermes_exec.terminal.pty import start_pty
from hermes_exec.terminal.tty import interact, read_size
from hermes_exec_backends.local import LocalBackend

async def main():
    link = Link(LocalBackend(), env={"PS1": "$ "}, cwd=None, lease_s=1)
    await link.open()
    rows, cols = read_size(0)
    try:
        async with await start_pty(link, sys.argv[2:], rows=rows, cols=cols) as pty:
            if sys.argv[1] == "lose":
                asyncio.get_running_loop().call_later(0.5, link.detach)
            result = await interact(pty)
            print("detached" if result is None else f"ended: {result.reason}", end="\\r\\n")
    except BaseException as error:
        print("left by", type(error).__name__, end="\\r\\n")
    await link.close()

asyncio.run(main())
"""


class Person:
    """Somebody at a terminal in which our program runs."""

    def __init__(self, *argv: str, how: str = "stay") -> None:
        self.fd, theirs = os.openpty()
        self.resize(24, 80)
        self.before = termios.tcgetattr(self.fd)
        self.shown = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, how, *argv],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        os.close(theirs)

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", rows, cols, 0, 0))

    def types(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def sees(self, text: str, within_s: float = PATIENCE_S) -> bytes:
        """Read until ``text`` is shown; gives what came up to there."""
        end = time.monotonic() + within_s
        while text.encode() not in self.shown:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"never saw {text!r}: {self.shown!r}"
            self.shown += os.read(self.fd, 65536)
        before, found, self.shown = self.shown.partition(text.encode())
        return before + found

    def leave(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.fd)

    @property
    def terminal_is_as_before(self) -> bool:
        return termios.tcgetattr(self.fd) == self.before


@contextlib.contextmanager
def at_terminal(*argv: str, how: str = "stay") -> Generator[Person]:
    person = Person(*argv, how=how)
    try:
        yield person
    finally:
        person.leave()


def test_keys_reach_the_program_and_its_end_comes_back() -> None:
    with at_terminal("sh", "-c", "printf 'who? '; read -r who; echo \"<$who>\"; exit 3") as person:
        person.sees("who? ")
        assert not person.terminal_is_as_before
        person.types("me\r")
        person.sees("<me>")
        person.sees("ended: exit code 3")
        assert person.terminal_is_as_before


def test_ctrl_c_acts_in_the_place() -> None:
    with at_terminal("bash", "-c", "trap 'echo caught; exit 4' INT; echo on; while :; do sleep 0.05; done") as person:
        person.sees("on\r\n")
        person.types("\x03")
        person.sees("caught")
        person.sees("ended: exit code 4")


def test_program_follows_the_size_of_the_terminal() -> None:
    with at_terminal("bash", "-c", "trap 'stty size' WINCH; stty size; while :; do sleep 0.05; done") as person:
        person.sees("24 80\r\n")
        person.resize(33, 111)
        person.sees("33 111\r\n")


def test_tilde_d_detaches_and_puts_the_terminal_back() -> None:
    with at_terminal("sh", "-c", "printf '\\033[?1049h'; echo full; exec cat") as person:
        person.sees("full")
        person.types("a\r~d")
        assert b"\x1b[?1049l" in person.sees("detached")
        assert person.terminal_is_as_before


def test_tilde_dot_ends_the_program() -> None:
    with at_terminal("sh", "-c", "echo $$; exec cat") as person:
        pid = int(person.sees("\r\n"))
        person.types("~.")
        person.sees("ended: cancelled")
        assert person.terminal_is_as_before
        assert not Path(f"/proc/{pid}").exists()


def test_tilde_in_a_line_is_only_a_tilde() -> None:
    with at_terminal("sh", "-c", 'read -r line; echo "<$line>"') as person:
        person.types("a~d~.\r")
        person.sees("<a~d~.>")


def test_terminal_is_put_back_when_we_are_told_to_end() -> None:
    with at_terminal("sh", "-c", "echo on; exec cat") as person:
        person.sees("on")
        person.process.send_signal(signal.SIGTERM)
        person.sees("left by CancelledError")
        assert person.terminal_is_as_before


def test_terminal_is_put_back_when_the_place_is_lost() -> None:
    with at_terminal("sh", "-c", "echo on; exec cat", how="lose") as person:
        person.sees("on")
        person.sees("left by Closed")
        assert person.terminal_is_as_before


@pytest.mark.parametrize("typed", [b"one\ntwo\n", b"no newline"], ids=["lines", "half a line"])
def test_end_of_piped_input_is_typed_as_ctrl_d(typed: bytes) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), "stay", "sh", "-c", "stty -echo; exec cat"],
        input=typed,
        capture_output=True,
        check=True,
        timeout=20,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.split(b"ended: exit code 0")[0].endswith(typed.replace(b"\n", b"\r\n"))


def test_input_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "typed").write_text("hello\n")
    with (tmp_path / "typed").open() as typed:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "stay", "sh", "-c", 'read -r word; echo "<$word>"'],
            stdin=typed,
            capture_output=True,
            check=True,
            timeout=20,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert b"<hello>" in done.stdout


def test_escape_is_found_across_reads_and_after_enter_only() -> None:
    escape = EscapeParser()
    assert escape.feed(b"ls\r") == (b"ls\r", "")
    assert escape.feed(b"~") == (b"", "")
    assert escape.feed(b".more") == (b"", "close")
    assert escape.feed(b"~?") == (b"", "help")
    assert escape.feed(b"~~x~d\r~~") == (b"~x~d\r~", "")


def test_unknown_key_after_the_tilde_goes_to_the_place_with_it() -> None:
    assert EscapeParser().feed(b"~/bin\r") == (b"~/bin\r", "")


def test_screen_left_in_the_middle_is_undone_once() -> None:
    screen = ScreenState()
    assert not screen.restore_sequence.startswith(b"\x1b[?1049l")
    screen.observe(b"\x1b[?10")
    screen.observe(b"49hvim")
    assert screen.restore_sequence.startswith(b"\x1b[?1049l")
    screen.observe(b"bye\x1b[?1049l")
    assert not screen.restore_sequence.startswith(b"\x1b[?1049l")


def test_size_of_no_terminal_is_the_usual_one(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        assert read_size(file.fileno()) == (24, 80)
