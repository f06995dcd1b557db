"""What flows through a plain command: input, large commands, large outputs, flow control."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import PlaceError
from hermes_exec.transport.shell import ShellTransport
from hermes_exec_backends.local import LocalBackend

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec.backend import Backend
    from hermes_exec.terminal.terminal import Terminal
    from hermes_exec.transport.protocol import RunningCommand

Plain = Callable[..., None]
LONG = 300_000  # no kernel takes a word this long
MIB = 1 << 20


@pytest.mark.parametrize("data", [b"", b"text", b"\0\xff\n", bytes(range(256)) * 80_000])
def test_input_arrives_whole_and_ends(plain: Plain, data: bytes) -> None:
    async def scenario(terminal: Terminal) -> None:
        for command in (["cat"], "cat"):
            result = await terminal.run(command, stdin=data, max_output=32 * MIB)
            assert result.stdout == data

    plain(scenario)


def test_without_input_a_command_reads_nothing(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        assert (await terminal.run(["cat"])).ok
        assert (await terminal.run("cat; echo $?")).stdout == b"0\n"

    plain(scenario)


def test_input_that_nobody_reads_holds_nothing_up(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run(["true"], stdin=bytes(20 * MIB))
        assert result.exit_code == 0

    plain(scenario)


def test_input_can_be_written_piece_by_piece(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        async with terminal.stream(["cat"], interactive=True) as stream:
            await stream.write("one\n")
            assert (await anext(stream)).data == b"one\n"
            await stream.write("two\n")
            assert (await anext(stream)).data == b"two\n"
            await stream.close_stdin()
            assert (await stream.result()).exit_code == 0

    plain(scenario)


def test_shell_text_may_be_of_any_length_and_has_its_input_for_itself(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        text = f"x='{'y' * LONG}'\necho ${{#x}} $#; cat; echo err >&2; exit 7"
        result = await terminal.run(text, stdin="input")
        assert (result.exit_code, result.stdout, result.stderr) == (7, f"{LONG} 0\ninput".encode(), b"err\n")

    plain(scenario)


def test_shell_text_need_not_be_utf_8(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run(b"printf %s '\xff\x81\x88\xc3'")
        assert result.stdout == b"\xff\x81\x88\xc3"

    plain(scenario)


def test_a_syntax_error_in_long_text_is_told_by_the_shell(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run("echo before\nif\n" + "#" * LONG)
        assert result.exit_code not in {0, None}
        assert b"yntax error" in result.stderr

    plain(scenario)


def test_many_words_may_be_longer_together_than_a_kernel_takes_in_one(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        words = ["it's " + "y" * 1000] * 300
        result = await terminal.run(["sh", "-c", 'echo $# "${2%%y*}"; cat', "sh", *words], stdin="input")
        assert result.stdout == b"300 it's \ninput"

    plain(scenario)


def test_one_word_that_is_too_long_gives_the_kernels_own_error(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run(["echo", "y" * LONG])
        assert result.exit_code == 126
        assert b"rgument list too long" in result.stderr

    plain(scenario)


def test_a_long_command_obeys_its_folder_and_a_time_limit(plain: Plain, tmp_path: Path) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run("pwd; sleep 60 #" + "y" * LONG, cwd=tmp_path, timeout=2, grace_s=5)
        assert result.timed_out
        assert result.stdout == f"{tmp_path}\n".encode()

    plain(scenario)


def test_a_long_command_in_a_missing_folder_leaves_no_file(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        with pytest.raises(ValueError, match=r"no folder .*/no/such"):
            await terminal.run("echo #" + "y" * LONG, cwd="/no/such")

    plain(scenario)  # which looks for files


def test_a_long_command_that_cannot_be_started_leaves_no_file(plain: Plain, behind: Callable[[str], Backend]) -> None:
    async def scenario(terminal: Terminal) -> None:
        with pytest.raises(PlaceError, match="did not start it"):
            await terminal.run("echo #" + "y" * LONG)

    plain(scenario, behind('case "$5" in */hermes-exec-*) [ "$3" != \'. "$1"\' ] || exit 1; esac; exec "$@"'))


def test_a_large_output_is_whole(plain: Plain) -> None:
    async def scenario(terminal: Terminal) -> None:
        result = await terminal.run(["head", "-c", str(50 * MIB), "/dev/zero"], max_output=64 * MIB)
        assert result.stdout == bytes(50 * MIB)

    plain(scenario)


class Slow:
    """A sink that uses nothing up until it is told to."""

    def __init__(self) -> None:
        self.total = 0
        self.full = asyncio.Event()
        self._reads = False

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        self.total += len(data)
        if self._reads:
            call.acknowledge(channel, len(data))
        elif self.total > 4 * MIB:
            self.full.set()

    def read_on(self, call: RunningCommand) -> None:
        self._reads = True
        call.acknowledge(1, self.total)


def test_a_slow_reader_makes_the_command_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        carrier = await ShellTransport.open(LocalBackend(), env={}, cwd=str(tmp_path))
        slow = Slow()
        call = carrier.start("exec", {"argv": [b"sh", b"-c", b"head -c 50000000 /dev/zero; >done"]}, slow)
        await slow.full.wait()
        # Time for the rest to come, if it came: another command that writes as much, from start to end.
        other = Slow()
        other.read_on(call)
        twin = carrier.start("exec", {"argv": [b"head", b"-c", b"50000000", b"/dev/zero"]}, other)
        await twin.result()
        assert slow.total <= 8 * MIB
        assert not (tmp_path / "done").exists()
        slow.read_on(call)
        assert (await call.result())["code"] == 0
        assert slow.total == 50_000_000
        await carrier.close()

    asyncio.run(scenario())


def test_a_reader_that_stopped_does_not_hold_up_a_time_limit() -> None:
    async def scenario() -> None:
        carrier = await ShellTransport.open(LocalBackend(), env={}, cwd=None)
        call = carrier.start("exec", {"argv": [b"cat", b"/dev/zero"], "timeout": 0.5}, Slow())
        answer = await call.result()
        assert (answer["timed_out"], answer["signal"]) == (True, 15)
        assert "note" not in answer
        await carrier.close()

    asyncio.run(scenario())
