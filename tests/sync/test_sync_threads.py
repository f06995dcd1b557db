"""Any number of threads may share a terminal."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hermes_exec._sync.portal import portal

if TYPE_CHECKING:
    from pathlib import Path

    import hermes_exec.sync as hx

THREADS, COMMANDS = 20, 50


def test_twenty_threads_each_get_their_own_output(terminal: hx.Terminal) -> None:
    barrier = threading.Barrier(THREADS)

    def work(number: int) -> list[str]:
        barrier.wait()
        return [terminal.run(f"echo {number}.{i}").stdout_text for i in range(COMMANDS)]

    with ThreadPoolExecutor(THREADS) as pool:
        outputs = list(pool.map(work, range(THREADS)))
    assert outputs == [[f"{number}.{i}\n" for i in range(COMMANDS)] for number in range(THREADS)]


def test_threads_with_sessions_of_their_own_keep_their_own_state(terminal: hx.Terminal) -> None:
    def work(number: int) -> str:
        with terminal.session() as session:
            session.run(f"x={number}")
            return "".join(session.run("echo $x").stdout_text for _ in range(10))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [f"{number}\n" * 10 for number in range(8)]


def test_a_long_command_of_one_thread_holds_up_no_other(terminal: hx.Terminal, fifo: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(terminal.run, ["cat", str(fifo)])
        for _ in range(20):
            assert terminal.run(["echo", "there"]).stdout == b"there\n"
        assert not waiting.done()
        fifo.write_text("done")
        assert waiting.result().stdout == b"done"


def test_when_the_driver_is_done_first_the_others_still_get_their_results(terminal: hx.Terminal, fifo: Path) -> None:
    # The first caller drives the loop, the second one only waits; then nobody calls any more.
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(terminal.run, ["cat", str(fifo)])
        second = pool.submit(terminal.run, ["cat", f"{fifo}.2"])
        assert second.result().exit_code == 1
        third = pool.submit(terminal.run, ["sh", "-c", f"mkfifo {fifo}.3; echo ready >{fifo}; cat {fifo}.3"])
        assert first.result().stdout == b"ready\n"
        (fifo.parent / "fifo.3").write_text("late")
        assert third.result().stdout == b"late"


def test_a_lone_caller_drives_the_loop_itself(terminal: hx.Terminal) -> None:
    # What makes the blocking face about as fast as the asynchronous one: no hand-over between threads.
    assert portal().do(threading.get_ident) == threading.get_ident()
