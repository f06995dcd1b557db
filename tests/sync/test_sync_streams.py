"""Iterating, and leaving early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    import hermes_exec.sync as hx


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


def test_leaving_a_stream_early_ends_the_command(terminal: hx.Terminal) -> None:
    with terminal.stream("echo $BASHPID; exec yes") as stream:
        pid = int(next(stream).data.split()[0])
    assert terminal.run(["test", "-e", f"/proc/{pid}"]).exit_code == 1


def test_what_an_interactive_command_reads_can_be_written(terminal: hx.Terminal) -> None:
    with terminal.stream(["cat"], interactive=True) as stream:
        stream.write("typed")
        assert next(stream).data == b"typed"
        stream.close_stdin()
        assert stream.result().ok


def test_an_exhausted_stream_stays_exhausted(terminal: hx.Terminal) -> None:
    stream = terminal.stream(["true"])
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
    with pytest.raises(ValueError, match="an empty command"):
        terminal.stream([])
