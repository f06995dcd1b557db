"""The acts of the hostile corpus, each in a sandbox of its own, and what came of each, seen from outside.

It knows nothing of policies, so that it runs wherever a sandbox can be started (``matrix`` says in which).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from hermes_exec_backends.sandbox.run import ProgramResult, Run

    Starter = Callable[[str, list[str], float], Awaitable[tuple[Run, list[str]]]]
    """Holds a program for some seconds, where a folder is seen as ``SKILL``; and says what is amiss there."""

CLASSES = ("network", "secrets", "filesystem", "resource", "kernel", "posture")
"""What happens when a skill runs; the others are about what it is made of."""
SKILL = "/app/skills/hostile"
PORT = 18080
LISTENED = 18999
WALL_S = 5.0
_TURNS = 3
_LIMITS = {signal.SIGXCPU, signal.SIGXFSZ}
_MOST_BYTES, _MOST_FILES = 128 << 20, 8192
_START = """
import sys
with open("/app/data/.control", "w") as file:
    file.write("x")
sys.argv = [sys.argv[1]]
with open(sys.argv[0]) as file:
    text = file.read()
print("STARTED", flush=True)
exec(compile(text, sys.argv[0], "exec"), {"__name__": "__main__"})
"""
_START_SHELL = ': <"$1" && echo x >/app/data/.control && echo STARTED && . "$1"'
PRIVATE = {"fs-devshm-write": "its own /dev/shm, in memory and of a certain size, which multiprocessing needs"}
"""Acts that may work, and why they harm nobody."""
_SECRETS = {"OPENAI_API_KEY": "canary", "MEMORY_DB_URL": "postgresql://u:canary@h/d", "HTTPS_PROXY": "http://h:1"}


@dataclasses.dataclass(frozen=True)
class Act:
    """What came of one act."""

    id: str
    kind: str
    """Its class."""
    outcome: str
    """``blocked``, ``limit``, ``private``, ``escaped`` or ``invalid``; ``unheld`` where nothing there can stop it."""
    detail: str


def acts(corpus: Path) -> list[dict[str, Any]]:
    """The items of a corpus that are run."""
    items = [json.loads(line) for line in corpus.read_text("utf-8").splitlines()]
    return [item for item in items if item["class"] in CLASSES and item["lang"] in {"python", "sh"}]


async def run_all(
    start: Starter,
    items: Sequence[dict[str, Any]],
    *,
    wall_s: float = WALL_S,
    told: Callable[[Act], None] = lambda _act: None,
) -> list[Act]:
    """Run them, a few at once; ``told`` hears of each as soon as it is done."""
    turns = asyncio.Semaphore(_TURNS)
    with bait() as hits:

        async def one(item: dict[str, Any]) -> Act:
            async with turns:
                before = len(hits)
                act = await _run(start, item, wall_s)
                if len(hits) > before and item["class"] == "network":
                    act = dataclasses.replace(act, outcome="escaped", detail="somebody outside was reached")
                told(act)
                return act

        return list(await asyncio.gather(*map(one, items)))


async def _run(start: Starter, item: dict[str, Any], wall_s: float) -> Act:
    with tempfile.TemporaryDirectory(prefix="hx-hostile-") as folder:
        file = Path(folder) / "scripts" / ("main.py" if item["lang"] == "python" else "main.sh")
        file.parent.mkdir()
        file.write_text(item["code"] + "\n", encoding="utf-8")
        Path(folder).chmod(0o755)
        inside = f"{SKILL}/scripts/{file.name}"
        words = ["/usr/bin/python3", "-I", "-S", "-B", "-c", _START, inside]
        if item["lang"] == "sh":
            words = ["/bin/sh", "-c", _START_SHELL, "sh", inside]
        try:
            made, seen = await start(folder, words, wall_s)
            async with made as run:
                if seen:
                    return Act(item["id"], item["class"], "escaped", "; ".join(seen))
                run.go()
                reached = asyncio.create_task(_reached()) if item["id"] == "net-listen-reach-host" else None
                ended = await run.wait()
                if reached is not None and await reached:
                    return Act(item["id"], item["class"], "escaped", "its listener was reached from outside")
                return _judged(item, run, ended, Path(folder))
        except HermesError as error:
            return Act(item["id"], item["class"], "invalid", error.what)


def _judged(item: dict[str, Any], run: Run, ended: ProgramResult, folder: Path) -> Act:
    said = ended.stdout.decode("utf-8", "replace").splitlines()
    name, kind = item["id"], item["class"]
    if said[:1] != ["STARTED"]:
        return Act(name, kind, "invalid", ended.stderr.decode("utf-8", "replace")[-200:] or "it did not start")
    bad = [line for line in said[1:] if line.startswith("ESCAPED")]
    if name == "pos-cgroup-limits" and bad:  # groups cannot be seen inside, so this is looked at from outside
        weak = [limit for limit in ("memory", "processes") if not run.limit_enforcers[limit].startswith("cgroup")]
        outcome = Act(name, kind, "unheld", "no control group can be made there: limits of processes, and a watchdog")
        return outcome if weak else Act(name, kind, "blocked", "control groups, seen from outside")
    if bad and name in PRIVATE:
        return Act(name, kind, "private", PRIVATE[name])
    if bad:
        return Act(name, kind, "escaped", bad[0][:200])
    if ended.limit or ended.exit.signal in _LIMITS:
        return Act(name, kind, "limit", ended.limit or f"signal {ended.exit.signal}")
    try:
        left = run.collect("/app/data", folder / "taken", max_bytes=_MOST_BYTES, max_files=_MOST_FILES).left
    except HermesError as error:
        return Act(name, kind, "limit", error.what)
    return Act(
        name, kind, "blocked", (said[1] if len(said) > 1 else _last(ended)) + "".join(f"; {each}" for each in left)
    )


def _last(ended: ProgramResult) -> str:
    lines = ended.stderr.decode("utf-8", "replace").splitlines()
    return lines[-1][:200] if lines else f"exit code {ended.exit.code}"


async def _reached() -> bool:
    """Whether a port of this machine's answers while something inside listens there."""
    for _ in range(20):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", LISTENED)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return True
    return False


@contextlib.contextmanager
def bait() -> Generator[list[object]]:
    """What acts look for: secrets among our variables, a port, shared memory; gives who came to the port."""
    hits: list[object] = []
    loop = asyncio.get_running_loop()
    saved = {name: os.environ.get(name) for name in _SECRETS}
    os.environ.update(_SECRETS)
    file = Path(f"/dev/shm/hermes-canary-{os.getpid()}")
    libc = ctypes.CDLL(None)
    segment = libc.shmget(0, ctypes.c_size_t(4096), 0o666)
    listener = socket.socket()
    try:
        file.touch()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", PORT))
        listener.listen()
        listener.setblocking(False)
        loop.add_reader(listener, lambda: hits.append(listener.accept()))
        yield hits
    finally:
        loop.remove_reader(listener)
        listener.close()
        file.unlink(missing_ok=True)
        libc.shmctl(segment, 0, None)
        for name, value in saved.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
