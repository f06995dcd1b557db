"""Output: every byte as it was written, in its own stream, with an exact report of omitted bytes."""

from __future__ import annotations

import hashlib
import stat
from typing import TYPE_CHECKING

import pytest

from hermes_exec.testing.behaviours import Behaviours, exercises, needs
from hermes_exec.testing.place import ending_signal, marker

if TYPE_CHECKING:
    from hermes_exec.terminal.terminal import Terminal

ALL_BYTES = bytes(range(256))
IN_OCTAL = "".join(f"\\{byte:03o}" for byte in ALL_BYTES)
MANY = 3_000_000
NUMBERS = b"".join(b"%d\n" % n for n in range(1, 400_001))


class OutputSuite(Behaviours, exercises="channel"):
    """The output of a command arrives unchanged."""

    @pytest.mark.parametrize("way", ["text", "words"])
    async def test_the_two_outputs_are_kept_apart(self, terminal: Terminal, way: str) -> None:
        text = "echo out; echo err >&2; echo out again"
        result = await terminal.run(text if way == "text" else ["sh", "-c", text])
        assert (result.stdout, result.stderr) == (b"out\nout again\n", b"err\n")

    @pytest.mark.parametrize("way", ["text", "words"])
    async def test_both_outputs_can_be_one_stream_in_their_true_order(self, terminal: Terminal, way: str) -> None:
        text = "for n in 1 2 3 4 5; do echo out $n; echo err $n >&2; done"
        result = await terminal.run(text if way == "text" else ["sh", "-c", text], merge_stderr=True)
        assert result.stdout == b"".join(b"out %d\nerr %d\n" % (n, n) for n in range(1, 6))
        assert result.stderr == b""

    @exercises("guest")
    async def test_one_merged_command_leaves_the_next_ones_streams_apart(self, terminal: Terminal) -> None:
        await terminal.run("echo one >&2", merge_stderr=True)
        result = await terminal.run("echo out; echo err >&2")
        assert (result.stdout, result.stderr) == (b"out\n", b"err\n")

    @pytest.mark.parametrize("way", ["text", "words"])
    async def test_every_byte_value_arrives_unchanged(self, terminal: Terminal, way: str) -> None:
        text = f"printf '{IN_OCTAL}'; printf '{IN_OCTAL}' >&2"
        result = await terminal.run(text if way == "text" else ["sh", "-c", text])
        assert result.stdout == ALL_BYTES
        assert result.stderr == ALL_BYTES

    async def test_nul_bytes_and_bytes_that_are_not_text_arrive_unchanged(self, terminal: Terminal) -> None:
        result = await terminal.run(r"printf 'a\0b\377\376\0\303'")
        assert result.stdout == b"a\0b\xff\xfe\0\xc3"
        assert result.stdout_text == "a\0b\ufffd\ufffd\0\ufffd"

    @pytest.mark.parametrize("said", [b"no newline", b"\n", b"\n\n\n", b"cr\r\nlf\n", b" \t "])
    @exercises("guest")
    async def test_the_ends_of_lines_arrive_unchanged(self, terminal: Terminal, said: bytes) -> None:
        octal = "".join(f"\\{byte:03o}" for byte in said)
        assert (await terminal.run(f"printf '{octal}'")).stdout == said

    @exercises("guest")
    async def test_escape_sequences_arrive_unchanged(self, terminal: Terminal) -> None:
        result = await terminal.run(r"printf '\033[31mred\033[0m\033]0;title\007\033[6n\r\b'")
        assert result.stdout == b"\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[6n\r\b"

    async def test_a_large_output_arrives_whole(self, terminal: Terminal) -> None:
        result = await terminal.run("i=0; seq 1 400000")
        assert result.truncated == {}
        assert hashlib.sha256(result.stdout).digest() == hashlib.sha256(NUMBERS).digest()

    async def test_two_large_outputs_at_once_arrive_whole(self, terminal: Terminal) -> None:
        text = "seq 1 400000 >&2 & seq 1 400000; wait"
        result = await terminal.run(["sh", "-c", text])
        assert result.stdout == NUMBERS
        assert result.stderr == NUMBERS

    async def test_a_long_line_arrives_whole(self, terminal: Terminal) -> None:
        result = await terminal.run(["sh", "-c", f"head -c {MANY} /dev/zero | tr '\\0' x"])
        assert result.stdout == b"x" * MANY

    @exercises("guest")
    async def test_a_short_output_is_not_truncated(self, terminal: Terminal) -> None:
        result = await terminal.run("printf 1234567890", max_output=10)
        assert (result.stdout, result.truncated) == (b"1234567890", {})

    async def test_a_long_output_keeps_its_head_and_tail_with_exact_counts(self, terminal: Terminal) -> None:
        result = await terminal.run("seq 1 400000", max_output=1000)
        lost = result.truncated["stdout"]
        assert lost.total == len(NUMBERS)
        head, _, rest = result.stdout.partition(b"\n[... ")
        count, _, tail = rest.partition(b" bytes omitted ...]\n")
        assert NUMBERS.startswith(head)
        assert NUMBERS.endswith(tail)
        assert len(head) > 100
        assert len(tail) > 100
        assert len(head) + len(tail) + lost.omitted == lost.total
        assert int(count) == lost.omitted

    async def test_a_truncated_output_is_whole_in_its_spool(self, terminal: Terminal) -> None:
        result = await terminal.run("seq 1 400000; printf abcdefghijk >&2", max_output=10)
        out, err = result.truncated["stdout"], result.truncated["stderr"]
        assert out.spool is not None
        assert err.spool is not None
        assert out.spool.read_bytes() == NUMBERS
        assert out.spooled == len(NUMBERS)
        assert err.spool.read_bytes() == b"abcdefghijk"
        assert stat.S_IMODE(out.spool.stat().st_mode) == 0o600

    @exercises("guest")
    async def test_no_output_at_all_can_be_kept(self, terminal: Terminal) -> None:
        result = await terminal.run("echo gone", max_output=0)
        assert result.truncated["stdout"].omitted == 5
        assert b"gone" not in result.stdout

    @exercises("guest")
    async def test_the_output_before_a_time_limit_is_kept(self, terminal: Terminal) -> None:
        result = await terminal.run("echo before; echo error >&2; sleep 60", timeout=2, grace_s=0.1)
        assert result.timed_out
        assert (result.stdout, result.stderr) == (b"before\n", b"error\n")

    async def test_the_output_of_a_program_that_kills_itself_is_kept(self, terminal: Terminal) -> None:
        result = await terminal.run(["sh", "-c", "echo last words; seq 1 400000; kill -9 $$"])
        assert result.stdout == b"last words\n" + NUMBERS
        assert ending_signal(result) == 9

    @exercises("guest")
    async def test_a_printed_marker_is_only_output(self, terminal: Terminal) -> None:
        mark = marker()
        spoofs = [
            f"__CWD__/spoofed-{mark}__CWD__", f"\x1b]7;file:///spoofed-{mark}\x07", f"cd /spoofed-{mark}",
            "EXIT_CODE=99", "__EXIT__ 99", "# complete", "state.new", "s/99", "<hx 000000000000000000000000>",
            "\x10\x00\x00\x00\x11\x00\x00\x00\x00\x00\x00\x00\x01", "PS1$ ", "\x04", "EOF",
        ]  # fmt: skip
        said = "\n".join(spoofs).replace("\0", "")
        before = await terminal.run("pwd")
        result = await terminal.run(["printf", "%s", said])
        assert result.stdout.decode() == said
        result = await terminal.run('printf %s "$SAID"; printf %s "$SAID" >&2', env={"SAID": said})
        assert (result.stdout.decode(), result.stderr.decode(), result.exit_code) == (said, said, 0)
        assert (await terminal.run("pwd")).stdout == before.stdout

    @exercises("guest")
    async def test_a_program_that_closes_its_outputs_ends_like_any_other(self, terminal: Terminal) -> None:
        result = await terminal.run(["sh", "-c", "echo seen; exec >&- 2>&-; exit 3"])
        assert (result.stdout, result.exit_code) == (b"seen\n", 3)

    @pytest.mark.parametrize("way", ["text", "words"])
    @needs("background")
    async def test_a_child_that_holds_the_outputs_does_not_hold_the_answer(self, terminal: Terminal, way: str) -> None:
        text = "sleep 20 & echo started"
        result = await terminal.run(text if way == "text" else ["sh", "-c", text])
        assert result.stdout == b"started\n"
        assert result.duration_s < 10
