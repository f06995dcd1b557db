"""Ctrl-C and its like, in a process of their own: what was started ends, and the loop stays whole."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from hermes_exec._sync.portal import portal
from hermes_exec._sync.proxy import BlockingIterator
from tests.rigs.processes import alive

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    Script = Callable[..., subprocess.Popen[str]]


def outcome(process: subprocess.Popen[str]) -> list[str]:
    """What a script printed, when it ended well."""
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


def test_ctrl_c_ends_all_that_the_command_started_and_the_terminal_goes_on(script: Script, fifo: Path) -> None:
    process = script(
        """
        with hx.open("local", audit=False) as terminal:
            terminal.run("x=kept")
            try:
                terminal.run(f"setsid sleep 1000 & echo $! >{fifo}; sleep 1000")
            except KeyboardInterrupt:
                print("interrupted")
            print(terminal.run("echo $x").stdout_text)
        """,
        fifo=fifo,
    )
    pid = fifo.read_text()
    assert alive(int(pid))
    process.send_signal(signal.SIGINT)
    assert outcome(process)[:1] == ["interrupted"]
    assert not alive(int(pid))


def test_a_second_ctrl_c_gives_up_waiting_for_the_end(script: Script, fifo: Path) -> None:
    process = script(
        """
        terminal = hx.open("local", audit=False)
        try:
            stubborn = f"trap 'echo term >{fifo}' TERM; echo ready >{fifo}; while :; do sleep 0.1; done"
            terminal.run(stubborn, grace_s=600)
        except KeyboardInterrupt:
            print("given up")
        terminal.close()
        """,
        fifo=fifo,
    )
    assert fifo.read_text() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert fifo.read_text() == "term\n"  # so it is being ended, and will take ten minutes
    process.send_signal(signal.SIGINT)
    assert outcome(process) == ["given up"]


def test_ctrl_c_while_another_thread_drives_ends_the_own_call_alone(script: Script, fifo: Path) -> None:
    process = script(
        """
        import threading
        def other():
            print("other", terminal.run(["cat", fifo + ".2"]).stdout_text, flush=True)
        with hx.open("local", audit=False) as terminal:
            terminal.run(["mkfifo", fifo + ".2"])
            thread = threading.Thread(target=other)
            thread.start()
            try:
                terminal.run(["sh", "-c", f"echo ready >{fifo}; exec sleep 1000"])
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            with open(fifo + ".2", "w") as file:
                file.write("unharmed")
            thread.join()
        """,
        fifo=fifo,
    )
    assert fifo.read_text() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert outcome(process) == ["interrupted", "other unharmed"]


def test_ctrl_c_inside_a_running_loop_ends_the_call(script: Script, fifo: Path) -> None:
    process = script(
        """
        import asyncio
        async def cell():
            with hx.open("local", audit=False) as terminal:
                try:
                    terminal.run(["sh", "-c", f"echo ready >{fifo}; exec sleep 1000"])
                except KeyboardInterrupt:
                    print("interrupted", terminal.run("echo well").stdout_text)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(cell())
        loop.close()
        """,
        fifo=fifo,
    )
    assert fifo.read_text() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert outcome(process)[0] == "interrupted well"


def test_a_stream_that_was_interrupted_can_be_read_on(script: Script, fifo: Path) -> None:
    process = script(
        """
        text = b""
        with hx.open("local", audit=False) as terminal:
            with terminal.stream(["sh", "-c", f"echo one; cat {fifo}; echo three"]) as stream:
                text += next(stream).data
                try:
                    print("waiting", flush=True)
                    next(stream)
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
                for event in stream:
                    text += event.data
        print(text, event.result.exit_code)
        """,
        fifo=fifo,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    fifo.write_text("two\n")
    assert outcome(process) == [r"b'one\ntwo\nthree\n' 0"]


def test_a_value_that_came_together_with_ctrl_c_is_not_lost() -> None:
    async def source() -> AsyncGenerator[int]:
        signal.raise_signal(signal.SIGINT)
        yield 1
        yield 2

    values = BlockingIterator[int](portal(), source())
    with pytest.raises(KeyboardInterrupt):
        next(values)
    assert list(values) == [1, 2]


def test_a_handler_that_does_not_raise_leaves_the_command_alone(script: Script, fifo: Path) -> None:
    process = script(
        """
        import signal
        seen = []
        signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
        with hx.open("local", audit=False) as terminal:
            result = terminal.run(["sh", "-c", f"echo ready >{fifo}; cat {fifo}"])
        print(seen, result.stdout_text, signal.getsignal(signal.SIGINT).__name__)
        """,
        fifo=fifo,
    )
    assert fifo.read_text() == "ready\n"
    process.send_signal(signal.SIGINT)
    fifo.write_text("read")
    assert outcome(process) == ["[2] read <lambda>"]


def test_a_handler_may_use_the_terminal_that_it_interrupts(script: Script, fifo: Path) -> None:
    process = script(
        """
        import signal
        def handler(*_):
            print(terminal.run(["echo", "handled"]).stdout_text, end="", flush=True)
        signal.signal(signal.SIGINT, handler)
        with hx.open("local", audit=False) as terminal:
            print(terminal.run(["sh", "-c", f"echo ready >{fifo}; cat {fifo}"]).stdout_text)
        """,
        fifo=fifo,
    )
    assert fifo.read_text() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() == "handled\n"
    fifo.write_text("read")
    assert outcome(process) == ["read"]


def test_a_time_limit_by_alarm_ends_the_command(script: Script) -> None:
    process = script(
        """
        import signal
        def alarm(number, frame):
            raise TimeoutError("alarm")
        signal.signal(signal.SIGALRM, alarm)
        with hx.open("local", audit=False) as terminal:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                terminal.run(["sleep", "1000"])
            except TimeoutError as error:
                print(error)
            print(terminal.run("echo well").stdout_text)
        """
    )
    assert outcome(process)[:2] == ["alarm", "well"]


def test_the_person_s_own_handler_is_in_its_place_between_calls(script: Script) -> None:
    process = script(
        """
        import signal
        with hx.open("local", audit=False) as terminal:
            terminal.run("true")
            print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        """
    )
    assert outcome(process) == ["True"]
