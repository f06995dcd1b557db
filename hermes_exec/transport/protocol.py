"""What the Terminal needs of the way to a place: a carrier starts commands and says what it can do.

Two exist: the guest's (``hermes_exec.transport``), which keeps every promise, and the plain one
(``hermes_exec.transport.shell``) for places without a Python, where each command is a process of its own.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from hermes_exec.transport.link import Link


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Refuse to go on when another loop than ``loop`` runs: whoever waits there would never be told.

    Raises:
        UsageError: another one runs; nothing was sent.
    """
    if asyncio._get_running_loop() not in {loop, None}:  # noqa: SLF001  meant for makers of event loops; None is nobody's
        raise UsageError(
            "the terminal belongs to the event loop that it was opened on, and this is another one",
            remedy="open one here, or hermes_exec.sync, whose terminals any number of threads may share",
        )


class Running(Protocol):
    """One command under way."""

    number: int

    async def result(self) -> dict[str, Any]:
        """Wait for its answer (docs/protocol.md). A cancelled wait ends the command, and waits for that."""
        ...

    async def write(self, data: bytes, /) -> None:
        """Send standard input; waits while the command does not read."""

    def write_eof(self) -> None:
        """Standard input ends here."""

    def consumed(self, channel: int, count: int, /) -> None:
        """So many more bytes of a stream are used up."""

    def cancel(self) -> None:
        """End it, with all that it started."""

    async def settle(self) -> None:
        """Return when it is answered, or when the place is out of reach; raises what ``result`` raises."""

    async def end(self) -> None:
        """``cancel``, and return when it is gone, or when nobody can tell because the place is out of reach."""


class Sink(Protocol):
    """Takes the output of a command as it comes, on the event loop's thread."""

    def feed(self, call: Running, channel: int, data: bytes, /) -> None:
        """Take bytes; whoever has used them up says so by ``consumed``."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What holds in one place. Each name is a promise of docs/promises.md."""

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
    """A broken connection is replaced, and nothing runs twice, is lost or repeated."""
    kill_tree: bool
    """A timeout ends every process that the command started, also after ``setsid``."""
    limits: bool
    """Memory, CPU, processes, file size and open files can be limited."""
    background: bool = True
    """A child in the background that holds a command's outputs does not hold up its result."""
    features: frozenset[str] = frozenset()
    """What this place adds: ``snapshot``, ``suspend``, ``keep``, and ``gpu`` where its profile asked for one."""


@runtime_checkable
class FileCarrier(Protocol):
    """A carrier that reads and writes whole files itself, where there is no guest to do it."""

    async def read(self, path: str | bytes | os.PathLike[str]) -> bytes:
        """The content of a file."""
        ...

    async def write(self, path: str | bytes | os.PathLike[str], data: bytes) -> None:
        """Give a file a new content, at once."""


class Carrier(Protocol):
    """Starts commands in an opened place."""

    link: Link | None
    """The guest's link, for what only a guest can do; None on a plain carrier."""

    @property
    def capabilities(self) -> Capabilities:
        """What holds here."""
        ...

    def start(self, operation: str, arguments: Mapping[str, Any], sink: Sink, /) -> Running:
        """Start ``exec``, ``run`` or ``session`` (docs/protocol.md)."""
        ...

    async def close(self) -> None:
        """End everything that was started, but jobs."""
