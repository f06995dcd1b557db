"""Parts of the guest that are sent on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec.guest.core import wire
from hermes_exec.transport import bootstrap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_OUTLIVE = {"jobs", "pty"}


class GuestModules:
    """The parts that the guest has loaded, and those that this client needs."""

    def __init__(self, send: Callable[[bytes], None], kind: bootstrap.Kind) -> None:
        self._send = send
        self._kind: bootstrap.Kind = kind
        self._there: set[str] = set()
        self._needed: dict[str, None] = {}  # in this order: later ones import from earlier ones

    @property
    def may_outlive_client(self) -> bool:
        """Whether jobs or PTYs may have been started, which keep running without this client."""
        return not _OUTLIVE.isdisjoint(self._needed)

    def load(self, part: str) -> None:
        """Send a part, unless the guest has it."""
        self._needed[part] = None
        if part not in self._there:
            self._there.add(part)
            self._send(self._frame(part))

    def _frame(self, part: str) -> bytes:
        return wire.frame(wire.LOAD, 0, 0, bootstrap.part_payload(part, self._kind))

    def initial_frames(self) -> list[bytes]:
        """Return the frames that a new guest gets after its core."""
        self._needed[bootstrap.WORK] = None
        return [self._frame(bootstrap.WORK)]

    def set_loaded(self, parts: Iterable[str]) -> None:
        """Record the parts that the guest reports in WELCOME."""
        self._there = set(parts)

    def resend(self) -> None:
        """Send the needed parts again on a new connection, as the last one may have lost them."""
        for part in self._needed:
            self.load(part)
