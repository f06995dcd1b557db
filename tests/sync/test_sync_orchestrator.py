"""The blocking orchestrator: terminals for threads, and the same end, exit and recovery."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import hermes_exec.sync as hx

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Script = Callable[..., subprocess.Popen[str]]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The records of this test alone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "hermes_exec" / "orchestrators"


def orchestrator(limit: int = 8) -> hx.Orchestrator:
    return hx.Orchestrator({"p": hx.Pool("local", audit=False)}, limit=limit)


def test_a_terminal_is_had_for_the_length_of_a_with(state: Path) -> None:
    with orchestrator() as many:
        with many.terminal("p", key="me") as terminal:
            assert terminal.run("echo here").stdout == b"here\n"
            assert many.status()["p"].held == 1
        with pytest.raises(hx.Closed):
            terminal.run("true")
        assert many.status()["p"].held == 0
    assert list(state.iterdir()) == []


def test_an_error_inside_passes_through_and_gives_the_terminal_back() -> None:
    with orchestrator() as many:
        with pytest.raises(KeyError, match="mine"), many.terminal("p"):
            raise KeyError("mine")
        assert many.status()["p"].held == 0


def test_threads_have_terminals_of_their_own() -> None:
    with orchestrator(limit=2) as many, ThreadPoolExecutor(4) as threads:

        def work(number: int) -> bytes:
            with many.terminal("p", key=str(number)) as terminal:
                terminal.run(f"mine={number}")
                return terminal.run("echo $mine").stdout

        assert list(threads.map(work, range(6))) == [b"%d\n" % number for number in range(6)]


def test_a_lease_ends_with_its_time() -> None:
    with orchestrator() as many:
        lease = many.lease("p", key="me", hold_s=3600)
        assert (lease.profile, lease.key, lease.over) == ("p", "me", "")
        lease.extend(0.01)
        give_up = time.monotonic() + 30
        while not lease.over:
            assert time.monotonic() < give_up
            time.sleep(0.01)
        assert "are over" in lease.over
        lease.release()


def test_draining_tells_how_many_were_cut_short() -> None:
    many = orchestrator()
    many.start()
    many.lease("p")
    assert many.drain(0) == 1
    with pytest.raises(hx.Closed):
        many.lease("p")
    many.close()


def test_one_that_is_left_open_is_closed_at_the_exit(script: Script, state: Path) -> None:
    child = script(
        """
        many = hx.Orchestrator({"p": hx.Pool("local", warm=1, audit=False)})
        many.start()
        print(many.lease("p").terminal.run("echo $PPID").stdout_text)
        """
    )
    out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert out.strip().isdigit()
    assert list(state.iterdir()) == []


def test_what_a_dead_one_left_is_recovered_for_blocking_use(script: Script, state: Path) -> None:
    child = script(
        """
        import time
        many = hx.Orchestrator({"p": hx.Pool("local", audit=False)})
        many.start()
        lease = many.lease("p", key="bob")
        lease.terminal.start("read word; echo got $word", stdin=True)
        print("ready", flush=True)
        time.sleep(1000)
        """
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.kill()
    child.wait()
    with orchestrator() as many:
        (found,) = many.recovered
        assert (found.key, found.fate.value) == ("bob", "attached")
        assert found.lease is not None
        job = found.lease.terminal.job(found.jobs[0].id)
        job.write(b"it\n")
        assert job.wait().stdout == b"got it\n"
        job.prune()
        found.lease.release()
    assert list(state.iterdir()) == []
