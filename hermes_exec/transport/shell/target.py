"""The target as the shell transport uses it: its shell, and helper processes."""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, OutcomeUnknown, PlaceError, PlaceUnavailable
from hermes_exec.guest.core.wire import CHUNK, WINDOW
from hermes_exec.terminal.encoding import encode
from hermes_exec.transport.shell import scripts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Backend, Channel, Exit, Receiver

_SHELLS = ("sh", "/bin/sh", "/busybox/sh")
_PROBE_S = 60.0
_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class ScriptReply:
    """The result of a helper process whose channel was not lost."""

    exit: Exit
    stdout: bytes
    stderr: bytes

    @property
    def failure(self) -> str:
        """Return a readable reason of the failure."""
        how = f"signal {self.exit.signal}" if self.exit.code is None else f"exit code {self.exit.code}"
        said = self.stderr.decode("utf-8", "replace").strip()
        return f"{said[-300:]} ({how})" if said else how


class _Asked:
    def __init__(self) -> None:
        self.exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        self.stdout = bytearray()
        self.stderr = bytearray()

    def on_data(self, data: bytes, /) -> None:
        self.stdout += data

    def on_stderr(self, data: bytes, /) -> None:
        self.stderr += data

    def on_close(self, exit: Exit, /) -> None:
        if not self.exit.done():
            self.exit.set_result(exit)


async def run_helper(
    backend: Backend, argv: Sequence[str | bytes], data: bytes = b"", *, env: Mapping[str, str] | None = None
) -> ScriptReply:
    """Run a helper process with ``data`` as its input, to its end.

    Raises:
        PlaceUnavailable: it could not be started.
        OutcomeUnknown: the target was lost meanwhile.
    """
    asked = _Asked()
    channel = await backend.spawn(argv, asked, env=env)
    try:
        await send_all(channel, data)
        channel.write_eof()
        exit = await asked.exit
    except BaseException:
        channel.kill()
        raise
    if exit.lost:
        raise OutcomeUnknown(f"the target was lost ({exit.lost})")
    return ScriptReply(exit, bytes(asked.stdout), bytes(asked.stderr))


async def send_all(channel: Channel, data: bytes | memoryview) -> None:
    """Write ``data``, waiting while the target does not accept it."""
    view = memoryview(data)
    for start in range(0, len(view), CHUNK):
        channel.write(view[start : start + CHUNK])
        if channel.unsent > WINDOW:
            await channel.drain()


def encode_argument(data: bytes) -> str | bytes:
    """Return an argument as text if it is UTF-8, since some targets cannot pass other bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def resolve_path(path: bytes, base: bytes = b"") -> bytes:
    """Return ``path`` relative to ``base``, never read as an option or looked up elsewhere."""
    if not path or path.startswith(b"/"):
        return path or base
    return (base or b".") + b"/" + path


@dataclass(frozen=True, slots=True)
class ShellTarget:
    """The properties of a target that were found when it was opened."""

    backend: Backend
    env: Mapping[bytes, bytes]
    cwd: bytes
    shell: str
    """Path of ``sh``."""
    bash: str
    """Path of bash, or an empty string."""
    folder: str
    """Folder for long commands, or an empty string."""
    leads_session: bool
    """Whether a spawned process leads a session or a group of its own, or cannot be made to."""

    @classmethod
    async def probe(cls, backend: Backend, env: Mapping[str, str], cwd: str | None) -> ShellTarget:
        """Examine an opened target.

        Raises:
            PlaceUnavailable: no ``sh`` answers there.
        """
        reasons: list[str] = []
        for shell in _SHELLS:
            nonce = secrets.token_hex(16)
            try:
                async with asyncio.timeout(_PROBE_S):
                    reply = await run_helper(backend, [shell, "-c", scripts.PROBE, "sh", nonce], env=env)
            except TimeoutError:
                raise PlaceUnavailable(f"{shell} did not answer within {_PROBE_S:g} s") from None
            except HermesError as error:
                reasons.append(f"{shell}: {error.what}")
                continue
            if f"{nonce}\n".encode() in reply.stdout:
                lines = os.fsdecode(reply.stdout.partition(f"{nonce}\n".encode())[2]).splitlines()
                found = dict(line.split("=", 1) for line in lines if "=" in line)
                return cls._of(backend, env, cwd, shell, found)
            reasons.append(f"{shell}: {reply.failure}")
        raise PlaceUnavailable(
            f"no sh answers in the target ({'; '.join(reasons)})", remedy="use an image that has a shell"
        )

    @classmethod
    def _of(
        cls, backend: Backend, env: Mapping[str, str], cwd: str | None, shell: str, found: Mapping[str, str]
    ) -> ShellTarget:
        stat = ProcessStat.parse(os.fsencode(found.get("stat", "")))
        absolute = {name: path for name, path in found.items() if path.startswith("/")}
        return cls(
            backend=backend,
            env={encode(name): encode(value) for name, value in env.items()},
            cwd=resolve_path(encode(cwd)) if cwd else b"",
            shell=absolute.get("sh", shell),  # resolved now, so that a PATH of the command does not matter
            bash=absolute.get("bash", ""),
            folder=absolute.get("folder", ""),
            leads_session=stat is None or stat.leads_group or not found.get("setsid"),
        )

    async def spawn(self, argv: Sequence[str | bytes], receiver: Receiver, env: Mapping[bytes, bytes]) -> Channel:
        """Start a command of the caller's, leading a session of its own."""
        words = argv if self.leads_session else [self.shell, "-c", scripts.LEAD, "sh", *argv]
        named = {os.fsdecode(name): os.fsdecode(value) for name, value in env.items()}
        return await self.backend.spawn(words, receiver, env=named)

    async def run_script(self, text: str, *parameters: str | bytes, data: bytes = b"") -> ScriptReply:
        """Run one of the scripts in ``scripts``."""
        return await run_helper(self.backend, [self.shell, "-c", text, "sh", *parameters], data)

    async def signal_tree(self, signal: str, known: Sequence[str]) -> list[str]:
        """Signal processes and their trees; return the live ones, each as ``PID:START``.

        For ``KILL`` these are the ones that survived it, for any other signal the ones that got it.

        Raises:
            PlaceError: it is unknown whether they were signalled.
        """
        try:
            async with asyncio.timeout(_ANSWER_S):
                reply = await self.run_script(scripts.SIGNAL_TREE, signal, *known)
        except TimeoutError:
            raise PlaceUnavailable(f"the target did not answer within {_ANSWER_S:g} s") from None
        if reply.exit.code != 0:
            raise PlaceError(f"the processes cannot be listed: {reply.failure}")
        return reply.stdout.decode("ascii", "replace").split()


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of ``/proc/PID/stat`` of a process."""

    pid: int
    group: int
    start: int
    """Start time in clock ticks since boot; with the pid it identifies a process permanently."""

    @classmethod
    def parse(cls, line: bytes) -> ProcessStat | None:
        """Parse a line of ``stat``; return None where there is no ``/proc``."""
        pid, _, rest = line.partition(b" ")
        fields = rest.rpartition(b") ")[2].split()
        try:
            return cls(int(pid), int(fields[2]), int(fields[19]))
        except (ValueError, IndexError):
            return None

    @property
    def leads_group(self) -> bool:
        """Whether it leads its process group."""
        return self.group == self.pid

    def __str__(self) -> str:
        """Return the form that ``signal_tree`` accepts."""
        return f"{self.pid}:{self.start}"
