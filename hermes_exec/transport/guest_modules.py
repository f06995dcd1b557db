"""The parts of the guest that are sent on first use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hermes_exec.guest.core import wire
from hermes_exec.transport import bootstrap
from hermes_exec.transport.protocol import check_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_OUTLIVE = {"jobs", "pty"}


class Parts:
    """Which parts the guest has, and which of them we rely on."""

    def __init__(self, send: Callable[[bytes], None], kind: bootstrap.Kind) -> None:
        self._loop = asyncio.get_running_loop()
        self._send = send
        self._kind: bootstrap.Kind = kind
        self._there: set[str] = set()
        self._needed: dict[str, None] = {}  # in their order: later ones import from earlier ones

    @property
    def outlive(self) -> bool:
        """Whether something was started, or may have been, that goes on without us."""
        return not _OUTLIVE.isdisjoint(self._needed)

    def need(self, part: str) -> None:
        """Send a part, unless it is there."""
        check_loop(self._loop)
        self._needed[part] = None
        if part not in self._there:
            self._there.add(part)
            self._send(self._frame(part))

    def _frame(self, part: str) -> bytes:
        return wire.frame(wire.LOAD, 0, 0, bootstrap.part(part, self._kind))

    def first(self) -> list[bytes]:
        """What a new guest is sent behind its core."""
        self._needed[bootstrap.WORK] = None
        return [self._frame(bootstrap.WORK)]

    def told(self, parts: Iterable[str]) -> None:
        """The guest says what it has."""
        self._there = set(parts)

    def resume(self) -> None:
        """A new connection: some may have been lost on their way, the first one too."""
        for part in self._needed:
            self.need(part)
