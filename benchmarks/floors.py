"""Prototypes that do nothing but what cannot be left out: the floors beside the bars that a design or a vendor sets.

None of them has time limits, reconnection, bounded output, errors, or a second command at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shlex
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.sandbox import BARE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

RELAY = r"""
import ctypes, os, select, subprocess, sys, tempfile
folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
os.mkdir(folder + "/s")
os.mkfifo(folder + "/in")
commands = os.open(folder + "/in", os.O_RDWR)
libc = ctypes.CDLL(None)
statuses = libc.inotify_init1(os.O_NONBLOCK)
libc.inotify_add_watch(statuses, (folder + "/s").encode(), 8)
loop = 'while >|"@/s/$?"; IFS= read -r -d "" H <@/in; do eval ">|@/b;$H"; done'.replace("@", folder)
output, theirs = os.pipe()
os.set_blocking(output, False)
bash = subprocess.Popen(["bash", "-c", loop], stdin=subprocess.DEVNULL, stdout=theirs)
poll = select.epoll()
poll.register(0, select.EPOLLIN)
poll.register(statuses, select.EPOLLIN)
while True:
    for fd, _ in poll.poll():
        data = os.read(fd, 65536)
        if fd == 0 and not data:
            bash.kill()
            bash.wait()
            subprocess.call(["rm", "-r", folder])
            sys.exit()
        if fd == 0:
            os.write(commands, data)
            continue
        try:
            data = os.read(output, 65536)
        except BlockingIOError:
            data = b""
        os.write(1, data + b"\0")
"""
"""A process in the target between a stream and a live bash.

A command ends with NUL, and so does its output. As in a session of ours, nothing of the machinery is in reach of a
command: bash reports that one began, and its status, by opening files, and inotify(7) reports that to the relay.
"""
PYTHON = r"""
import os
os.write(1, b"\0")
os.read(0, 1)
os.spawnv(os.P_WAIT, "/bin/true", ["true"])
os.write(1, b"\0")
"""
"""A process in the target that starts one program when it is asked to."""
CHECKER = r"""
import hashlib, os, sys
os.write(1, b"\0")
for line in sys.stdin.buffer:
    path = line[:-1]
    digest = hashlib.sha256()
    with open(path, "rb", 0) as file:
        room = memoryview(bytearray(1 << 20))
        while True:
            count = file.readinto(room)
            if not count:
                break
            digest.update(room[:count])
    if path.endswith(b".new"):
        os.rename(path, path[:-4])
    os.write(1, digest.hexdigest().encode() + b"\0")
"""
"""A process in the target that hashes a file for each line, and gives a new one its name."""
REQUEST = r"""
import asyncio, os, ssl
import httpx2
async def ask():
    options = {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "trust_env": False}
    async with httpx2.AsyncClient(**options) as client:
        body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "work"}]}
        async with client.stream("POST", os.environ["LLM_BASE_URL"] + "/chat/completions", json=body) as response:
            async for _ in response.aiter_bytes():
                pass
asyncio.run(ask())
"""
"""A program that sends one request by the client of the agent, and reads the reply."""
EDITOR = r"""
import asyncio
from prompt_toolkit import PromptSession
async def ask():
    session = PromptSession(multiline=True, bottom_toolbar=lambda: "m in local")
    await session.prompt_async("you> ")
try:
    asyncio.run(ask())
except EOFError:
    pass
"""
"""A program that reads a line by the line editor of the chat."""
_READ = 256 << 10


def remote(text: str) -> list[str]:
    """The argv of one of these processes."""
    return ["python3", "-ISc", text]


class LiveBash:
    """The relay and its bash on this machine, at the other end of a socket."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self._relay = subprocess.Popen(
                [sys.executable, "-ISc", RELAY],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                start_new_session=True,  # out of reach of a terminal's signals; the kernel then schedules it apart
            )
        self.socket.recv(1)

    def run(self, command: bytes) -> None:
        """Run one command by the calling thread."""
        self.socket.sendall(command + b"\0")
        while not self.socket.recv(65536).endswith(b"\0"):
            pass

    async def run_async(self, command: bytes) -> None:
        """Run one command by the event loop."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        fd = self.socket.fileno()

        def read() -> None:
            if os.read(fd, 65536).endswith(b"\0"):
                done.set_result(None)

        loop.add_reader(fd, read)
        os.write(fd, command + b"\0")
        await done
        loop.remove_reader(fd)

    def close(self) -> None:
        """End the relay and bash."""
        self.socket.close()
        self._relay.wait(timeout=20)


@contextlib.contextmanager
def live_bash() -> Generator[LiveBash]:
    """A live bash behind a relay."""
    bash = LiveBash()
    try:
        yield bash
    finally:
        bash.close()


async def read_pipe(argv: list[str], size: int) -> float:
    """Bytes a second that an event loop reads from a pipe of 1 MiB, each piece awaited by a task."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    begin = time.perf_counter()
    options: Any = {"stdout": subprocess.PIPE, "pipesize": 1 << 20, "start_new_session": True}
    with subprocess.Popen(argv, **options) as process:  # noqa: ASYNC220  it is measured
        assert process.stdout is not None
        fd = process.stdout.fileno()
        loop.add_reader(fd, lambda: pieces.put_nowait(os.read(fd, _READ)))
        while await pieces.get():
            pass
        loop.remove_reader(fd)
    return size / (time.perf_counter() - begin)


async def move_up(
    move: Callable[[str], Awaitable[object]], check: Callable[[str], Awaitable[str]], data: bytes
) -> None:
    """Move content by the vendor's call under another name, compare its hash, and let it get its name."""
    digest = hashlib.sha256()
    hashing = asyncio.ensure_future(asyncio.to_thread(digest.update, data))
    await move("/srv/floor.new")
    there = await check("/srv/floor.new")
    await hashing
    if there != digest.hexdigest():
        raise AssertionError("the content differs")


async def move_down(move: Callable[[str], Awaitable[bytes]], check: Callable[[str], Awaitable[str]]) -> None:
    """Move a file by the vendor's call, and compare its hash."""
    checking = asyncio.ensure_future(check("/srv/floor"))
    digest = hashlib.sha256(await move("/srv/floor"))
    if await checking != digest.hexdigest():
        raise AssertionError("the content differs")


async def held_sandbox() -> None:
    """A bare bwrap whose Python loads what a launcher needs, forks, waits for a word, and becomes the program."""
    program = "import ctypes, json, marshal, os, sys; child = os.fork(); child and os.waitpid(child, 0); os.read(0, 2)"
    at = BARE.index("/usr/bin/python3")
    process = await asyncio.create_subprocess_exec(
        *BARE[:at], "/usr/bin/python3", "-ISc", program, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    await process.communicate(b"go")


def remote_text(text: str) -> str:
    """The command line of one of these processes."""
    return shlex.join(remote(text))
