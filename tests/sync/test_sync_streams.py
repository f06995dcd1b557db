"""Iterating, and leaving early."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Literal

import pytest

import hermes_exec.sync as hx
from hermes_exec._sync.portal import portal

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from hermes_exec.terminal.stream import Stream as AsyncStream

    Carrier = Literal["guest", "plain"]


def test_a_stream_gives_the_events_and_last_the_exit(terminal: hx.Terminal) -> None:
    with terminal.stream("printf out; printf err >&2; exit 3") as stream:
        events = list(stream)
    assert {(event.kind, event.data) for event in events[:-1]} == {("stdout", b"out"), ("stderr", b"err")}
    assert events[-1].result is not None
    assert events[-1].result.exit_code == 3


def test_an_event_is_there_before_the_command_ends(terminal: hx.Terminal, fifo: Path) -> None:
    with terminal.stream(["sh", "-c", f"echo one; cat {fifo}"]) as stream:
        assert next(stream).data == b"one\n"
        fifo.write_text("two")
        assert next(stream).data == b"two"


@pytest.mark.parametrize("carrier", ["guest", "plain"])
@pytest.mark.parametrize("end", ["break", "exception", "close", "garbage collection"])
def test_leaving_a_stream_early_ends_the_command(carrier: Carrier, end: str) -> None:
    def lines() -> Generator[bytes]:
        with terminal.stream(["sh", "-c", "echo $$; exec yes"]) as events:
            for event in events:
                yield event.data

    def read() -> None:
        with terminal.stream(["sh", "-c", "echo $$; exec yes"]) as events:
            for event in events:
                begun.append(int(event.data.split()[0]))
                if end == "exception":
                    raise ZeroDivisionError
                break

    begun: list[int] = []
    error: BaseException | None = None  # holds the traceback, and with it the iterator
    with hx.open("local", audit=False, carrier=carrier) as terminal:
        if end in {"break", "exception"}:
            try:
                read()
            except ZeroDivisionError as raised:
                error = raised
        else:
            reading = lines()
            begun.append(int(next(reading).split()[0]))
            if end == "close":
                reading.close()
            del reading
        assert (error is not None) == (end == "exception")
        assert terminal.run(["test", "-e", f"/proc/{begun[0]}"]).exit_code == 1


def test_a_stream_collected_as_garbage_within_the_loop_ends_its_command(terminal: hx.Terminal) -> None:
    def lines() -> Generator[bytes]:
        with terminal.stream(["sh", "-c", "echo $$; exec yes"], grace_s=0.1) as events:
            for event in events:
                yield event.data

    reading = lines()
    pid = int(next(reading).split()[0])
    portal().do(reading.close)  # as the collector does in the middle of any callback
    ended = ["sh", "-c", f"while test -e /proc/{pid}; do sleep 0.01; done"]
    assert not terminal.run(ended, timeout=30).timed_out


def test_a_stream_that_ctrl_c_came_upon_as_it_was_entered_is_ended(terminal: hx.Terminal, fifo: Path) -> None:
    async def enter() -> AsyncStream:
        entered = await stream._core.__aenter__()  # pyright: ignore[reportPrivateUsage]  what __enter__ waits for
        pids.append(int((await anext(entered)).data))
        signal.raise_signal(signal.SIGINT)
        return entered

    pids: list[int] = []
    stream = terminal.stream(["sh", "-c", f"echo $$; exec cat {fifo}"])
    with pytest.raises(KeyboardInterrupt):
        portal().call(enter())
    assert terminal.run(["test", "-e", f"/proc/{pids[0]}"]).exit_code == 1


def test_nothing_runs_for_a_loop_that_no_block_would_end(terminal: hx.Terminal, tmp_path: Path) -> None:
    with pytest.raises(hx.UsageError, match="only inside of a with block; nothing ran"):
        for _ in terminal.stream(["touch", str(tmp_path / "ran")]):
            pass
    assert not list(tmp_path.iterdir())


def test_what_an_interactive_command_reads_can_be_written(terminal: hx.Terminal) -> None:
    with terminal.stream(["cat"], interactive=True) as stream:
        stream.write("typed")
        assert next(stream).data == b"typed"
        stream.close_stdin()
        assert stream.result().ok


def test_an_exhausted_stream_stays_exhausted(terminal: hx.Terminal) -> None:
    with terminal.stream(["true"]) as stream:
        assert [event.kind for event in stream] == ["exit"]
        assert list(stream) == []


def test_a_jobs_log_can_be_left_early_and_closed(terminal: hx.Terminal, fifo: Path) -> None:
    job = terminal.start(f"echo one; cat {fifo}")
    with job.logs(follow=True) as log:
        assert next(log).data == b"one\n"
    with pytest.raises(StopIteration):
        next(log)
    fifo.write_text("two")
    assert job.wait().stdout == b"one\ntwo"
    job.prune()


def test_an_error_is_raised_where_it_was_asked_for(terminal: hx.Terminal) -> None:
    with pytest.raises(ValueError, match="command: it is empty"):
        terminal.stream([])
