"""A turn is held by one program at a time: seen by real processes, some as if on another machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.runtime.events import EventLog, TurnHeld, TurnLost
from tests.rigs.bounded import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_HOLDER = """
import socket, sys
from pathlib import Path
from hermes_exec_agent.runtime.events import EventLog

if sys.argv[3]:
    socket.sethostname(sys.argv[3])
log = EventLog(Path(sys.argv[1]))
turn = log.acquire_turn("c", float(sys.argv[2]))
print("held", flush=True)
try:
    for line in sys.stdin:
        log.append_all("c", [("user", {"content": "late"})], turn=turn)
        print("recorded", flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


class Holder:
    """A process that holds the turn of the conversation ``c``; with ``host`` as if on a machine of that name."""

    def __init__(self, log: EventLog, lease_s: float, host: str = "") -> None:
        argv = [sys.executable, "-c", _HOLDER, str(log.path), str(lease_s), host]
        if host:
            argv = ["unshare", "--user", "--map-root-user", "--uts", "--", *argv]
        self.process = subprocess.Popen(
            argv, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self.read() == "held"

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def record(self) -> str:
        """Have it record an event, and hear what came of it."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def log(tmp_path: Path) -> Generator[EventLog]:
    with EventLog(tmp_path / "log.sqlite") as log:
        yield log


def held(log: EventLog) -> str:
    """Who holds the turn; empty where it could be acquired, and it is released at once."""
    try:
        log.release_turn(log.acquire_turn("c"))
    except TurnHeld as error:
        return str(error)
    return ""


def test_a_turn_is_held_until_its_process_is_gone_however_late_that_is(log: EventLog) -> None:
    holder = Holder(log, 0.01)
    try:
        assert f"process {holder.process.pid} on {os.uname().nodename}, since 20" in held(log)
        with pytest.raises(TurnHeld):
            log.append("c", "user", {"content": "beside it"})
        with pytest.raises(TurnHeld):
            log.refuse_held_turn("c")
        assert holder.record() == "recorded"
    finally:
        holder.close()
    assert not held(log)
    log.refuse_held_turn("c")
    assert [event.data["content"] for event in log.events("c")] == ["late"]


def test_a_process_that_is_stopped_holds_for_its_lease_and_records_nothing_when_it_goes_on(log: EventLog) -> None:
    holder = Holder(log, 1.0)
    try:
        holder.process.send_signal(signal.SIGSTOP)
        assert held(log)
        wait_until(lambda: not held(log))
        log.append("c", "user", {"content": "of the next one"})
        holder.process.send_signal(signal.SIGCONT)
        assert holder.record().startswith("TurnLost conversation c: this turn ends, because another program took")
    finally:
        holder.close()
    assert [event.data["content"] for event in log.events("c")] == ["of the next one"]


def test_of_another_machine_the_lease_decides(log: EventLog) -> None:
    try_it = ["unshare", "--user", "--map-root-user", "--uts", "true"]
    if not shutil.which("unshare") or subprocess.run(try_it, check=False, capture_output=True).returncode:
        pytest.skip("no namespace of hosts' names can be had here")
    began = time.time()
    holder = Holder(log, 2.0, host="elsewhere")
    assert "on elsewhere, since" in held(log)
    holder.close()
    while told := held(log):  # its process is gone, which is not known here
        assert "on elsewhere" in told
        assert time.time() - began < 60
    assert time.time() - began >= 2.0


def test_a_lease_that_is_renewed_lasts_and_one_that_was_lost_is_not_renewed(log: EventLog) -> None:
    turn = log.acquire_turn("c")
    log.renew_turn(turn)
    log.append_all("c", [("user", {"content": "mine"})], turn=turn)
    with pytest.raises(TurnHeld):
        log.acquire_turn("c")  # not by this very process either
    log.release_turn(turn)
    other = log.acquire_turn("c")
    with pytest.raises(TurnLost, match=f"process {os.getpid()} on"):
        log.renew_turn(turn)
    log.release_turn(turn)  # changes nothing
    assert held(log)
    log.release_turn(other)
    assert not held(log)
