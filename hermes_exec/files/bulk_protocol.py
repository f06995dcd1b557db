"""Bulk transfer: the protocols of a backend that moves whole files by its vendor's own calls, faster than the link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class _Fetcher(Protocol):
    """Reads files of the target by the vendor's calls. Every failure raises a HermesError or an OSError."""

    piece: int
    """The most bytes that it takes at once."""

    def fetch(self, path: str, /) -> AsyncIterator[bytes]:
        """Yield the content of a file as it arrives."""
        ...


@runtime_checkable
class PieceMover(_Fetcher, Protocol):
    """Creates whole files in the target."""

    async def put(self, path: str, data: bytes, /) -> None:
        """Create a file with this content."""


@runtime_checkable
class PipeMover(_Fetcher, Protocol):
    """Has a byte stream of its own into the target."""

    async def pour(self, path: str, pieces: AsyncIterator[bytes | memoryview], /) -> None:
        """Write all pieces into the named pipe at ``path``."""


Mover = PieceMover | PipeMover
