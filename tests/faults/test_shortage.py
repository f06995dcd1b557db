"""Where no descriptor, process or memory is left, a command runs or is refused."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec.guest.process import runner
from hermes_exec.terminal.limits import Enforcer, Limits
from hermes_exec_backends.local import LocalBackend
from tests.conftest import require_part

if TYPE_CHECKING:
    from pathlib import Path

CROWD = r"""
import asyncio, json, resource, sys
import hermes_exec
from hermes_exec.errors import PlaceError
from hermes_exec_backends.local import LocalBackend

descriptors, file = int(sys.argv[1]), sys.argv[2]
if descriptors:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
WORDS = ["sh", "-c", 'echo ran >> "$0"; exec sleep 0.3', file]
COUNT = 60

async def run(terminal):
    return (await terminal.run(WORDS)).exit_code

async def text(terminal):
    session = await terminal.session()
    return (await session.run(f"echo ran >> {file}")).exit_code

async def job(terminal):
    return (await (await terminal.start(WORDS)).wait()).exit_code

async def pty(terminal):
    return (await (await terminal.pty(WORDS)).wait()).exit_code

async def outcome(started):
    try:
        return await started
    except PlaceError as error:
        assert "nothing ran" in str(error.state), error
        assert error.remedy.startswith("ulimit "), error
        return "refused"

async def descriptors_of_guest(terminal):
    look = 'ls /proc/$(cut -d" " -f4 /proc/$PPID/stat)/fd | wc -l'
    return int((await terminal.run(["sh", "-c", look], check=True)).stdout)

async def main():
    told = []
    for start in (run, text, job, pty):
        async with hermes_exec.open(LocalBackend(), audit=False) as terminal:
            await terminal.run(["true"])
            before = await descriptors_of_guest(terminal)
            outcomes = await asyncio.gather(*(outcome(start(terminal)) for _ in range(COUNT)))
            if start is run:
                assert await descriptors_of_guest(terminal) <= before + 4  # runners are kept
        told.append([start.__name__, outcomes.count(0), outcomes.count("refused"), COUNT])
    print(json.dumps(told))

asyncio.run(main())
"""


async def crowd(file: Path, descriptors: int = 0, limits: Limits | None = None) -> None:
    """Start many at once below these limits, and compare what is told with what has run."""
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "XDG_STATE_HOME": str(file.parent)}
    argv = [sys.executable, "-c", CROWD, str(descriptors), str(file)]
    async with hermes_exec.open(LocalBackend(), audit=False) as terminal:
        if limits is not None:
            held = (await terminal.limits()).processes is not Enforcer.NONE
            require_part("a bound on processes", "a control group, or an ordinary user", usable=held)
        result = await terminal.run(argv, env=path, limits=limits)
    assert (result.exit_code, result.stderr_text) == (0, "")
    told: list[tuple[str, int, int, int]] = json.loads(result.stdout)
    for name, ran, refused, count in told:
        assert (name, ran + refused) == (name, count)
        assert ran, name
        assert refused, name
    assert len(file.read_text().splitlines()) == sum(ran for _, ran, _, _ in told)


@pytest.mark.parametrize("descriptors", [62, 63, 64])  # each command takes three
def test_without_descriptors_what_is_not_refused_has_run(tmp_path: Path, descriptors: int) -> None:
    asyncio.run(crowd(tmp_path / "file", descriptors))


def test_without_processes_what_is_not_refused_has_run(tmp_path: Path) -> None:
    asyncio.run(crowd(tmp_path / "file", limits=Limits(processes=30)))


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
@pytest.mark.parametrize("call", ["chdir", "posix_spawn"])
def test_a_runner_tells_a_shortage_from_a_program_or_a_folder(
    monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    ours, theirs = socket.socketpair()
    fds = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
    spec: dict[str, Any] = {"argv": [b"/bin/true"], "cwd": os.fsencode(os.getcwd()), "env": {}}
    with ours, theirs:
        runner._run(theirs, spec, fds, {})  # pyright: ignore[reportPrivateUsage]  no runner is forked
        assert runner.REPLY.unpack(ours.recv(64)) == (runner.NO_ROOM, 0, code)
