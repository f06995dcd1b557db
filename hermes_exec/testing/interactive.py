"""Interactive programs: a terminal of their own, of the requested size."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.testing.behaviours import Behaviours, exercises, needs
from hermes_exec.testing.place import count_living, link, marker

if TYPE_CHECKING:
    from hermes_exec.terminal.pty import Pty
    from hermes_exec.terminal.terminal import Terminal


async def read_until(pty: Pty, wanted: bytes) -> bytes:
    """Read until ``wanted`` appears."""
    shown = b""
    while wanted not in shown:
        piece = await pty.read()
        assert piece, f"it ended after {shown!r}"
        shown += piece
    return shown


class InteractiveSuite(Behaviours, exercises="guest"):
    """A program runs as on a real terminal."""

    @needs("pty")
    @exercises("target")
    async def test_a_program_has_a_terminal_of_the_given_size(self, terminal: Terminal) -> None:
        async with terminal.pty(["sh", "-c", "test -t 0 && stty size"], rows=33, cols=77) as pty:
            await read_until(pty, b"33 77")
            assert (await pty.wait()).exit_code == 0

    @needs("pty")
    async def test_without_words_the_shell_of_its_environment_starts(self, terminal: Terminal) -> None:
        async with terminal.pty(env={"SHELL": "/bin/echo"}) as pty:  # which prints its arguments
            assert await read_until(pty, b"-l")

    @needs("pty")
    async def test_what_is_typed_is_echoed_and_read(self, terminal: Terminal) -> None:
        async with terminal.pty(["sh", "-c", "read line; echo got $line; exit 4"]) as pty:
            await pty.write("typed\n")
            assert (await read_until(pty, b"got typed")).startswith(b"typed")
            assert (await pty.wait()).exit_code == 4

    @needs("pty")
    async def test_another_size_is_told_to_the_program(self, terminal: Terminal) -> None:
        async with terminal.pty(["sh", "-c", "trap 'stty size' WINCH; echo in; while :; do sleep 0.05; done"]) as pty:
            await read_until(pty, b"in")
            await pty.resize(50, 123)
            await read_until(pty, b"50 123")

    @needs("pty")
    async def test_control_c_interrupts_what_runs_in_the_foreground(self, terminal: Terminal) -> None:
        async with terminal.pty(
            ["sh", "-c", "trap 'echo caught; exit 7' INT; echo in; while :; do sleep 0.05; done"]
        ) as pty:
            await read_until(pty, b"in")
            await pty.write(b"\x03")
            await read_until(pty, b"caught")
            assert (await pty.wait()).exit_code == 7

    @needs("pty")
    @exercises("channel")
    async def test_every_byte_value_passes_a_raw_terminal(self, terminal: Terminal) -> None:
        data = bytes(range(256))
        async with terminal.pty(["sh", "-c", "stty raw -echo; echo in; head -c 256"]) as pty:
            await read_until(pty, b"in\n")
            await pty.write(data)
            shown = b""
            while len(shown) < 256:
                shown += await pty.read()
            assert shown == data

    @needs("pty")
    async def test_the_end_of_input_reaches_a_program_that_takes_keys_later(self, terminal: Terminal) -> None:
        edits = """
            read line; stty -icanon -echo
            until [ "$(dd bs=1 count=1 2>/dev/null | od -An -tx1)" = " 04" ]; do :; done
            exit 4
        """
        async with terminal.pty(["sh", "-c", edits]) as pty:
            await pty.write("a line\n")
            await pty.close_stdin()
            assert (await asyncio.wait_for(pty.wait(), 45)).exit_code == 4

    @needs("pty")
    async def test_the_end_of_input_ends_every_program_that_reads_on(self, terminal: Terminal) -> None:
        async with terminal.pty(["sh", "-c", "stty -echo; echo in; cat; cat; exit 4"]) as pty:
            await read_until(pty, b"in\r\n")
            await pty.write("half a line")
            await pty.close_stdin()
            assert await read_until(pty, b"half a line") == b"half a line"
            assert (await asyncio.wait_for(pty.wait(), 45)).exit_code == 4

    @needs("pty")
    async def test_closing_it_while_it_ends_by_itself_returns(self, terminal: Terminal) -> None:
        for _ in range(30):
            async with terminal.pty(["sh", "-c", "stty raw -echo; echo in; head -c 1"]) as pty:
                await read_until(pty, b"in\n")
                await pty.write(b"x")
                await read_until(pty, b"x")

    @needs("pty", "kill_tree")
    @exercises("target")
    async def test_closing_it_ends_all_that_runs_in_it(self, terminal: Terminal) -> None:
        mark = marker()
        async with terminal.pty(["sh", "-c", f"setsid sleep {mark} & echo in; sleep {mark}"]) as pty:
            await read_until(pty, b"in")
        assert await count_living(terminal, mark) == 0

    @needs("pty", "reconnect")
    @exercises("channel")
    async def test_it_outlives_the_connection(self, terminal: Terminal) -> None:
        async with terminal.pty(["cat"]) as pty:
            await pty.write("before\n")
            await read_until(pty, b"before\r\nbefore\r\n")
            link(terminal).break_connection()
            await pty.write("after\n")
            await read_until(pty, b"after\r\nafter\r\n")

    @needs("pty")
    async def test_two_at_once_are_two_terminals(self, terminal: Terminal) -> None:
        async def one(word: str) -> bytes:
            async with terminal.pty(["sh", "-c", "tty; read x; echo $x done"]) as pty:
                name = await read_until(pty, b"\n")
                await pty.write(f"{word}\n")
                await read_until(pty, f"{word} done".encode())
                return name

        names = await asyncio.gather(one("first"), one("second"))
        assert names[0] != names[1]
