"""Streams: events as they arrive, in both directions, at the reader's speed."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import UsageError
from hermes_exec.testing.behaviours import Behaviours, exercises
from hermes_exec.testing.input import WAYS, as_command
from hermes_exec.testing.place import count_living, marker, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec.terminal.stream import Stream
    from hermes_exec.terminal.terminal import Terminal

WINDOW = 16 << 20
"""More than all buffers on the way hold together."""


async def text_until(stream: Stream, wanted: bytes) -> bytes:
    """Consume events until ``wanted`` was written to standard output."""
    seen = b""
    async for event in stream:
        assert event.kind != "exit", f"it ended after {seen!r}"
        seen += event.data
        if wanted in seen:
            break
    return seen


class StreamsSuite(Behaviours, exercises="channel"):
    """Output arrives while the command runs, and a slow reader makes it wait."""

    @pytest.mark.parametrize("way", WAYS)
    async def test_the_last_event_is_the_exit_with_the_result(self, terminal: Terminal, way: str) -> None:
        async with terminal.stream(as_command(way, "echo out; echo err >&2; (exit 3)")) as stream:
            events = [event async for event in stream]
        assert b"".join(event.data for event in events if event.kind == "stdout") == b"out\n"
        assert b"".join(event.data for event in events if event.kind == "stderr") == b"err\n"
        assert [event.kind for event in events].index("exit") == len(events) - 1
        assert events[-1].result is not None
        assert events[-1].result.exit_code == 3

    @pytest.mark.parametrize("way", WAYS)
    async def test_output_comes_while_the_command_runs(self, terminal: Terminal, way: str) -> None:
        talk = "echo ready; read line; echo you said $line"
        async with terminal.stream(as_command(way, talk), interactive=True) as stream:
            assert await text_until(stream, b"ready") == b"ready\n"
            await stream.write("hello\n")
            assert await text_until(stream, b"hello") == b"you said hello\n"
            assert (await stream.result()).exit_code == 0

    @pytest.mark.parametrize("way", WAYS)
    async def test_input_ends_when_it_is_closed(self, terminal: Terminal, way: str) -> None:
        async with terminal.stream(as_command(way, "cat; echo end"), interactive=True) as stream:
            await stream.write(b"one ")
            await stream.write(b"two ")
            await stream.close_stdin()
            assert await text_until(stream, b"end") == b"one two end\n"

    @exercises("guest")
    async def test_writing_without_having_asked_for_it_is_refused(self, terminal: Terminal) -> None:
        async with terminal.stream(["cat"]) as stream:
            with pytest.raises(UsageError):
                await stream.write(b"x")

    @pytest.mark.parametrize("way", WAYS)
    async def test_writing_to_a_command_that_has_ended_is_dropped(self, terminal: Terminal, way: str) -> None:
        async with terminal.stream(as_command(way, "true"), interactive=True) as stream:
            await stream.result()
            await stream.write(bytes(WINDOW))
            await stream.close_stdin()

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_reader_that_waits_makes_the_command_wait(self, terminal: Terminal, folder: str, way: str) -> None:
        count = f"i=0; while [ $i -lt 64 ]; do head -c 1048576 /dev/zero; i=$((i+1)); echo $i > {folder}/count; done"

        async def read_count() -> int:
            return int((await terminal.run(["sh", "-c", f"cat {folder}/count || echo 0"])).stdout or 0)

        async with terminal.stream(as_command(way, count)) as stream:
            before = -1
            while before != (now := await read_count()) or now == 0:  # until it no longer changes
                before = now
                await asyncio.sleep(0.2)
            assert now << 20 <= WINDOW
            total = 0
            async for event in stream:
                total += len(event.data)
            assert total == 64 << 20
            assert await read_count() == 64

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_reader_that_comes_late_finds_the_end_as_it_was(self, terminal: Terminal, way: str) -> None:
        size = 4_700_000  # more than the window, and the rest fits into a pipe: it ends before it is read
        async with terminal.stream(as_command(way, f"head -c {size} /dev/zero; (exit 3)")) as stream:
            await asyncio.sleep(0.3)
            events = [event async for event in stream]
        assert sum(len(event.data) for event in events) == size
        assert events[-1].result is not None
        assert (events[-1].result.exit_code, events[-1].result.note) == (3, "")

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("end", ["break", "exception", "cancellation"])
    async def test_leaving_early_ends_the_command(self, terminal: Terminal, way: str, end: str) -> None:
        mark = marker()
        running = asyncio.Event()

        async def runs() -> bool:
            return await count_living(terminal, mark) > 0

        async def read() -> None:
            async with terminal.stream(as_command(way, f"echo ready; sleep {mark}"), grace_s=0.1) as events:
                async for event in events:
                    assert event.data == b"ready\n"
                    await wait_until(runs)
                    running.set()
                    if end == "exception":
                        raise ZeroDivisionError
                    if end == "break":
                        break

        reading = asyncio.ensure_future(read())
        reading.add_done_callback(lambda _: running.set())
        await running.wait()
        if end == "cancellation":
            reading.cancel()
        (left,) = await asyncio.gather(reading, return_exceptions=True)  # holds the error, with its traceback
        assert (left is None) == (end == "break")
        assert await count_living(terminal, mark) == 0

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("end", ["aclose", "garbage collection"])
    async def test_a_generator_around_a_stream_ends_the_command(self, terminal: Terminal, way: str, end: str) -> None:
        mark = marker()

        async def lines() -> AsyncGenerator[bytes]:
            async with terminal.stream(as_command(way, f"echo ready; sleep {mark}"), grace_s=0.1) as events:
                async for event in events:
                    yield event.data

        reading = lines()
        assert await anext(reading) == b"ready\n"
        if end == "aclose":
            await reading.aclose()
            assert await count_living(terminal, mark) == 0
        del reading
        gc.collect()

        async def is_gone() -> bool:
            return await count_living(terminal, mark) == 0

        await wait_until(is_gone)

    @pytest.mark.parametrize("way", WAYS)
    @exercises("guest")
    async def test_nothing_runs_for_a_loop_that_no_block_would_end(
        self, terminal: Terminal, way: str, folder: str
    ) -> None:
        stream = terminal.stream(as_command(way, f"echo ran > {folder}/ran"), interactive=True)
        for use in (anext(stream), stream.write(b"x"), stream.close_stdin(), stream.result(), stream.cancel()):
            with pytest.raises(UsageError, match="only inside of a with block; nothing ran"):
                await use
        await stream.close()
        assert (await terminal.run(["ls", folder])).stdout == b""

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_cancelled_command_gives_its_output_and_is_marked(self, terminal: Terminal, way: str) -> None:
        mark = marker()
        async with terminal.stream(as_command(way, f"echo ready; sleep {mark}"), grace_s=0.1) as stream:
            assert await text_until(stream, b"ready") == b"ready\n"
            result = await stream.cancel()
            assert result.cancelled
            assert not result.timed_out
            assert not result.ok
            assert await count_living(terminal, mark) == 0

    async def test_a_time_limit_ends_a_stream(self, terminal: Terminal) -> None:
        async with terminal.stream(["sh", "-c", "echo in; sleep 60"], timeout=2) as stream:
            events = [event async for event in stream]
        assert events[0].data == b"in\n"
        assert events[-1].result is not None
        assert events[-1].result.timed_out

    async def test_the_result_can_be_had_without_reading(self, terminal: Terminal) -> None:
        async with terminal.stream(["sh", "-c", f"head -c {2 * WINDOW} /dev/zero; exit 4"]) as stream:
            assert (await stream.result()).exit_code == 4

    async def test_a_stalled_stream_holds_no_other_command_up(self, terminal: Terminal) -> None:
        async with terminal.stream(["cat", "/dev/zero"], grace_s=0.1):
            for n in range(5):
                assert (await terminal.run(["echo", str(n)], timeout=10)).stdout == b"%d\n" % n
                assert (await terminal.run(f"echo {n}", timeout=10)).stdout == b"%d\n" % n

    async def test_streams_run_beside_each_other(self, terminal: Terminal) -> None:
        async def talk(n: int) -> bytes:
            async with terminal.stream(["cat"], interactive=True) as stream:
                await stream.write(f"to {n}\n")
                return await text_until(stream, b"\n")

        assert await asyncio.gather(*(talk(n) for n in range(10))) == [b"to %d\n" % n for n in range(10)]

    async def test_a_cancelled_task_has_ended_its_command(self, terminal: Terminal) -> None:
        mark = marker()
        task = asyncio.ensure_future(terminal.run(["sleep", mark], grace_s=0.1))

        async def runs() -> bool:
            return await count_living(terminal, mark) == 1

        await wait_until(runs)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await count_living(terminal, mark) == 0

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_task_that_is_cancelled_at_any_moment_has_ended_its_command(
        self, terminal: Terminal, way: str
    ) -> None:
        mark = marker()
        for moment in range(12):
            task = asyncio.ensure_future(terminal.run(as_command(way, f"exec sleep {mark}"), grace_s=0.1))
            await asyncio.sleep(moment / 250)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await count_living(terminal, mark) == 0

    @pytest.mark.parametrize("way", WAYS)
    async def test_a_large_input_and_its_output_can_be_streamed(self, terminal: Terminal, way: str) -> None:
        data = bytes(range(256)) * 100_000
        async with terminal.stream(as_command(way, "cat"), stdin=data) as events:
            seen = b"".join([event.data async for event in events])
        assert seen == data
