"""What a sandbox costs: its start beside a bare bwrap with the same program, and a command in it beside one outside."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import hermes_exec
from benchmarks.figures import Figure, median, spent_async
from hermes_exec.transport.shell.target import run_helper
from hermes_exec_backends.bubblewrap import BubblewrapBackend
from hermes_exec_backends.bubblewrap.start import start
from hermes_exec_backends.local import LocalBackend
from hermes_exec_backends.profiles import BubblewrapProfile
from hermes_exec_backends.sandbox import Bind, Confinement, Landlock, PathRule, Tmpfs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

PROGRAM = ("/usr/bin/python3", "-c", "pass")
BARE = (
    "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--proc", "/proc",
    "--dev", "/dev", "--tmpfs", "/tmp", *PROGRAM,
)  # fmt: skip


async def bare() -> None:
    """The program in a bwrap with the usual options."""
    process = await asyncio.create_subprocess_exec(
        *BARE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    await process.communicate()


def confined() -> Confinement:
    """A specification with every mechanism that needs no compiled filter."""
    found = [Path("/", name) for name in ("bin", "lib", "lib64")]
    links = tuple((str(path), str(path.readlink())) for path in found if path.is_symlink())
    rights = (1 << 13) - 1
    paths = (PathRule(path="/usr", access=0b1101), PathRule(path="/app/data", access=rights & ~1))
    return Confinement(
        binds=(Bind(source="/usr", target="/usr"),),
        links=links,
        tmpfs=(Tmpfs(target="/app/data", size=64 << 20, inodes=1000),),
        env=(("PATH", "/usr/bin:/bin"),),
        uid=61_999 if os.geteuid() == 0 else None,
        landlock=Landlock(handled_fs=rights, paths=paths),
        rlimits=(("nofile", 256, 256), ("core", 0, 0)),
    )


class SamePython(LocalBackend):
    """This machine by the interpreter that a sandbox has."""

    @property
    def pythons(self) -> Sequence[str]:
        return PROGRAM[:1]

    @property
    def same_python(self) -> bool:
        return False


async def _watched(confinement: Confinement) -> None:
    async with await start(confinement, PROGRAM) as run:
        run.go()
        await run.wait()


async def _in_turns(rounds: int, *works: Callable[[], Awaitable[object]]) -> list[float]:
    """The median of each, in milliseconds."""
    times: list[list[float]] = [[] for _ in works]
    for turn in range(rounds + 2):
        for work, spent in zip(works, times, strict=True):
            took = await spent_async(work)
            if turn > 1:
                spent.append(took)
    return [median(spent) * 1e3 for spent in times]


async def _measured(rounds: int) -> list[Figure]:
    backend = BubblewrapBackend(BubblewrapProfile())
    await backend.open()
    confinement = confined()
    floor, ours, watched = await _in_turns(
        rounds, bare, lambda: run_helper(backend, PROGRAM), lambda: _watched(confinement)
    )
    await backend.close()
    async with (
        hermes_exec.open(backend, audit=False) as inside,
        hermes_exec.open(SamePython(), audit=False) as outside,
    ):
        there, here = await _in_turns(10 * rounds, lambda: inside.run("true"), lambda: outside.run("true"))
    begin = time.perf_counter()
    async with hermes_exec.open(backend, audit=False) as terminal:
        await terminal.run("true")
        opened = (time.perf_counter() - begin) * 1e3
    name = "bare bwrap, `python3 -c pass`"
    return [
        Figure("sandbox, `python3 -c pass`", "ms", ours, name, floor, 1.2),
        Figure("confined, held and watched, `python3 -c pass`", "ms", watched, name, floor),
        Figure("sandbox, open + first command", "ms", opened, name, floor),
        Figure("session command in a sandbox", "ms", there, "on this machine", here, 1.1),
    ]


def figures(rounds: int) -> list[Figure]:
    """Nothing where there is no bwrap."""
    return asyncio.run(_measured(rounds)) if shutil.which("bwrap") else []
