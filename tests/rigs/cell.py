"""An isolated place in which the server of a rig really executes commands: namespaces made by bubblewrap.

A cell has a root of its own, of which everything but the system's programs can be written, a table of processes that
all its commands share, and a network or none. Its first process (``cell_init``) starts what it is told to; with that
process everything in the cell ends. The writable part is a plain folder, so it can be copied, and started from again.

    async with Cell(folder) as cell:
        process = await cell.exec(["sh", "-c", "echo $HOME"])
        code, out, err = await process.communicate()

Use one on the loop of one thread, which has to outlive it: the kernel ends the cell with the thread that started it.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.rigs import cell_root
from tests.rigs.bounded import PATIENCE_S
from tests.rigs.cell_process import Process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_INIT = Path(__file__).with_name("cell_init.py")
_CHILDLESS = Path(__file__).with_name("cell_childless.py")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENV = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8"}
_FDS = 8


class CellError(Exception):
    """A cell could not be started, or ended while it was asked for something."""


class Cell:
    """A cell in ``folder``, which is made when it is missing; what was written there by an earlier one is kept.

    ``base`` is a snapshot to begin with, ``network`` whether this machine's can be reached, ``volumes`` are folders
    of this machine by where they appear, and ``seccomp`` is a BPF program that everything in the cell lives under.
    With ``childless`` no file in /proc tells the children of a process.
    """

    def __init__(
        self,
        folder: Path,
        *,
        base: Path | None = None,
        network: bool = True,
        volumes: Mapping[str, Path] | None = None,
        env: Mapping[str, str] | None = None,
        hostname: str = "cell",
        seccomp: bytes = b"",
        childless: bool = False,
    ) -> None:
        self.root = folder / "root"
        self.env = {**_ENV, **(env or {})}
        self.ended = asyncio.Event()
        """Set once nothing runs in there any more, whatever ended it."""
        self._base = base
        self._network = network
        self._volumes = dict(volumes or {})
        self._hostname = hostname
        self._seccomp = seccomp
        self._childless = childless
        self._bwrap: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._control: socket.socket | None = None
        self._next = 0
        self._answers: dict[int, asyncio.Future[tuple[dict[str, Any], list[int]]]] = {}
        self._processes: dict[int, Process] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.terminate()

    @property
    def alive(self) -> bool:
        """Whether it was started, and has not ended."""
        return self._control is not None and not self.ended.is_set()

    async def start(self) -> None:
        """Start it, with what is in its folder.

        Raises:
            CellError: it does not start here.
        """
        assert not self.alive
        if not self.root.exists():
            await asyncio.to_thread(cell_root.furnish, self.root, self._base)
        self.ended.clear()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        told, telling = os.pipe()
        filters = _file(self._seccomp) if self._seccomp else -1
        try:
            words = self._words(theirs.fileno(), telling, filters)
            passed = [fd for fd in (theirs.fileno(), telling, filters) if fd >= 0]
            self._bwrap = subprocess.Popen(  # noqa: ASYNC220  the kernel ties it to this very thread
                words, stdin=subprocess.DEVNULL, pass_fds=passed, env={}
            )
        finally:
            theirs.close()
            os.close(telling)
            if filters >= 0:
                os.close(filters)
        with os.fdopen(told, "rb") as information:
            said = await asyncio.to_thread(information.read)
        if not said:
            ours.close()
            raise CellError(f"bubblewrap ended with {self._bwrap.wait(PATIENCE_S)}")
        self._init = int(json.loads(said)["child-pid"])
        self._control = ours
        asyncio.get_running_loop().add_reader(ours, self._readable)

    def _words(self, control: int, telling: int, filters: int) -> list[str]:
        words = ["bwrap", "--info-fd", str(telling), "--hostname", self._hostname, *cell_root.words(self.root)]
        if not self._network:
            words.append("--unshare-net")
        if filters >= 0:
            words += ["--seccomp", str(filters)]
        for inside, outside in self._volumes.items():
            words += ["--bind", str(outside), inside]
        scripts = [_CHILDLESS, _INIT] if self._childless else [_INIT]
        for script in scripts:
            words += ["--ro-bind", str(script), f"/run/{script.name}"]
        started = [word for script in scripts for word in (cell_root.PYTHON, "-IS", f"/run/{script.name}")]
        return [*words, "--chdir", "/", *started, str(control)]

    async def exec(
        self,
        argv: Sequence[str | bytes],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "/root",
        pty: tuple[int, int] | None = None,
    ) -> Process:
        """Start ``argv``, with pipes for its streams or a terminal of so many (rows, columns).

        ``env`` is added to the cell's own variables.

        Raises:
            OSError: the program cannot be started, as the kernel says it.
            CellError: the cell has ended.
        """
        variables = {**self.env, **(env or {})}
        words = [_text(word) for word in argv]
        spec = _file(json.dumps([*words, *(f"{k}={v}" for k, v in variables.items())]).encode())
        process, theirs = Process.prepare(self, pty)
        number = self._number()
        self._processes[number] = process
        try:
            request = {"do": "exec", "argc": len(words), "cwd": cwd, "pty": pty is not None}
            answer, _ = await self._ask(number, request, [spec, *theirs])
        except BaseException:
            self._processes.pop(number, None)
            process.close()
            raise
        finally:
            for fd in {spec, *theirs}:
                os.close(fd)
        process.number, process.pid = number, int(answer["pid"])
        return process

    async def signal(self, process: Process, number: int) -> None:
        """Send a signal to a process of this cell, if it is still there."""
        await self._ask(self._number(), {"do": "kill", "exec": process.number, "signal": number})

    async def connect(self, port: int) -> socket.socket:
        """A connection to a port on which something listens in the cell, whichever network it has.

        Raises:
            OSError: nothing does.
        """
        _, (fd,) = await self._ask(self._number(), {"do": "connect", "port": port})
        made = socket.socket(fileno=fd)
        made.setblocking(False)
        return made

    async def snapshot(self, path: Path) -> None:
        """Copy what was written in the cell to the new folder ``path``, a ``base`` for others."""
        await asyncio.to_thread(cell_root.copy, self.root, path)

    async def terminate(self) -> None:
        """Kill everything in it, and return when nothing runs any more; what was written stays. Safe to call twice."""
        if self._bwrap is not None:
            # The first process, of which the kernel knows that all the others go with it before it is collected.
            if self._bwrap.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._init or self._bwrap.pid, 9)  # it dies with bwrap, while its number is not known
            await asyncio.to_thread(self._bwrap.wait)
            self._end()

    def _number(self) -> int:
        self._next += 1
        return self._next

    async def _ask(
        self, number: int, request: dict[str, Any], fds: Sequence[int] = ()
    ) -> tuple[dict[str, Any], list[int]]:
        if self._control is None:
            raise CellError("the cell has ended")
        waiting = self._answers[number] = asyncio.get_running_loop().create_future()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self._control.sendmsg([json.dumps({"id": number, **request}).encode()], rights)
        except OSError as error:
            raise CellError("the cell has ended") from error
        answer, passed = await waiting
        if "error" in answer:
            code, name = answer["error"]
            raise OSError(code, os.strerror(code), name)
        return answer, passed

    def _readable(self) -> None:
        assert self._control is not None
        try:
            flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            data, ancillary, _, _ = self._control.recvmsg(65536, socket.CMSG_SPACE(_FDS * 4), flags)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._end()
            return
        fds = array.array("i")
        for _, _, content in ancillary:
            fds.frombytes(content)
        answer = json.loads(data)
        if "code" in answer:
            self._processes.pop(answer["id"]).on_exit(answer["code"])
        else:
            self._answers.pop(answer["id"]).set_result((answer, list(fds)))

    def _end(self) -> None:
        control, self._control = self._control, None
        if control is None:
            return
        asyncio.get_running_loop().remove_reader(control)
        control.close()
        for waiting in self._answers.values():
            waiting.set_exception(CellError("the cell has ended"))
        for process in self._processes.values():
            process.on_exit(-9)
        self._answers.clear()
        self._processes.clear()
        self.ended.set()


def _text(word: str | bytes) -> str:
    return word.decode("utf-8", "surrogateescape") if isinstance(word, bytes) else word


def _file(content: bytes) -> int:
    """A file without a name, at its beginning."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return os.dup(file.fileno())
