"""``jobs --watch`` prints changes as they come; ``logs --since`` prints the end of a log by time."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING, Any

from hermes_exec.guest.core.wire import STDERR, STDOUT
from hermes_exec.guest.jobs.job_log import BOTH, MOST_SPANS, JobLogFile
from tests.cli.screen import Screen

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.conftest import Cli


def test_watch_prints_each_change_of_a_job(cli: Cli) -> None:
    cli("run", "--detach", "--name", "before", "sleep 900")
    child = cli.start("jobs", "--watch", "--json")
    first = json.loads(child.out.readline())
    assert (first["name"], first["state"]) == ("before", "running")
    cli("run", "--detach", "--name", "later", "read x < /dev/null; sleep 0.1; exit 3")
    line: dict[str, Any] = {}
    while (line.get("name"), line.get("state")) != ("later", "ended"):
        line = json.loads(child.out.readline())
        assert line["at"].endswith("Z")
    assert line["result"]["exit_code"] == 3
    cli("kill", "before")
    line = json.loads(child.out.readline())
    assert (line["name"], line["state"]) == ("before", "ended")
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 130


def test_watch_is_columns_for_people(cli: Cli) -> None:
    cli("run", "--detach", "--name", "a-job", "sleep 900")
    child = cli.start("jobs", "-w")
    assert child.out.readline().split()[:3] == [b"JOB", b"NAME", b"STATE"]
    assert child.out.readline().split()[1:3] == [b"a-job", b"running"]
    cli("kill", "a-job")
    assert b"a-job" in child.out.readline()


def test_watch_fits_a_terminal(cli: Cli) -> None:
    cli("run", "--detach", "--name", "a-job", "true " + "wide " * 40)
    shown = Screen(cli, "jobs", "-w", cols=60)
    try:
        shown.see(r"JOB +STATE +TIME +TARGET +COMMAND\r\n")
        assert len(shown.see(r"[^\n]*true wide[^\n]*…\r\n")[0].decode()) <= 62
    finally:
        shown.close()


def test_watch_does_not_prune(cli: Cli) -> None:
    done = cli("jobs", "--watch", "--prune")
    assert (done.returncode, done.stderr) == (2, b"hermes-exec: --watch excludes --prune. Try: leave one of them out\n")


def test_logs_since_prints_what_was_written_then(cli: Cli) -> None:
    cli("run", "--detach", "--stdin", "--name", "a-job", "echo old; read x; echo new; echo err >&2; sleep 900")
    child = cli.start("logs", "--follow", "a-job")
    assert child.out.readline() == b"old\n"
    written = time.time()
    while time.time() - written < 2.5:  # the log is exact to a second, so time has to pass
        time.sleep(0.1)
    feeding = cli.start("attach", "a-job", stdin=-1)
    assert feeding.stdin is not None
    feeding.stdin.write(b"go\n")
    feeding.stdin.flush()
    assert child.out.readline() == b"new\n"
    passed = time.time() - written
    assert cli("logs", "--since", f"{passed - 1.2:.2f}", "--stream", "stdout", "a-job").stdout == b"new\n"
    assert cli("logs", "--since", "1h", "a-job").stdout == b"old\nnew\n"
    done = cli("logs", "--since", "1h", "--tail", "1", "a-job")
    assert (done.returncode, done.stdout) == (2, b"")
    assert cli("logs", "--since", "soon", "a-job").returncode == 2
    assert cli("logs", "--since", "2999-01-01", "a-job").returncode == 2


def test_the_times_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("hermes_exec.guest.jobs.job_log.time.time", lambda: clock[0])
    log = JobLogFile(str(tmp_path), 1 << 30)
    writes = ((1000, STDOUT, b"a"), (1000.5, STDERR, b"bb"), (1060, STDOUT, b"ccc"), (1090, STDERR, b"d"))
    for at, channel, data in writes:
        clock[0] = at
        log.append(channel, data)
    assert log.offset_since(0, BOTH) == 0
    assert log.offset_since(1000.2, BOTH) == 0  # within a second it is one span
    assert log.offset_since(1030, BOTH) == 3
    assert log.offset_since(1030, STDERR) == 2
    assert log.offset_since(1060, STDOUT) == 1
    assert log.offset_since(1089, BOTH) == 6
    assert log.offset_since(1091, BOTH) == 7
    log.close()


def test_the_times_of_a_long_log_are_exact_to_a_hundredth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("hermes_exec.guest.jobs.job_log.time.time", lambda: clock[0])
    log = JobLogFile(str(tmp_path), 1 << 30)
    seconds = 5 * MOST_SPANS
    for second in range(seconds):
        clock[0] = float(second)
        log.append(STDOUT, b"x")
    for ago in (0, 1, 10, 100, 1000, 10_000, seconds - 1):
        found = seconds - 1 - log.offset_since(clock[0] - ago, BOTH)
        assert ago <= found <= ago * 1.02 + 1, ago
    log.close()


def test_a_clock_that_is_set_back_leaves_the_times_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1e9]
    monkeypatch.setattr("hermes_exec.guest.jobs.job_log.time.time", lambda: clock[0])
    log = JobLogFile(str(tmp_path), 1 << 30)
    for _ in range(3 * MOST_SPANS):
        clock[0] -= 5
        log.append(STDOUT, b"x")
    assert len(vars(log)["_spans"]) <= MOST_SPANS
    assert log.offset_since(0, BOTH) == 0
    log.close()
