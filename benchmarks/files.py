"""Moving files, beside cat, tar and rsync.

Small files are measured in memory where there is such a folder, and each round has new names: ext4 looks past every
inode that was freed in the last minutes, which cost up to a second for 2,000 files, whoever made them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import hermes_exec
from benchmarks.figures import Figure, median, spent, spent_async


def _shell(text: str, folder: Path) -> float:
    return spent(lambda: subprocess.run(["bash", "-c", text], cwd=folder, check=True, capture_output=True))


def make_tree(folder: Path, count: int) -> None:
    """Small files in 40 folders."""
    for number in range(count):
        path = folder / f"{number % 40}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d\n" % number * 200)


async def _measure(folder: Path, small: Path, size: int, count: int, rounds: int) -> list[Figure]:
    big, tree = folder / "big", small / "tree"
    with big.open("wb") as file:
        for _ in range(size >> 20):
            file.write(time.time_ns().to_bytes(8, "big") * (1 << 17))
    make_tree(tree, count)
    times: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        times.setdefault(name, []).append(seconds)

    async with hermes_exec.open("local", audit=False) as terminal:
        await terminal.upload(str(tree), str(small / "first"))  # from then on the guest can
        for number in range(rounds):
            for stale in ("cat", "up", "down"):
                (folder / stale).unlink(missing_ok=True)
            note("cat", _shell("cat big | cat > cat", folder))
            note("up", await spent_async(lambda: terminal.upload(str(big), str(folder / "up"))))
            note("down", await spent_async(lambda: terminal.download(str(folder / "up"), str(folder / "down"))))
            note("tar", _shell(f"mkdir tar{number} && tar cf - -C tree . | tar xf - -C tar{number}", small))
            sent, synced = str(small / f"sent{number}"), str(small / "synced")
            note("tree", await spent_async(partial(terminal.upload, str(tree), sent)))
            if shutil.which("rsync"):
                _shell("rsync -a tree/ rsync/", small)
                note("rsync", _shell("rsync -a tree/ rsync/", small))
            await terminal.sync(str(tree), synced)
            note("sync", await spent_async(partial(terminal.sync, str(tree), synced)))
    middle = {name: median(values) * 1e3 for name, values in times.items()}
    megabytes = size >> 20
    return [
        Figure(f"{megabytes} MiB up", "ms", middle["up"], "`cat | cat`", middle["cat"], 1 / 0.7),
        Figure(f"{megabytes} MiB down", "ms", middle["down"], "`cat | cat`", middle["cat"], 1 / 0.7),
        Figure(f"{count} small files up", "ms", middle["tree"], "`tar | tar`", middle["tar"], 1.0),
        *(
            [Figure("unchanged re-sync", "ms", middle["sync"], "`rsync -a`", middle["rsync"], 1.0)]
            if "rsync" in middle
            else []
        ),
    ]


def figures(rounds: int, size: int, count: int) -> list[Figure]:
    """Whole files, trees, sync."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    disk = tempfile.TemporaryDirectory(prefix="hermes-bench-")
    with disk as folder, tempfile.TemporaryDirectory(prefix="hermes-bench-", dir=memory) as small:
        return asyncio.run(_measure(Path(folder), Path(small), size, count, rounds))
