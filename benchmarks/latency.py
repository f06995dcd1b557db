"""What one command costs, in a live session and as an argv list."""

from __future__ import annotations

import asyncio
import subprocess
from typing import TYPE_CHECKING

import hermes_exec
import hermes_exec.sync
from benchmarks.figures import Figure, median, spent, spent_async

if TYPE_CHECKING:
    from benchmarks.peers.serve import Peer

_ENV = {"PATH": "/usr/bin:/bin"}


def bare(*argv: str) -> float:
    """A process started and waited for by subprocess."""
    return spent(lambda: subprocess.run(argv, env=_ENV, check=False, capture_output=True))


async def _async(rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        times.setdefault(name, []).append(seconds)

    async with hermes_exec.open("local", audit=False) as terminal:
        session = await terminal.session()
        for _ in range(20):
            await session.run("true")
        for _ in range(rounds):
            note("bash true", bare("bash", "-c", "true"))
            note("true", await spent_async(lambda: session.run("true")))
            note("bash /bin/true", bare("bash", "-c", "/bin/true;:"))
            note("/bin/true", await spent_async(lambda: session.run("/bin/true")))
            note("bare", bare("/bin/true"))
            note("argv", await spent_async(lambda: terminal.run(["/bin/true"])))
    return times


def _blocking(rounds: int) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    theirs: list[float] = []
    with hermes_exec.sync.open("local", audit=False) as terminal:
        session = terminal.session()
        for _ in range(20):
            session.run("true")
        for _ in range(rounds):
            theirs.append(bare("bash", "-c", "true"))
            ours.append(spent(lambda: session.run("true")))
    return ours, theirs


def against_peers(peers: list[Peer], rounds: int) -> list[Figure]:
    """``echo hi`` in turns with each peer."""
    ours: list[float] = []
    theirs: dict[str, list[float]] = {peer.name: [] for peer in peers}
    with hermes_exec.sync.open("local", audit=False) as terminal:
        terminal.run("echo hi")
        for peer in peers:
            peer.run("echo hi")
        for _ in range(rounds):
            ours.append(spent(lambda: terminal.run("echo hi")))
            for peer in peers:
                theirs[peer.name].append(peer.run("echo hi"))
    bars = {"hermes-agent": 1 / 25}
    return [
        Figure("session `echo hi`", "ms", median(ours) * 1e3, name, median(times) * 1e3, bars.get(name))
        for name, times in theirs.items()
    ]


def figures(rounds: int) -> list[Figure]:
    """Sessions, both faces, and argv lists."""
    times = {name: median(values) * 1e6 for name, values in asyncio.run(_async(rounds)).items()}
    ours, theirs = _blocking(rounds)
    return [
        Figure("session `true`", "µs", times["true"], "`bash -c true`", times["bash true"], 0.2),
        Figure("session `true`, blocking", "µs", median(ours) * 1e6, "`bash -c true`", median(theirs) * 1e6, 0.25),
        Figure("program in a session", "µs", times["/bin/true"], "`bash -c`", times["bash /bin/true"], 0.6),
        Figure("argv list", "µs", times["argv"], "subprocess", times["bare"], 1.4),
    ]
