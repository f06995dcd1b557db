"""What a Daytona sandbox costs beside the vendor's own SDK, both on the rig's server, which is a process of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import hermes_exec
from benchmarks.figures import Figure, in_turns_async, median, spent_async
from benchmarks.floors import CHECKER, move_down, move_up, remote_text
from hermes_exec.config.secrets import SecretSource
from hermes_exec_backends.daytona import DaytonaBackend
from hermes_exec_backends.daytona.service import Account, make
from hermes_exec_backends.profiles import DaytonaProfile
from tests.rigs.daytona_server import KEY
from tests.rigs.slow import Slow

if TYPE_CHECKING:
    from hermes_exec.terminal.session import Session
    from hermes_exec.terminal.terminal import Terminal

_VARIABLE = "HX_BENCH_DAYTONA_KEY"
_ROOT = Path(__file__).resolve().parents[1]
_LATENCY_S = 0.05
_SIZE = 20_000_000


def _backend(api_url: str) -> DaytonaBackend:
    return DaytonaBackend(
        DaytonaProfile(api_url=api_url, api_key=SecretSource("env", (_VARIABLE,)), image="python:3.11")
    )


async def _sdk_open(client: Any) -> Any:
    from daytona import CreateSandboxFromImageParams

    sandbox = await client.create(CreateSandboxFromImageParams(image="python:3.11"), timeout=60)
    await sandbox.process.exec("true", timeout=30)
    return sandbox


async def _opening(api_url: str, rounds: int) -> list[Figure]:
    """Each with a client of its own, as one command has it."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        terminal = await hermes_exec.open(_backend(api_url), audit=False)
        await terminal.run("true")
        ours.append(time.perf_counter() - begin)
        await terminal.close()
        begin = time.perf_counter()
        client = make(Account(KEY, api_url, None, None))
        sandbox = await _sdk_open(client)
        theirs.append(time.perf_counter() - begin)
        await sandbox.delete(timeout=60)
        await client.close()
    what = "Daytona: open and first command"
    return [Figure(what, "ms", median(ours[1:]) * 1e3, "SDK create and exec", median(theirs[1:]) * 1e3, 1.2)]


async def _latency(terminal: Terminal, sandbox: Any, rounds: int) -> list[Figure]:
    session: Session = await terminal.session()
    await session.run("true")
    ours, words, theirs = await in_turns_async(
        rounds,
        lambda: session.run("true"),
        lambda: terminal.run(["true"]),
        lambda: sandbox.process.exec("true", timeout=30),
    )
    beside = median(theirs) * 1e3
    return [
        Figure("Daytona: session `true`", "ms", median(ours) * 1e3, "SDK exec", beside, 0.2),
        Figure("Daytona: program `true`", "ms", median(words) * 1e3, "SDK exec", beside, 0.5),
    ]


async def _files(terminal: Terminal, sandbox: Any) -> list[Figure]:
    data = os.urandom(_SIZE)
    up: list[float] = []
    down: list[float] = []
    sdk_up: list[float] = []
    sdk_down: list[float] = []
    floor_up: list[float] = []
    floor_down: list[float] = []
    files = sandbox.fs

    async def check(path: str) -> str:
        answer = await sandbox.process.exec(f"echo {path} | {remote_text(CHECKER)}", timeout=30)
        return str(answer.result).replace("\0", "")

    for _ in range(5):
        up.append(_SIZE / await spent_async(lambda: terminal.write("/srv/ours", data)))
        sdk_up.append(_SIZE / await spent_async(lambda: files.upload_file(data, "/srv/theirs")))
        down.append(_SIZE / await spent_async(lambda: terminal.read("/srv/ours")))
        sdk_down.append(_SIZE / await spent_async(lambda: files.download_file("/srv/theirs")))
        floor_up.append(_SIZE / await spent_async(partial(move_up, partial(files.upload_file, data), check, data)))
        floor_down.append(_SIZE / await spent_async(partial(move_down, files.download_file, check)))
    return [
        Figure(f"Daytona: 20 MB {way}", "MB/s", median(ours) / 1e6, reference, median(theirs) / 1e6, bar, "higher")
        for way, ours, reference, theirs, bar in (
            ("up", up, "SDK upload", sdk_up, 1.0),
            ("up", up, "floor: SDK upload, an exec that hashes and renames", floor_up, None),
            ("down", down, "SDK download", sdk_down, 1.0),
            ("down", down, "floor: SDK download, an exec that hashes", floor_down, None),
        )
    ]


async def _far(api_url: str, rounds: int) -> list[Figure]:
    slow = Slow(urlsplit(api_url).port or 0, _LATENCY_S)
    far = f"http://127.0.0.1:{await slow.start()}/api"
    whole: list[float] = []
    first: list[float] = []
    async with hermes_exec.open(_backend(far), audit=False) as terminal:
        session = await terminal.session()
        await session.run("true")
        for _ in range(rounds):
            whole.append(await spent_async(lambda: session.run("true")))
            begin = time.perf_counter()
            async with session.stream("echo first; sleep 0.2") as stream:
                await anext(stream)
                first.append(time.perf_counter() - begin)
                await stream.result()
    return [
        Figure("Daytona, 50 ms away: session `true`", "ms", median(whole) * 1e3, "a round trip", 50.0, 2.0),
        Figure("Daytona, 50 ms away: first output", "ms", median(first) * 1e3, "a round trip", 50.0, 1.5),
    ]


async def _measure(api_url: str, rounds: int) -> list[Figure]:
    figures = await _opening(api_url, max(3, rounds // 20))
    client = make(Account(KEY, api_url, None, None))
    try:
        sandbox = await _sdk_open(client)
        async with hermes_exec.open(_backend(api_url), audit=False) as terminal:
            await terminal.run("true")
            figures += await _latency(terminal, sandbox, rounds)
            figures += await _files(terminal, sandbox)
        await sandbox.delete(timeout=60)
    finally:
        await client.close()
    return figures + await _far(api_url, max(5, rounds // 10))


def figures(rounds: int) -> list[Figure]:
    """Opening, latency near and far, and files up and down."""
    os.environ[_VARIABLE] = KEY
    paths = os.pathsep.join(str(_ROOT / name) for name in ("", "backends", "policies", "agent"))
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.rigs.daytona_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        return asyncio.run(_measure(server.stdout.readline().strip(), rounds))
    finally:
        server.stdin.close()
        server.wait()
