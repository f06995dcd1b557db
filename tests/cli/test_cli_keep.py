"""``shell --keep``: left by a key, a closed window or a crash it goes on, and another process attaches to it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.screen import Screen
from tests.rigs.breadth import thorough

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.cli.conftest import Cli

Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def screen(cli: Cli) -> Generator[Callable[..., Screen]]:
    """``screen("shell")`` starts a command on a terminal."""
    started: list[Screen] = []

    def start(*words: str) -> Screen:
        started.append(Screen(cli, *words))
        return started[-1]

    yield start
    for each in started:
        each.close()


def kept(screen: Callable[..., Screen], name: str) -> Screen:
    """A kept shell that knows something."""
    here = screen("shell", "--keep", "--name", name, "--env", "PS1=there> ")
    here.type("known=something; echo re''ady\r")
    here.see("ready")
    return here


def records(cli: Cli) -> list[Path]:
    return list(Path(cli.env["XDG_STATE_HOME"]).glob("hermes_exec/guests/*.json"))


def test_one_that_is_left_by_a_key_is_attached_to_with_its_state_and_exit_code(
    cli: Cli, screen: Callable[..., Screen]
) -> None:
    here = kept(screen, "left")
    here.type("\r~d")
    assert here.end() == 0
    assert b"detached; left keeps running. Try: hermes-exec attach left" in here.shown
    again = screen("attach", "left")
    again.see("ready")  # what was shown of late
    again.type("echo it is $known; stty size; exit 7\r")
    again.see("it is something\r\n30 100")
    assert again.end() == 7
    assert not records(cli)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_one_whose_window_or_process_is_gone_goes_on(screen: Callable[..., Screen], number: signal.Signals) -> None:
    here = kept(screen, "survivor")
    here.child.send_signal(number)
    here.end()
    again = screen("attach", "survivor")
    again.type("echo it is $known; exit\r")
    again.see("it is something")
    assert again.end() == 0


def test_two_can_look_at_it_at_once(screen: Callable[..., Screen]) -> None:
    here = kept(screen, "shared")
    again = screen("attach", "shared")
    again.type("echo it is $known\r")
    again.see("it is something")
    here.see("it is something")
    again.type("exit 3\r")
    assert (here.end(), again.end()) == (3, 3)


@thorough
def test_it_is_listed_and_ended_from_elsewhere(
    cli: Cli, screen: Callable[..., Screen], running: Running, until: Until, nap: str
) -> None:
    here = kept(screen, "listed")
    here.type(f"{nap}\r")
    until(lambda: running(nap))
    here.type("\r~d")
    here.end()
    (told,) = cli.json("jobs", "--json")
    assert (told["kind"], told["job"], told["views"], told["ended"]) == ("pty", "listed", 0, False)
    assert b"0 attached" in cli("jobs").stdout
    refused = cli("logs", "listed")
    assert refused.returncode == 2
    assert b"hermes-exec attach listed" in refused.stderr
    assert cli("kill", "listed").returncode == 0
    assert not running(nap)
    assert not records(cli)
    assert cli.json("jobs", "--json") == []


def test_one_that_is_not_kept_ends_when_it_is_left(cli: Cli, screen: Callable[..., Screen]) -> None:
    here = screen("shell", "--env", "PS1=there> ")
    here.type("echo pid $$ is it\r")
    pid = int(here.see(r"pid (\d+) is it")[1])
    here.type("\r~d")
    assert here.end() == 0
    assert b"which ended the program" in here.shown
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not records(cli)


def test_one_that_ended_unseen_gives_its_exit_code_to_who_asks(
    cli: Cli, screen: Callable[..., Screen], until: Until, tmp_path: Path
) -> None:
    here = kept(screen, "ended")
    here.type(f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; exit 5\r")
    here.see("exit 5")
    here.type("\r~d")
    here.end()
    (tmp_path / "go").touch()
    until(lambda: cli.json("jobs", "--json")[0]["ended"])
    assert screen("attach", "ended").end() == 5
    assert not records(cli)
