"""A connection that breaks in the middle of a PTY: no byte is lost or repeated, either way."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from hermes_exec.terminal.pty import Pty, start_pty
from hermes_exec.transport.link import Link

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

Live = Callable[[Callable[[Link], Awaitable[None]]], None]
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]
Until = Callable[[Pty, bytes], Awaitable[bytes]]


class Place(Protocol):
    way: asyncio.Event


def test_output_is_whole_after_many_cuts(live: Live) -> None:
    async def scenario(link: Link) -> None:
        pty = await start_pty(link, ["sh", "-c", "stty -opost; seq 800000"])
        shown = b""
        cuts = 0
        async for piece in pty:
            shown += piece
            if len(shown) > (cuts + 1) * 500_000:
                cuts += 1
                link.break_connection()
        assert cuts > 5
        assert shown == b"".join(b"%d\n" % number for number in range(1, 800_001))
        assert (await pty.wait()).exit_code == 0

    live(scenario)


def test_what_is_typed_arrives_once_after_many_cuts(live: Live, until: Until) -> None:
    async def scenario(link: Link) -> None:
        script = "stty raw -echo; echo ready; head -c 4000000 | sha256sum"
        pty = await start_pty(link, ["sh", "-c", script])
        await until(pty, b"ready")
        typed = b"".join(b"%d\n" % number for number in range(1_000_000))[:4_000_000]
        for start in range(0, len(typed), 100_000):
            await pty.write(typed[start : start + 100_000])
            if start % 500_000 == 0:
                link.break_connection()
        assert hashlib.sha256(typed).hexdigest().encode() in await until(pty, b"-\n")

    live(scenario)


def test_program_goes_on_and_ends_while_nobody_is_connected(
    live: Live, backend: Place, eventually: Eventually, tmp_path: Path
) -> None:
    async def scenario(link: Link) -> None:
        script = f"stty -opost; read -r _; seq 3000000; touch {tmp_path}/over; exit 4"
        pty = await start_pty(link, ["sh", "-c", script])
        await pty.write("\n")
        shown = await pty.read()
        backend.way.clear()
        link.break_connection()
        await eventually((tmp_path / "over").exists)
        backend.way.set()
        shown += b"".join([piece async for piece in pty])
        assert shown.endswith(b"".join(b"%d\n" % number for number in range(1, 3_000_001)))
        assert (await pty.wait()).exit_code == 4

    live(scenario)
