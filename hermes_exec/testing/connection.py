"""Connection: the channel breaks at any moment, and nothing runs twice, is lost or is repeated."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import OutcomeUnknown
from hermes_exec.testing.behaviours import Behaviours, needs
from hermes_exec.testing.input import WAYS, as_command
from hermes_exec.testing.output import NUMBERS
from hermes_exec.testing.place import SuiteTarget, count_living, link, marker
from hermes_exec.testing.sessions import output_of
from hermes_exec.testing.streams import text_until

if TYPE_CHECKING:
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal


STOP_GUEST = """read -r _ _ _ guest _ </proc/$PPID/stat
echo ran >>"$0"; kill -STOP "$guest"; sleep 10; kill -CONT "$guest\""""
"""Stops the guest, the parent of this command's parent, for 10 seconds, in which it answers nothing."""


class ConnectionSuite(Behaviours, exercises="channel"):
    """A broken connection is replaced without an effect on its users."""

    @pytest.mark.parametrize("way", WAYS)
    @needs("reconnect")
    async def test_a_command_after_a_cut_runs_once(self, terminal: Terminal, folder: str, way: str) -> None:
        for _ in range(3):
            link(terminal).break_connection()
            result = await terminal.run(as_command(way, f"echo ran >> {folder}/count; echo out"))
            assert (result.stdout, result.exit_code) == (b"out\n", 0)
        assert (await terminal.run(["cat", f"{folder}/count"])).stdout == b"ran\n" * 3

    @pytest.mark.parametrize("way", WAYS)
    @needs("reconnect")
    async def test_a_command_that_was_just_sent_runs_once(self, terminal: Terminal, folder: str, way: str) -> None:
        for turn in range(10):
            text = f"echo {turn} >> {folder}/count; echo out; (exit 4)"
            running = asyncio.ensure_future(terminal.run(as_command(way, text)))
            for _ in range(turn):
                await asyncio.sleep(0)
            link(terminal).break_connection()
            result = await running
            assert (result.stdout, result.exit_code) == (b"out\n", 4)
        ran = (await terminal.run(["cat", f"{folder}/count"])).stdout
        assert ran == b"".join(b"%d\n" % turn for turn in range(10))

    @pytest.mark.parametrize("way", WAYS)
    @needs("reconnect")
    async def test_a_command_under_way_goes_on_and_loses_no_output(
        self, terminal: Terminal, folder: str, way: str
    ) -> None:
        await terminal.run(["mkfifo", f"{folder}/go"], check=True)
        talk = f"echo before; read x < {folder}/go; echo after; (exit 5)"
        async with terminal.stream(as_command(way, talk)) as stream:
            assert await text_until(stream, b"before") == b"before\n"
            link(terminal).break_connection()
            await terminal.run(["sh", "-c", f"echo go > {folder}/go"], timeout=20)
            assert await text_until(stream, b"after") == b"after\n"
            assert (await stream.result()).exit_code == 5

    @pytest.mark.parametrize("way", WAYS)
    @needs("reconnect")
    async def test_a_large_output_survives_many_cuts(self, terminal: Terminal, way: str) -> None:
        seen = bytearray()
        cuts = 0
        async with terminal.stream(as_command(way, "seq 1 400000; seq 1 400000")) as events:
            async for event in events:
                seen += event.data
                if cuts < 8 and len(seen) > cuts * len(NUMBERS) // 5:
                    cuts += 1
                    link(terminal).break_connection()
        assert cuts == 8
        assert seen == NUMBERS * 2

    @pytest.mark.parametrize("way", WAYS)
    @needs("reconnect")
    async def test_a_large_input_survives_many_cuts(self, terminal: Terminal, way: str) -> None:
        data = os.urandom(24_000_000)
        async with terminal.stream(as_command(way, "sha256sum"), interactive=True) as stream:
            for start in range(0, len(data), 3_000_000):
                await stream.write(data[start : start + 3_000_000])
                link(terminal).break_connection()
            await stream.close_stdin()
            seen = b"".join([event.data async for event in stream])
        assert seen.split()[0].decode() == hashlib.sha256(data).hexdigest()

    @needs("reconnect")
    async def test_input_and_output_at_once_survive_cuts(self, terminal: Terminal) -> None:
        data = os.urandom(12_000_000)
        running = asyncio.ensure_future(terminal.run(["cat"], stdin=data, max_output=len(data)))
        for _ in range(6):
            await asyncio.sleep(0.03)
            link(terminal).break_connection()
        assert (await running).stdout == data

    @needs("reconnect")
    async def test_sessions_keep_their_state_and_their_children(self, session: Session, terminal: Terminal) -> None:
        mark = marker()
        await session.run(f"kept=1; cd /usr; sleep {mark} & child=$!")
        link(terminal).break_connection()
        assert await output_of(session, "echo $kept; pwd; kill -0 $child && echo lives") == "1\n/usr\nlives\n"
        assert await count_living(terminal, mark) == 1

    @needs("reconnect")
    async def test_many_commands_at_once_survive_a_cut(self, terminal: Terminal, folder: str) -> None:
        one = 'echo x >> "$0"; printf "%s" "$1"; exit "$1"'
        running = [asyncio.ensure_future(terminal.run(["sh", "-c", one, f"{folder}/{n}", str(n)])) for n in range(60)]
        for _ in range(4):
            await asyncio.sleep(0.01)
            link(terminal).break_connection()
        results = await asyncio.gather(*running)
        assert [(r.stdout, r.exit_code) for r in results] == [(b"%d" % n, n) for n in range(60)]
        counts = await terminal.run(["sh", "-c", f"cat {folder}/* | wc -l"])
        assert counts.stdout.strip() == b"60"

    @needs("reconnect")
    async def test_a_time_limit_runs_on_while_nobody_is_connected(self, terminal: Terminal) -> None:
        mark = marker()
        running = asyncio.ensure_future(terminal.run(["sleep", mark], timeout=0.4, grace_s=0.1))
        await asyncio.sleep(0.1)
        link(terminal).break_connection()
        result = await running
        assert result.timed_out
        assert await count_living(terminal, mark) == 0

    @needs("reconnect")
    async def test_a_cancel_during_a_cut_is_carried_out(self, terminal: Terminal) -> None:
        mark = marker()
        async with terminal.stream(["sh", "-c", f"echo in; sleep {mark}"], grace_s=0.1) as stream:
            await text_until(stream, b"in")
            link(terminal).break_connection()
            assert (await stream.cancel()).cancelled
            assert await count_living(terminal, mark) == 0

    @needs("reconnect")
    async def test_a_guest_that_stops_answering_holds_nobody_up(
        self, place: SuiteTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(place.backend, "options", replace(place.backend.options, keepalive_s=1.0))
        async with place.fresh() as terminal:
            ran = (await terminal.run("kept=1; mktemp")).stdout_text.strip()
            with pytest.raises(OutcomeUnknown):
                await terminal.run(["sh", "-c", STOP_GUEST, ran], timeout=0.5)
            assert (await terminal.run(f"echo $kept; cat {ran}; rm {ran}")).stdout == b"1\nran\n"

    @needs("reconnect")
    async def test_closing_right_after_a_cut_leaves_nothing(self, place: SuiteTarget) -> None:
        mark = marker()
        async with place.fresh() as terminal:
            await terminal.run(f"sleep {mark} &")
            link(terminal).break_connection()
            await asyncio.sleep(0)
        assert await count_living(await place.get_shared_terminal(), mark) == 0
