"""``top`` shows what runs and lets a person look at it, attach to it and end it; no target makes it wait."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import termios
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import RichLog

from hermes_exec.cli.top.screen import ConfirmScreen, RowTable, TextScreen, Top
from hermes_exec.cli.top.view import Row, View, load_views
from hermes_exec.errors import UsageError
from hermes_exec.terminal.guest_records import read_records, write_record
from tests.cli.screen import Screen
from tests.rigs.bounded import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from textual.pilot import Pilot

    from tests.cli.conftest import Cli

COLOUR = re.compile(rb"\x1b\[[0-9;]*(?<![0-9])(3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;]*m")


@pytest.fixture
def screen(cli: Cli) -> Generator[Callable[..., Screen]]:
    """``screen("top")`` is a terminal of 80 columns and 24 lines."""
    with contextlib.ExitStack() as stack:

        def start(*words: str) -> Screen:
            started = Screen(cli, *words, rows=24, cols=80)
            stack.callback(started.close)
            return started

        yield start


def test_a_job_is_ended_after_a_question(cli: Cli, screen: Callable[..., Screen], nap: str) -> None:
    job = cli("run", "--detach", "--name", "training", nap).stdout.strip().decode()
    cli.env["NO_COLOR"] = "1"
    top = screen("top")
    top.see(job)
    top.see("training")
    top.type("k")
    top.see(f"End {job} in local")
    top.type("n")
    top.see("Next table")
    assert cli.json("jobs", "--json")[0]["state"] == "running"
    top.type("k")
    top.see(f"End {job} in local")
    top.type("y")
    top.see(f"{job}: ")
    top.see("cancelled")
    assert cli.json("jobs", "--json")[0]["state"] == "ended"
    top.type("q")
    assert top.end() == 0
    assert top.everything.count(b"\x1b[?1049l") == 1
    assert termios.tcgetattr(top.theirs) == top.before
    assert not COLOUR.findall(top.everything)


def test_a_terminal_is_attached_to_a_job_and_comes_back(cli: Cli, screen: Callable[..., Screen]) -> None:
    job = cli("run", "--detach", "--stdin", "read x; echo got $x; sleep 900").stdout.strip().decode()
    top = screen("top")
    top.see(job)
    top.type("a")
    top.see(re.escape("\x1b[?1049l"))
    top.type("words\n")
    top.see("got words")
    top.type("\x03")
    top.see("detached")
    top.see(f"attach {job}: exit code 130")
    assert cli.json("jobs", "--json")[0]["state"] == "running"
    top.type("\x03")
    assert top.end() == 0


def test_a_signal_gives_the_terminal_back(cli: Cli, screen: Callable[..., Screen]) -> None:
    top = screen("top")
    top.see("Next table")
    top.child.send_signal(signal.SIGTERM)
    assert top.end() == 143
    assert top.everything.count(b"\x1b[?1049l") == 1
    assert termios.tcgetattr(top.theirs) == top.before


def test_without_a_terminal_it_prints_everything_once_or_refuses(cli: Cli) -> None:
    job = cli("run", "--detach", "sleep 900").stdout.strip().decode()
    cli("chat", "-q", "hi", "--replay", "demo", "--approve", "deny")
    shown = cli.json("top", "--json")
    assert [each["job"] for each in shown["jobs"]] == [job]
    assert [each["begins"] for each in shown["conversations"]] == ["hi"]
    assert shown["targets"] == ["local"]
    assert {"money", "billed", "terminals"} < shown.keys()
    done = cli("top")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"top --json" in done.stderr


# In this process, by textual's own pilot


@pytest.fixture
def own(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The folders of the commands are those of this process too."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, cli.env[name])
    monkeypatch.chdir(cli.cwd)
    return cli


async def wait_for(pilot: Pilot[Any], is_so: Callable[[], object]) -> None:
    """Wait until the screen has changed."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await pilot.pause(0.02)


def read_table(app: Top, name: str) -> list[list[str]]:
    """The cells that a table shows."""
    table = app.screen_stack[0].query_one(f"#{name} RowTable", RowTable)
    return [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]


def test_a_log_is_followed_and_its_keys_do_nothing_to_the_job(own: Cli) -> None:
    own("run", "--detach", "--name", "log", "--stdin", "echo first; read x; printf '\\033[31mred\\033[0m\\033[2J\\n'")

    async def use() -> None:
        app = Top(None, 0.2, [])
        async with app.run_test(size=(80, 24)) as pilot:
            await wait_for(pilot, lambda: read_table(app, "jobs"))
            await pilot.press("l")
            await wait_for(pilot, lambda: isinstance(app.screen, TextScreen))
            log = app.screen.query_one(RichLog)
            await wait_for(pilot, lambda: [line.text for line in log.lines] == ["first"])
            await pilot.press("k", "a", "2")
            assert isinstance(app.screen, TextScreen)
            feeding = await asyncio.to_thread(own, "attach", "log", stdin=b"go\n")
            assert feeding.returncode == 0
            await wait_for(pilot, lambda: len(log.lines) == 3)
            assert [line.text for line in log.lines] == ["first", "red\\x1b[2J", "[ended]"]
            await pilot.press("escape")
            await wait_for(pilot, lambda: len(app.screen_stack) == 1)

    asyncio.run(use())


def test_a_target_that_does_not_answer_delays_nothing(own: Cli) -> None:
    own("run", "--detach", "--name", "near", "sleep 900")
    (record,) = read_records()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"ssh://nobody@127.0.0.1:{silent.getsockname()[1]}"
        write_record(replace(record, id="0123456789abcdef", target=target, created=1.0))

        async def use() -> None:
            app = Top(None, 0.2, [])
            async with app.run_test(size=(80, 24)) as pilot:
                await wait_for(pilot, lambda: read_table(app, "jobs"))
                await pilot.press("1")
                await wait_for(pilot, lambda: len(read_table(app, "targets")) == 2)
                states = {row[0]: row[1] for row in read_table(app, "targets")}
                assert states["local"] == "connected"
                assert states[target].startswith("connecting")

        asyncio.run(use())


def test_names_are_text_and_no_markup(own: Cli) -> None:
    own("run", "--detach", "--name", "[red]x[/]", "sleep 900 # \x1b[2J")

    async def use() -> None:
        app = Top(None, 0.2, [])
        async with app.run_test(size=(120, 24)) as pilot:
            await wait_for(pilot, lambda: read_table(app, "jobs"))
            (row,) = read_table(app, "jobs")
            assert "[red]x[/]" in row
            assert row[-1] == "sleep 900 # \\x1b[2J"
            await pilot.press("k")
            await wait_for(pilot, lambda: isinstance(app.screen, ConfirmScreen))
            await pilot.press("enter")
            await wait_for(pilot, lambda: len(app.screen_stack) == 1)
            assert read_table(app, "jobs")[0][2] == "running"

    asyncio.run(use())


def test_a_narrow_screen_leaves_columns_out(own: Cli) -> None:
    own("run", "--detach", "--name", "narrow", "sleep 900")

    async def use() -> None:
        app = Top(None, 0.2, [])
        async with app.run_test(size=(40, 12)) as pilot:
            await wait_for(pilot, lambda: read_table(app, "jobs"))
            narrow = len(read_table(app, "jobs")[0])
            await pilot.resize_terminal(120, 24)
            await wait_for(pilot, lambda: len(read_table(app, "jobs")[0]) > narrow)

    asyncio.run(use())


def test_other_packages_add_tables(own: Cli) -> None:
    own("chat", "-q", "hi", "--replay", "demo", "--approve", "deny")
    assert [view.title for view in load_views()] == ["Conversations", "Money"]
    rows = [Row("1", ("one", "two"))]

    def read() -> list[Row]:
        if not rows:
            raise UsageError("cannot be read")
        return rows

    async def use() -> None:
        app = Top(None, 0.2, [*load_views(), View("Mine", ("A", "B"), read)])
        async with app.run_test(size=(80, 24)) as pilot:
            await wait_for(pilot, lambda: read_table(app, "mine") == [["one", "two"]])
            await wait_for(pilot, lambda: read_table(app, "conversations"))
            await pilot.press("4", "l")
            await wait_for(pilot, lambda: isinstance(app.screen, TextScreen))
            log = app.screen.query_one(RichLog)
            await wait_for(pilot, lambda: any("hi" in line.text for line in log.lines))

    asyncio.run(use())


def test_times_are_iso_8601(cli: Cli) -> None:
    cli("run", "--detach", "true")
    cli("run", "true")
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(stamp, cli.json("jobs", "--json")[0]["started"])
    assert all(re.fullmatch(stamp, each["at"]) for each in cli.json("log", "--json"))
    assert json.dumps(cli.json("backends", "--cost", "--json"))
