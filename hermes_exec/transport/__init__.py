"""Transports: how commands reach a target.

Two implementations exist. The guest's (``link``) keeps every promise of docs/promises.md. The shell's
(``hermes_exec.transport.shell``) serves targets without a Python, and starts one process for each command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import Capabilities, RunningCommand, Sink


class Transport(Protocol):
    """Starts commands in an open target."""

    link: Link | None
    """The link to the guest, for operations that need one; None on a shell transport."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of this target through this transport."""
        ...

    def start(self, operation: str, arguments: Mapping[str, Any], sink: Sink, /) -> RunningCommand:
        """Start ``exec``, ``run`` or ``session`` (docs/protocol.md)."""
        ...

    async def close(self) -> None:
        """End everything that was started, except jobs."""


@runtime_checkable
class FileTransport(Protocol):
    """A transport that reads and writes whole files itself, without a guest."""

    async def read(self, path: str | bytes | os.PathLike[str]) -> bytes:
        """Return the content of a file."""
        ...

    async def write(self, path: str | bytes | os.PathLike[str], data: bytes) -> None:
        """Replace the content of a file atomically."""
