"""Apptainer beside its own program: commands in a warm instance, and how long it takes to have one.

The bare program is ``apptainer instance start`` and ``apptainer exec`` of the same image with the same options.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import hermes_exec
from benchmarks.figures import Figure, in_turns_async, median, spent
from hermes_exec_backends.profiles import SingularityProfile
from hermes_exec_backends.singularity import SingularityBackend
from tests.rigs import images


class Bare:
    """The program by itself."""

    def __init__(self, image: Path) -> None:
        self._image = str(image)
        self._flags = ["--containall", "--cleanenv", "--writable-tmpfs"]
        if not self._works():  # its setuid path does not work here, so it is a user namespace for both
            self._flags.append("--userns")

    def _works(self) -> bool:
        argv = ["apptainer", "-s", "exec", *self._flags, self._image, "true"]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def _run(self, *words: str) -> None:
        subprocess.run(["apptainer", "-s", *words], check=True, stdin=subprocess.DEVNULL)

    def exec(self) -> float:
        """Seconds of ``apptainer exec`` of the image."""
        return spent(lambda: self._run("exec", *self._flags, self._image, "true"))

    def start(self, actions: Path) -> float:
        """Seconds to an instance in which a Python has run; its end is not counted."""
        name = f"bench-{secrets.token_hex(4)}"
        begin = time.perf_counter()
        bind = ["--bind", f"{actions}:/.singularity.d/actions"]  # an unpacked tree has no start action
        self._run("instance", "start", *self._flags, *bind, self._image, name)
        self._run("exec", *self._flags[3:], f"instance://{name}", "python3", "-c", "pass")
        took = time.perf_counter() - begin
        self._run("instance", "stop", "-F", name)
        return took


async def _opened(image: Path) -> float:
    begin = time.perf_counter()
    terminal = await hermes_exec.open(_place(image), audit=False)
    took = time.perf_counter() - begin
    await terminal.close()
    return took


def _place(image: Path) -> SingularityBackend:
    return SingularityBackend(SingularityProfile(image=str(image)))


async def _measure(image: Path, actions: Path, rounds: int) -> list[Figure]:
    bare = Bare(image)
    async with hermes_exec.open(_place(image), audit=False) as terminal:
        session = await terminal.session()
        await in_turns_async(1, lambda: session.run("true"))
        (ours,) = await in_turns_async(rounds, lambda: session.run("true"))
        theirs = [bare.exec() for _ in range(rounds // 10)]
    opens: list[float] = []
    starts: list[float] = []
    for _ in range(max(3, rounds // 40)):
        starts.append(bare.start(actions))
        opens.append(await _opened(image))
    mine = median(ours) * 1e3
    return [
        Figure("Apptainer: session `true`", "ms", mine, "`apptainer exec`", median(theirs) * 1e3, 0.01),
        Figure("Apptainer: open", "ms", median(opens) * 1e3, "bare start + Python", median(starts) * 1e3, 1.25),
    ]


def figures(rounds: int) -> list[Figure]:
    """Commands and opening."""
    if not shutil.which("apptainer"):
        print("apptainer is not here, so nothing is measured", file=sys.stderr)
        return []
    os.environ.setdefault("APPTAINER_MESSAGELEVEL", "0")
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as name:
        folder = Path(name)
        image = images.unpacked(images.debian(), folder / "debian")
        start = folder / "actions" / "start"
        start.parent.mkdir()
        start.write_text("#!/bin/sh\nwhile :; do sleep 86400; done\n")
        start.chmod(0o755)
        return asyncio.run(_measure(image, start.parent, rounds))
