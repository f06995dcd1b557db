"""Protocols and data types that both transports share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    import asyncio


def wrong_loop() -> UsageError:
    """Return the error for a call on another event loop than the one that the terminal was opened on."""
    return UsageError(
        "the terminal belongs to the event loop that it was opened on, and this is another one",
        remedy="open one here, or hermes_exec.sync, whose terminals any number of threads may share",
    )


class RunningCommand(Protocol):
    """A command that was started."""

    number: int

    async def result(self) -> dict[str, Any]:
        """Wait for the answer (docs/protocol.md). Cancelling the wait ends the command first."""
        ...

    async def write(self, data: bytes, /) -> None:
        """Send standard input; wait while the command does not read."""

    def write_eof(self) -> None:
        """End standard input."""

    def acknowledge(self, channel: int, count: int, /) -> None:
        """Acknowledge ``count`` more bytes of a stream, so that the command may send as many more."""

    def cancel(self) -> None:
        """End the command with its whole process tree."""

    async def settle(self) -> None:
        """Return when the answer is there or the target is out of reach; raise what ``result`` raises."""

    async def end(self) -> None:
        """Call ``cancel``, and return when the command is gone or the target is out of reach."""


class Sink(Protocol):
    """Receives the output of a command as it arrives, on the event loop's thread."""

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        """Take bytes of a stream. The receiver acknowledges them through ``call``."""


class GuestLink(Protocol):
    """The part of a link that its calls and connections use."""

    loop: asyncio.AbstractEventLoop
    checksum: bool
    damaged_connections: int

    @property
    def connected(self) -> bool:
        """Whether the link has a channel now."""
        ...

    def send(self, *frames: bytes, data: bytes | memoryview = b"") -> None:
        """Write frames, the last one with ``data``; dropped while the link is down."""

    async def drain(self) -> None:
        """Wait until the send buffer has room."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of an open target. Each field is a promise of docs/promises.md."""

    carrier: str
    """``guest`` or ``plain``."""
    sessions: bool
    """Live shells whose state persists."""
    jobs: bool
    """Commands that survive a disconnect and the orchestrator's end."""
    pty: bool
    """Interactive programs."""
    file_transfer: bool
    """Trees, sync and atomic writes; without it only whole files are read and written."""
    forward: bool
    """TCP and unix sockets in both directions."""
    reconnect: bool
    """A broken connection is replaced, and no command runs twice, no byte is lost or repeated."""
    kill_tree: bool
    """A timeout ends every process that the command started, also after ``setsid``."""
    limits: bool
    """Memory, CPU, processes, file size and open files can be limited."""
    background: bool = True
    """A background child that holds a command's outputs open does not delay the result."""
    features: frozenset[str] = frozenset()
    """Features of the target: ``snapshot``, ``suspend``, ``keep``, and ``gpu`` where its profile asked for one."""
