"""Input: a command reads exactly the bytes that were sent to it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing.behaviours import Behaviours, exercises
from hermes_exec.testing.output import ALL_BYTES

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal

WAYS = ["text", "words"]
LARGE = 12_000_000


def as_command(way: str, text: str) -> str | list[str]:
    """Return the same shell text for the terminal's session, or as a program of its own."""
    return text if way == "text" else ["sh", "-c", text]


class InputSuite(Behaviours, exercises="channel"):
    """Standard input reaches the command that it is meant for."""

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_command_reads_what_it_is_given(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "cat; echo $?"), stdin="räksmörgås\n")
        assert result.stdout.decode() == "räksmörgås\n0\n"

    @pytest.mark.parametrize("way", WAYS)
    async def test_every_byte_value_can_be_read(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "cat"), stdin=ALL_BYTES * 10)
        assert result.stdout == ALL_BYTES * 10

    @pytest.mark.parametrize("way", WAYS)
    async def test_without_input_a_reader_finds_the_end_at_once(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "cat; read line; echo $?"), timeout=10)
        assert (result.stdout, result.timed_out) == (b"1\n", False)

    @pytest.mark.parametrize("way", WAYS)
    @exercises("guest")
    async def test_empty_input_is_the_end_at_once(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "wc -c"), stdin=b"", timeout=10)
        assert result.stdout.strip() == b"0"

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_large_input_arrives_whole(self, terminal: Terminal, way: str) -> None:
        data = os.urandom(LARGE)
        result = await terminal.run(as_command(way, "sha256sum"), stdin=data)
        assert result.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_large_input_comes_back_while_it_is_sent(self, terminal: Terminal, way: str) -> None:
        data = os.urandom(LARGE)
        result = await terminal.run(as_command(way, "cat"), stdin=data, max_output=LARGE)
        assert result.stdout == data

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_large_input_that_nobody_reads_holds_nothing_up(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "echo done"), stdin=bytes(LARGE), timeout=20)
        assert (result.stdout, result.exit_code) == (b"done\n", 0)

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_command_may_read_only_the_beginning(self, terminal: Terminal, way: str) -> None:
        result = await terminal.run(as_command(way, "head -c 5"), stdin=b"12345" + bytes(LARGE), timeout=20)
        assert (result.stdout, result.exit_code) == (b"12345", 0)

    @exercises("guest")
    async def test_what_one_command_left_unread_is_not_the_next_ones(self, terminal: Terminal) -> None:
        await terminal.run("read line", stdin=b"first\nsecond\n")
        assert (await terminal.run("cat", timeout=10)).stdout == b""
        assert (await terminal.run("cat", stdin=b"its own")).stdout == b"its own"

    @exercises("guest")
    async def test_each_line_can_be_read_by_another_command_of_the_text(self, terminal: Terminal) -> None:
        result = await terminal.run("read a; read b; echo $b $a; cat", stdin=b"one\ntwo\nrest\n")
        assert result.stdout == b"two one\nrest\n"

    @exercises("guest")
    async def test_a_reading_command_cannot_eat_the_commands_that_follow(self, terminal: Terminal) -> None:
        first = terminal.run("cat; cat; head -c 100; read x; exec 5<&0; cat <&5; exec 5<&-", timeout=10)
        results = await asyncio.gather(first, terminal.run("echo second"), terminal.run("echo third"))
        assert [result.stdout for result in results] == [b"", b"second\n", b"third\n"]

    @exercises("guest")
    async def test_input_is_no_terminal(self, terminal: Terminal) -> None:
        assert (await terminal.run("test -t 0 || echo none")).stdout == b"none\n"
        assert (await terminal.run(["sh", "-c", "test -t 0 || echo none"], stdin=b"x")).stdout == b"none\n"

    async def test_programs_at_once_each_get_their_own_input(self, terminal: Terminal) -> None:
        said = [os.urandom(100_000) for _ in range(8)]
        results = await asyncio.gather(*(terminal.run(["cat"], stdin=data) for data in said))
        assert [result.stdout for result in results] == said
