"""A copy of a target's files as they are at one moment, for a short time; the target continues meanwhile."""

from __future__ import annotations

import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes_exec._async import create_or_rollback
from hermes_exec.backend import SupportsCopies
from hermes_exec.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec.terminal.terminal import Terminal


REPOSITORY = "hermes-exec-copy"
"""The names of snapshots begin with it, so that those of killed processes are found."""


class TargetCopy:
    """A snapshot that ``open`` starts a target from, until ``remove``."""

    def __init__(self, backend: SupportsCopies, snapshot: str) -> None:
        self._backend = backend
        self._snapshot = snapshot

    @classmethod
    async def take(cls, terminal: Terminal) -> TargetCopy:
        """Save the files of a target, without those that are mounted into it.

        Raises:
            Unsupported: the target has no snapshots, or none that take seconds.
            PlaceUnavailable: it could not be saved; nothing is left of it.
        """
        backend = terminal._backend  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  hidden from programs
        if not isinstance(backend, SupportsCopies):
            raise Unsupported("the target has no snapshots that can be taken for a moment")
        await backend.check_copies()
        name = f"{REPOSITORY}:{secrets.token_hex(8)}"
        return cls(backend, await create_or_rollback(backend.snapshot(name), backend.remove_snapshot))

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Terminal]:
        """Open the copy with the limits of the target.

        Raises:
            HermesError: it cannot be opened.
        """
        from hermes_exec.terminal.opening import open as open_terminal

        async with await open_terminal(self._backend.create_copy(self._snapshot), audit=False) as terminal:
            yield terminal

    async def remove(self) -> None:
        """Remove the snapshot.

        Raises:
            HermesError: it remains.
        """
        await self._backend.remove_snapshot(self._snapshot)
