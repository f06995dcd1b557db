"""What one command costs, in a live session and as an argv list."""

from __future__ import annotations

import asyncio
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import hermes_exec
import hermes_exec.sync
from benchmarks.figures import Figure, in_turns, in_turns_async, median, spent
from benchmarks.floors import live_bash

if TYPE_CHECKING:
    from benchmarks.floors import LiveBash
    from benchmarks.peers.serve import Peer

_ENV = {"PATH": "/usr/bin:/bin"}
_FLOOR = "floor: a live bash behind a relay"


def bare(*argv: str) -> float:
    """A process started and waited for by subprocess."""
    return spent(lambda: subprocess.run(argv, env=_ENV, check=False, capture_output=True))


async def _async(live: LiveBash, rounds: int) -> list[float]:
    async def started(*argv: str) -> None:
        bare(*argv)

    async with hermes_exec.open("local", audit=False) as terminal:
        session = await terminal.session()
        for _ in range(20):
            await session.run("true")
            await live.run_async(b"true")
        times = await in_turns_async(
            rounds,
            lambda: session.run("true"),
            lambda: started("bash", "-c", "true"),
            lambda: session.run("/bin/true"),
            lambda: started("bash", "-c", "/bin/true;:"),
            lambda: terminal.run(["/bin/true"]),
            lambda: started("/bin/true"),
            lambda: live.run_async(b"true"),
        )
    return [median(values) * 1e6 for values in times]


def _blocking(rounds: int) -> list[float]:
    with hermes_exec.sync.open("local", audit=False) as terminal, live_bash() as live:
        session = terminal.session()
        for _ in range(20):
            session.run("true")
        times = in_turns(
            rounds,
            lambda: spent(lambda: session.run("true")),
            lambda: bare("bash", "-c", "true"),
            lambda: spent(lambda: live.run(b"true")),
        )
    return [median(values) * 1e6 for values in times]


def against_peers(peers: list[Peer], rounds: int) -> list[Figure]:
    """``echo hi`` in turns with each peer."""
    with hermes_exec.sync.open("local", audit=False) as terminal, live_bash() as live:
        terminal.run("echo hi")
        for peer in peers:
            peer.run("echo hi")
        each = [partial(peer.run, "echo hi") for peer in peers]
        ours, floor, *theirs = in_turns(
            rounds, lambda: spent(lambda: terminal.run("echo hi")), lambda: spent(lambda: live.run(b"echo hi")), *each
        )
    name, bars = "session `echo hi`", {"hermes-agent": 1 / 25}
    found = [
        Figure(name, "ms", median(ours) * 1e3, peer.name, median(times) * 1e3, bars.get(peer.name))
        for peer, times in zip(peers, theirs, strict=True)
    ]
    found.insert(1, Figure(name, "ms", median(ours) * 1e3, _FLOOR, median(floor) * 1e3))  # below the bar
    return found


def figures(rounds: int) -> list[Figure]:
    """Sessions, both faces, and argv lists."""
    with live_bash() as live:
        true, bash, program, bash_program, argv, started, floor = asyncio.run(_async(live, rounds))
    blocking, beside, blocking_floor = _blocking(rounds)
    return [
        Figure("session `true`", "µs", true, "`bash -c true`", bash, 0.2),
        Figure("session `true`", "µs", true, _FLOOR, floor),
        Figure("session `true`, blocking", "µs", blocking, "`bash -c true`", beside, 0.25),
        Figure("session `true`, blocking", "µs", blocking, _FLOOR, blocking_floor),
        Figure("program in a session", "µs", program, "`bash -c`", bash_program, 0.6),
        Figure("argv list", "µs", argv, "subprocess", started, 1.4),
    ]
