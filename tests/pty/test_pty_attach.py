"""PTYs outlive those who look at them, and show a newcomer what there was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import Closed
from hermes_exec.terminal.pty import Pty, attach_pty, start_pty
from hermes_exec.terminal.pty_status import list_ptys
from hermes_exec.transport.link import Link

if TYPE_CHECKING:
    from hermes_exec_backends.local import LocalBackend

Live = Callable[[Callable[[Link], Awaitable[None]]], None]
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]
Until = Callable[[Pty, bytes], Awaitable[bytes]]


async def another_client(link: Link, backend: LocalBackend) -> Link:
    """A second link to the guest of the first, as another process would have."""
    other = Link(backend, env={}, cwd=None)
    await other.attach(link.guest, str(link.identity["interpreter"]))
    return other


def test_detached_program_goes_on_and_is_found_again(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        first = await start_pty(link, ["cat"], name="kept")
        await first.write("before\n")
        await until(first, b"before\r\nbefore\r\n")
        await first.detach()
        second = await attach_pty(link, "kept")
        await until(second, b"before\r\nbefore\r\n")
        await second.write("after\n")
        assert await until(second, b"after\r\nafter\r\n") == b"after\r\nafter\r\n"

    live(scenario)


def test_end_of_a_detached_program_is_not_told_to_who_left(live: Live) -> None:
    async def scenario(link: Link) -> None:
        async with await start_pty(link, ["cat"]) as pty:
            await pty.detach()
            with pytest.raises(Closed, match="was detached"):
                await pty.wait()
            assert await pty.read() == b""
        await attach_pty(link, pty.name)

    live(scenario)


def test_program_that_ended_before_anybody_looked_is_still_shown(live: Live, eventually: Eventually) -> None:
    async def scenario(link: Link) -> None:
        link.load_part("pty")
        arguments = {"name": "quick", "argv": [b"sh", b"-c", b"echo shown; exit 3"]}
        started = await link.request("pty", arguments)
        await eventually(lambda: not Path(f"/proc/{started['pid']}").exists())
        pty = await attach_pty(link, "quick")
        assert [piece async for piece in pty] == [b"shown\r\n"]
        assert (await pty.wait()).exit_code == 3

    live(scenario)


def test_newcomer_gets_the_last_quarter_mebibyte_from_the_start_of_a_line(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["sh", "-c", "stty -opost; seq 200000; echo end; exec cat"])
        whole = await until(pty, b"end\n")
        newcomer = await attach_pty(link, pty.name)
        replay = await until(newcomer, b"end\n")
        assert whole.endswith(b"\n" + replay)
        assert (256 << 10) - 8 < len(replay) <= 256 << 10

    live(scenario)


def test_viewer_continues_at_a_byte_that_is_kept(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        first = await start_pty(link, ["cat"], name="kept")
        await first.write("one\n")
        shown = await until(first, b"one\r\none\r\n")
        await first.detach()
        (status,) = await list_ptys(link)
        assert status.output == (0, len(shown))
        second = await attach_pty(link, "kept", offset=7)
        assert await until(second, b"e\r\n") == b"e\r\n"
        await second.detach()
        with pytest.raises(Closed, match="not kept from that byte"):
            await attach_pty(link, "kept", offset=len(shown) + 1)

    live(scenario)


def test_questions_to_the_terminal_are_not_replayed(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        asked = rb"[\033[c\033[>c\033[6n\033[?6n\033]11;?\007\033]10;?\033\\\033P+q544e\033\\\033[?12$p\033[18t]"
        pty = await start_pty(link, ["sh", "-c", b"printf '" + asked + b"'; printf '\\033[1mbold'; exec cat"])
        assert b"\x1b[6n" in await until(pty, b"bold")
        newcomer = await attach_pty(link, pty.name)
        assert await until(newcomer, b"bold") == b"[]\x1b[1mbold"

    live(scenario)


def test_program_is_asked_to_draw_anew_for_a_newcomer(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        script = "trap 'echo drawn' WINCH; echo ready; while :; do read -t 0.05 -r _; done"
        pty = await start_pty(link, ["bash", "-c", script], rows=24, cols=80)
        await until(pty, b"ready")
        newcomer = await attach_pty(link, pty.name, rows=24, cols=80)
        await until(newcomer, b"drawn")

    live(scenario)


def test_newcomer_brings_the_size(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["sh", "-c", "read -r _; stty size"], rows=24, cols=80)
        newcomer = await attach_pty(link, pty.name, rows=30, cols=90)
        await newcomer.write("\n")
        await until(pty, b"30 90\r\n")

    live(scenario)


def test_two_viewers_see_the_same_and_both_may_type(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        first = await start_pty(link, ["cat"])
        second = await attach_pty(link, first.name)
        await first.write("one\n")
        assert await until(second, b"one\r\none\r\n") == await until(first, b"one\r\none\r\n")
        await second.write("two\x04\x04")
        assert [piece async for piece in first][-1:] == [piece async for piece in second][-1:]
        assert (await first.wait()).exit_code == (await second.wait()).exit_code == 0

    live(scenario)


def test_viewer_that_leaves_no_longer_holds_the_program_up(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        reader = await start_pty(link, ["sh", "-c", "stty -opost; head -c 30000000 /dev/zero; echo end"])
        sleeper = await attach_pty(link, reader.name)

        async def read_all() -> int:
            return sum([len(piece) async for piece in reader])

        reading = asyncio.create_task(read_all())
        done, _ = await asyncio.wait((reading,), timeout=1)
        assert not done
        await sleeper.detach()
        assert await reading == 30_000_004

    live(scenario)


def test_unknown_name_is_refused_with_those_that_are_there(live: Live) -> None:
    async def scenario(link: Link) -> None:
        await start_pty(link, ["cat"], name="here")
        with pytest.raises(Closed, match="no PTY of that name is here; there are: here"):
            await attach_pty(link, "there")

    live(scenario)


def test_another_client_of_the_guest_can_attach(live: Live, until: Until, backend: LocalBackend) -> None:
    async def scenario(link: Link) -> None:
        first = await start_pty(link, ["cat"], name="shared")
        other = await another_client(link, backend)
        second = await attach_pty(other, "shared")
        await second.write("hello\n")
        await until(first, b"hello\r\nhello\r\n")
        await other.close()
        await first.write("still\n")
        await until(first, b"still\r\nstill\r\n")

    live(scenario)


def test_pty_ends_with_the_client_that_started_it(live: Live, backend: LocalBackend) -> None:
    async def scenario(link: Link) -> None:
        starter = await another_client(link, backend)
        await start_pty(starter, ["cat"], name="mine")
        watching = await attach_pty(link, "mine")
        await starter.close()
        assert await watching.read() == b""
        assert (await watching.wait()).cancelled

    live(scenario)


def test_kept_pty_outlives_its_client_and_tells_its_end_later(
    live: Live, backend: LocalBackend, eventually: Eventually, tmp_path: Path
) -> None:
    async def scenario(link: Link) -> None:
        starter = await another_client(link, backend)
        script = f"echo shown; until [ -e {tmp_path}/left ]; do sleep 0.02; done; touch {tmp_path}/over; exit 7"
        await start_pty(starter, ["sh", "-c", script], name="kept", keep_s=60)
        await starter.close()
        (tmp_path / "left").touch()
        await eventually((tmp_path / "over").exists)
        late = await attach_pty(link, "kept")
        assert b"shown\r\n" in b"".join([piece async for piece in late])
        assert (await late.wait()).exit_code == 7
        assert (await link.request("pty.list", {}))["ptys"] == []

    live(scenario)


def test_kept_pty_keeps_its_guest_and_ends_when_nobody_attaches(
    live: Live, backend: LocalBackend, eventually: Eventually
) -> None:
    async def scenario(link: Link) -> None:
        await start_pty(link, ["cat"], name="kept", keep_s=0.5)
        folder = Path(str(link.guest["folder"]))
        identity, python = link.guest, str(link.identity["interpreter"])
        await link.close()
        later = Link(backend, env={}, cwd=None)
        await later.attach(identity, python)
        started = time.monotonic()
        watching = await attach_pty(later, "kept")
        done, _ = await asyncio.wait((asyncio.ensure_future(watching.wait()),), timeout=0.8)
        assert not done
        await later.close()
        await eventually(lambda: not folder.exists())
        assert time.monotonic() - started < 60

    live(scenario)
