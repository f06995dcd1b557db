"""After a fork, at the exit, and for those who forget to close."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.rigs.processes import alive

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Script = Callable[..., subprocess.Popen[str]]


def outcome(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


def test_a_child_is_told_that_it_cannot_use_its_parents_terminal(script: Script) -> None:
    process = script(
        """
        import os
        with hx.open("local", audit=False) as terminal:
            if os.fork() == 0:
                try:
                    terminal.run("true")
                except hx.UsageError as error:
                    print(error, flush=True)
                os._exit(0)
            os.wait()
            print(terminal.run("echo unharmed").stdout_text, end="")
        """
    )
    refusal, after = outcome(process)
    assert "before a fork" in refusal
    assert after == "unharmed"


def test_a_child_opens_terminals_of_its_own(script: Script) -> None:
    process = script(
        """
        import os
        terminal = hx.open("local", audit=False)
        if os.fork() == 0:
            with hx.open("local", audit=False) as own:
                print(own.run("echo child").stdout_text, end="", flush=True)
            os._exit(0)
        os.wait()
        print(terminal.run("echo parent").stdout_text, end="")
        terminal.close()
        """
    )
    assert outcome(process) == ["child", "parent"]


def test_a_child_that_exits_in_the_ordinary_way_harms_nothing_of_its_parents(script: Script) -> None:
    process = script(
        """
        import os, sys, time, warnings
        with hx.open("local", audit=False) as terminal:
            if os.fork() == 0:
                warnings.simplefilter("ignore")  # of what it inherited, and will not close
                sys.exit(7)  # leaves the ``with``
            print(os.waitstatus_to_exitcode(os.wait()[1]))
            for _ in range(3):
                time.sleep(0.03)  # so that the resident takes over, and is asked to leave by the next call
                terminal.run("true")
            print(terminal.run("echo unharmed").stdout_text, end="")
        """
    )
    assert outcome(process) == ["7", "unharmed"]


def test_what_was_left_open_is_closed_at_the_exit(script: Script) -> None:
    process = script(
        """
        terminals = [hx.open("local", audit=False) for _ in range(3)]
        for terminal in terminals:
            print(terminal.run("sleep 1000 & echo $!").stdout_text, end="")
        """
    )
    pids = outcome(process)
    assert len(pids) == 3
    assert not list(filter(alive, map(int, pids)))


def test_a_daemon_thread_in_the_midst_of_a_command_does_not_hold_up_the_exit(script: Script, fifo: Path) -> None:
    process = script(
        """
        import contextlib, pathlib, threading
        terminal = hx.open("local", audit=False)
        def work():
            with contextlib.suppress(hx.Closed):
                terminal.run(["sh", "-c", f"echo $$ >{fifo}; exec sleep 1000"])
        threading.Thread(target=work, daemon=True).start()
        print(pathlib.Path(fifo).read_text(), end="")
        """,
        fifo=fifo,
    )
    (pid,) = outcome(process)
    assert not alive(int(pid))


def test_an_ordinary_thread_goes_on_after_the_main_one_ended(script: Script, fifo: Path) -> None:
    process = script(
        """
        import threading
        terminal = hx.open("local", audit=False)
        def work():
            print(terminal.run(["cat", fifo]).stdout_text, terminal.run("echo too").stdout_text, end="")
        threading.Thread(target=work).start()
        """,
        fifo=fifo,
    )
    fifo.write_text("late")
    assert outcome(process) == ["late too"]


def test_a_closed_terminal_leaves_nothing_to_do_at_the_exit(script: Script) -> None:
    process = script(
        """
        with hx.open("local", audit=False) as terminal:
            print(terminal.run("echo $PPID").stdout_text, end="")
        """
    )
    (guest,) = outcome(process)
    assert not alive(int(guest))


def test_use_after_the_exit_hook_is_refused_instead_of_hanging(script: Script) -> None:
    process = script(
        """
        import atexit
        def late():
            try:
                terminal.run("true")
            except hx.UsageError as error:
                print(error)
        atexit.register(late)  # before the first terminal, so it is called after ours
        terminal = hx.open("local", audit=False)
        """
    )
    assert outcome(process) == ["Python is exiting"]


def test_a_terminal_that_nobody_closed_and_nobody_has_is_warned_of(script: Script) -> None:
    process = script(
        """
        import gc, warnings
        def careless():
            return hx.open("local", audit=False).run("echo $PPID").stdout_text.strip()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            guest = careless()
            gc.collect()
        print(guest, [(one.category.__name__, str(one.message)) for one in caught])
        """
    )
    (line,) = outcome(process)
    assert line.endswith(" [('ResourceWarning', 'local was not closed')]")
