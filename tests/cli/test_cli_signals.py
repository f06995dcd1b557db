"""Ctrl-C, hang-ups and ``kill``: the command in the place ends first, with all that it started."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from tests.cli.conftest import Child, Cli

Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]

TREE = "setsid {0} & ({0} &) ; trap '' TERM; echo ready; {0}"


def ready(child: Child) -> None:
    assert child.out.readline() == b"ready\n"


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131)],
)
def test_a_signal_ends_the_whole_tree(
    cli: Cli, running: Running, until: Until, nap: str, number: signal.Signals, code: int
) -> None:
    child = cli.start("run", "--grace", "0.1", TREE.format(nap))
    ready(child)
    until(lambda: len(running(nap)) == 3)
    child.send_signal(number)
    assert child.wait(20) == code
    assert not running(nap)
    assert child.err.read() == b""


def test_ctrl_c_reaches_a_program_without_a_shell_too(cli: Cli, running: Running, nap: str) -> None:
    child = cli.start("run", "--grace", "0.1", "sh", "-c", TREE.format(nap))
    ready(child)
    child.send_signal(signal.SIGINT)
    assert child.wait(20) == 130
    assert not running(nap)


@thorough
def test_a_second_ctrl_c_leaves_at_once(cli: Cli, running: Running, until: Until, nap: str) -> None:
    child = cli.start("run", "--grace", "15", TREE.format(nap))
    ready(child)
    child.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    child.send_signal(signal.SIGINT)
    assert child.wait(12) == 130  # within the grace
    assert child.err.read().count(b"\n") == 1
    until(lambda: not running(nap))


def test_ctrl_c_that_was_ignored_when_we_were_started_stays_ignored(cli: Cli) -> None:
    text = f"trap '' INT; exec {sys.executable} -I -m hermes_exec run 'echo ready; read x; echo $x'"
    child = subprocess.Popen(
        ["sh", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=cli.env, cwd=cli.cwd
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(b"still here\n", timeout=20)[0] == b"still here\n"
    assert child.returncode == 0
