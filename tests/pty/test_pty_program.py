"""What a program finds on its PTY, and how it ends."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest

from hermes_exec.errors import Closed, PlaceError, UsageError
from hermes_exec.terminal.pty import Pty, start_pty
from hermes_exec.transport.link import Link
from tests.rigs.processes import alive

Live = Callable[[Callable[[Link], Awaitable[None]]], None]
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]
Until = Callable[[Pty, bytes], Awaitable[bytes]]

BASH = ["bash", "--norc", "--noprofile", "-i"]


class Require(Protocol):
    def __call__(self, part: str, reason: str = "") -> str: ...


async def all_of(pty: Pty) -> bytes:
    return b"".join([piece async for piece in pty])


def in_foreground(terminal: str, program: str) -> bool:
    """Whether ``program`` runs in the foreground of a terminal."""
    number = Path(terminal).stat().st_rdev
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(") ")
        except OSError:
            continue
        _, _, group, _, its_terminal, foreground, *_ = rest.split()
        if name == program and int(its_terminal) == number and group == foreground:
            return True
    return False


async def terminal_of(pty: Pty, link: Link) -> str:
    listed = await link.request("pty.list", {})
    (terminal,) = [entry["tty"] for entry in listed["ptys"] if entry["name"] == pty.name]
    return str(terminal)


def test_pty_gives_output_and_exit_code(live: Live) -> None:
    async def scenario(link: Link) -> None:
        async with await start_pty(link, ["sh", "-c", "echo shown; exit 3"]) as pty:
            assert await all_of(pty) == b"shown\r\n"
            assert (await pty.wait()).exit_code == 3

    live(scenario)


def test_pty_tells_the_signal_that_ended_its_program(live: Live) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["sh", "-c", "kill -9 $$"])
        await all_of(pty)
        result = await pty.wait()
        assert (result.exit_code, result.signal, result.cancelled) == (None, 9, False)

    live(scenario)


def test_program_that_ends_at_once_is_seen_whole(live: Live) -> None:
    async def scenario(link: Link) -> None:
        for number in range(20):
            pty = await start_pty(link, ["echo", str(number)])
            assert await all_of(pty) == b"%d\r\n" % number
            assert (await pty.wait()).ok

    live(scenario)


def test_missing_program_exits_127_with_its_reason(live: Live) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["no-such-program"])
        assert await all_of(pty) == b""
        result = await pty.wait()
        assert (result.exit_code, result.note) == (127, "no-such-program: No such file or directory")

    live(scenario)


def test_missing_folder_is_refused(live: Live) -> None:
    async def scenario(link: Link) -> None:
        with pytest.raises(UsageError, match="no folder"):
            await start_pty(link, ["true"], cwd="/no/such")

    live(scenario)


def test_impossible_size_is_refused(live: Live) -> None:
    async def scenario(link: Link) -> None:
        with pytest.raises(UsageError, match="0 rows"):
            await start_pty(link, ["true"], rows=0)

    live(scenario)


def test_second_pty_of_a_name_is_refused_and_the_first_goes_on(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        first = await start_pty(link, ["cat"], rows=11, cols=22, name="one")
        with pytest.raises(PlaceError, match="there is a PTY of that name"):
            await start_pty(link, ["stty", "size"], name="one")
        await first.write("still here\n")
        await until(first, b"still here\r\nstill here\r\n")

    live(scenario)


def test_program_runs_in_its_folder_with_its_environment(live: Live, tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        script = 'pwd; echo "$TERM $WORD"'
        env = {"TERM": "vt100", "WORD": "a b"}
        pty = await start_pty(link, ["sh", "-c", script], env=env, cwd=str(tmp_path))
        assert await all_of(pty) == os.fsencode(tmp_path) + b"\r\nvt100 a b\r\n"

    live(scenario)


def test_default_is_an_interactive_login_shell(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, env={"SHELL": "/bin/bash"})
        await pty.write("echo kind=$(shopt -q login_shell && echo login)-${-//[^i]/}\n")
        await until(pty, b"kind=login-i")

    live(scenario)


def test_pty_is_the_controlling_terminal(live: Live) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["sh", "-c", "tty; stat -c %t:%T $(tty); cat /proc/$$/stat"])
        name, device, told = (await all_of(pty)).splitlines()
        pid, _, _, _, group, _, terminal, foreground, *_ = told.split()
        major, minor = (int(part, 16) for part in device.split(b":"))
        assert name.startswith(b"/dev/pts/")
        assert int(terminal) == os.makedev(major, minor)
        assert foreground == group == pid

    live(scenario)


def test_password_prompt_talks_to_dev_tty_without_an_echo(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        script = (
            "exec </dev/null >/dev/null 2>&1; stty -echo </dev/tty; printf 'password: ' >/dev/tty;"
            "read -r word </dev/tty; stty echo </dev/tty; printf '\\n<%s>\\n' \"$word\" >/dev/tty"
        )
        pty = await start_pty(link, ["sh", "-c", script])
        await until(pty, b"password: ")
        await pty.write("hunter2\n")
        assert await all_of(pty) == b"\r\n<hunter2>\r\n"

    live(scenario)


def test_ctrl_c_ends_the_foreground_and_not_the_shell(live: Live, until: Until, eventually: Eventually) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, BASH)
        terminal = await terminal_of(pty, link)
        await pty.write("echo be; sleep 1000\n")
        await until(pty, b"be\r\n")
        await eventually(lambda: in_foreground(terminal, "sleep"))
        await pty.write("\x03")
        await pty.write("echo status=$?\n")
        await until(pty, b"status=130\r\n")

    live(scenario)


def test_shell_on_a_pty_has_job_control(live: Live, until: Until, eventually: Eventually) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, BASH)
        terminal = await terminal_of(pty, link)
        await pty.write("sleep 1000\n")
        await eventually(lambda: in_foreground(terminal, "sleep"))
        await pty.write("\x1a")
        assert b"job control" not in await until(pty, b"Stopped")
        await pty.write("bg; jobs -r | sed 's/^/jobs: /'; fg\n")
        await until(pty, b"jobs: [1]+  Running")
        await eventually(lambda: in_foreground(terminal, "sleep"))
        await pty.write("\x03")
        await pty.write("echo left=$(jobs | wc -l)\n")
        await until(pty, b"left=0\r\n")

    live(scenario)


def test_size_is_there_from_the_start(live: Live) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["stty", "size"], rows=17, cols=93)
        assert await all_of(pty) == b"17 93\r\n"

    live(scenario)


def test_resize_reaches_the_program(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        script = "trap 'stty size' WINCH; echo ready; while :; do read -t 0.05 -r _; done"
        pty = await start_pty(link, ["bash", "-c", script], rows=24, cols=80)
        await until(pty, b"ready")
        await pty.resize(50, 132)
        await until(pty, b"50 132\r\n")

    live(scenario)


def test_signal_goes_to_the_foreground(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, BASH)
        await pty.write("(trap 'echo caught' USR1; echo on; while :; do sleep 0.05; done)\n")
        await until(pty, b"on\r\n")
        await pty.signal("USR1")
        await until(pty, b"caught\r\n")
        await pty.signal("SIGTERM")
        await pty.write("echo status=$?\n")
        await until(pty, b"status=143\r\n")

    live(scenario)


def test_unknown_signal_is_refused(live: Live) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["cat"])
        for name in ("NOPE", "_IGN"):
            with pytest.raises(UsageError, match="no signal"):
                await pty.signal(name)

    live(scenario)


def test_control_after_the_end_says_closed(live: Live) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["true"])
        await all_of(pty)
        await pty.wait()
        with pytest.raises(Closed, match="has ended"):
            await pty.resize(10, 10)

    live(scenario)


def test_close_ends_everything_that_was_started(live: Live, until: Until, eventually: Eventually) -> None:
    async def scenario(link: Link) -> None:
        script = (
            "trap '' HUP TERM; (trap '' HUP TERM; setsid sh -c 'echo $$; exec sleep 1000') & "
            "setsid -f sh -c 'echo $$; exec sleep 1000'; sleep 0.2; echo $$; echo up;"
            "while :; do sleep 1; done"
        )
        pty = await start_pty(link, ["bash", "-c", script])
        pids = [int(word) for word in re.findall(rb"\d+", await until(pty, b"up\r\n"))]
        assert len(pids) == 3
        await pty.close()
        assert (await pty.wait()).cancelled
        await eventually(lambda: not any(map(alive, pids)))

    live(scenario)


def test_what_a_program_leaves_in_its_terminal_is_gone_when_its_end_is_told(live: Live) -> None:
    async def scenario(link: Link) -> None:
        script = "trap '' HUP TERM; sleep 1000 </dev/null >/dev/null 2>&1 & echo $!; exit 5"
        pty = await start_pty(link, ["bash", "-c", script])
        pid = int(await all_of(pty))
        assert (await pty.wait()).exit_code == 5
        assert not alive(pid)

    live(scenario)


def test_close_does_not_wait_for_a_reader(live: Live, eventually: Eventually) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["yes"])
        await eventually(lambda: sum(map(len, vars(pty)["_shown"])) >= 4 << 20)
        await pty.close()
        assert await pty.read() == b""
        assert (await pty.wait()).cancelled

    live(scenario)


def test_closing_the_link_ends_ptys(live: Live, until: Until) -> None:
    pids: list[int] = []

    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["sh", "-c", "trap '' HUP; echo $$; sleep 1000"])
        pids.append(int(await until(pty, b"\r\n")))
        assert alive(pids[0])

    live(scenario)
    assert not alive(pids[0])


def test_twenty_megabytes_come_through_unchanged(live: Live) -> None:
    async def scenario(link: Link) -> None:
        script = "stty raw; head -c 20000000 /dev/urandom | tee /dev/tty | sha256sum >&2"
        pty = await start_pty(link, ["bash", "-c", script])
        shown = await all_of(pty)
        assert shown[20_000_000:].split() == [hashlib.sha256(shown[:20_000_000]).hexdigest().encode(), b"-"]

    live(scenario)


def test_slow_reader_makes_the_program_wait(live: Live, tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        count = tmp_path / "count"
        code = (
            "import sys\n"
            "for number in range(1, 401):\n"
            "    sys.stdout.buffer.write(b'x' * 65536); sys.stdout.flush()\n"
            f"    open({str(count)!r}, 'w').write(str(number))\n"
        )
        pty = await start_pty(link, ["python3", "-c", code])
        written = -1
        while (now := int(count.read_text() or 0) if count.exists() else 0) != written or not now:
            written = now
            await asyncio.sleep(0.3)
        assert written * 65536 < 10 << 20
        assert len(await all_of(pty)) == 400 * 65536

    live(scenario)


def test_cancelled_wait_ends_nothing(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["cat"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await pty.wait()
        await pty.write("on\n")
        await until(pty, b"on\r\non\r\n")

    live(scenario)


def test_ptys_of_one_guest_are_independent(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        ptys = [await start_pty(link, ["cat"]) for _ in range(20)]
        for number, pty in enumerate(ptys):
            await pty.write(f"number {number}.\n")
        for number, pty in enumerate(ptys):
            shown = await until(pty, b"\r\nnumber %d.\r\n" % number)
            assert shown == b"number %d.\r\n" % number * 2

    live(scenario)


def test_python_repl_answers(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["python3", "-q"], env={"TERM": "dumb"})
        await until(pty, b">>> ")
        await pty.write("6 * 7\n")
        await until(pty, b"42\r\n>>> ")
        await pty.write("\x04")
        await all_of(pty)
        assert (await pty.wait()).exit_code == 0

    live(scenario)


def test_vim_edits_a_file(live: Live, until: Until, require: Require, tmp_path: Path) -> None:
    require("vim", "an editor that fills the screen")

    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["vim", "-u", "NONE", "-N", "-i", "NONE", str(tmp_path / "page")])
        await until(pty, b"[New")
        await pty.write("ifirst\x1b")
        await pty.write(":wq\r")
        await all_of(pty)
        assert (await pty.wait()).ok
        assert (tmp_path / "page").read_text() == "first\n"

    live(scenario)


def test_top_draws_until_it_is_told_to_quit(live: Live, until: Until, require: Require) -> None:
    require("top", "a program that draws again and again")

    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["top", "-d", "0.1"], rows=30, cols=100, env={"TERM": "xterm"})
        for _ in range(3):
            await until(pty, b"load average")
        await pty.write("q")
        await all_of(pty)
        assert (await pty.wait()).ok

    live(scenario)
