"""Connections to hosts, shared by terminals: the last user closes a connection."""

from __future__ import annotations

import asyncio
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from hermes_exec.backend import Channel, Receiver

_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, SharedConnection]] = (
    weakref.WeakKeyDictionary()
)


class SharedConnection(ABC):
    """A connection to a host, or several, shared by terminals."""

    def __init__(self) -> None:
        self.users = 0

    @property
    def far(self) -> bool:
        """Return the trait ``high_latency``; false where it is unknown."""
        return False

    @abstractmethod
    async def connect(self) -> None:
        """Connect, with questions to the user at a terminal if necessary; see ``Backend.open``."""

    @abstractmethod
    async def spawn(
        self,
        argv: Sequence[str | bytes],
        receiver: Receiver,
        env: Mapping[str, str] | None,
        setup: Sequence[str],
        patience_s: float,
    ) -> Channel:
        """Start ``argv`` on the host, after the lines of ``setup``, on a new connection unless one works.

        Where logging in again needs a person, wait at most ``patience_s`` for that login, without an attempt.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""


def join(key: Hashable, create: Callable[[], SharedConnection]) -> SharedConnection:
    """Return the connection of this event loop for ``key``, created unless there is one, and count one more user."""
    connections = _loops.setdefault(asyncio.get_running_loop(), {})
    shared = connections[key] if key in connections else connections.setdefault(key, create())
    shared.users += 1
    return shared


async def leave(shared: SharedConnection) -> None:
    """Count one user less; close the connection after the last one."""
    shared.users -= 1
    if shared.users == 0:
        connections = _loops.get(asyncio.get_running_loop(), {})
        for key in [key for key, each in connections.items() if each is shared]:
            del connections[key]
        await shared.close()
