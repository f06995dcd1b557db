"""Who uses the connections to a host: terminals share them, and the last one to go closes."""

from __future__ import annotations

import asyncio
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from hermes_exec.extras import require

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from hermes_exec.backend import Channel, Receiver
    from hermes_exec_backends.profiles.ssh import SshProfile

_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, Shared]] = weakref.WeakKeyDictionary()


class Shared(ABC):
    """A way to a host, used by as many terminals as like."""

    def __init__(self) -> None:
        self.users = 0

    @property
    def far(self) -> bool:
        """See ``Backend.far``; false where nobody knows."""
        return False

    @abstractmethod
    async def connect(self) -> None:
        """See that there is a connection, asking a person where there is one to be asked; see ``Backend.open``."""

    @abstractmethod
    async def spawn(
        self,
        argv: Sequence[str | bytes],
        receiver: Receiver,
        env: Mapping[str, str] | None,
        setup: Sequence[str],
        patience_s: float,
    ) -> Channel:
        """Start words on the host, after ``setup``, on a new connection if there is none that works.

        When only a person could log in again, wait at most ``patience_s`` until somebody has: nothing is
        tried meanwhile.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close what was opened."""


async def join(profile: SshProfile) -> Shared:
    """Become a user of the way to the profile's host, on this loop.

    Raises:
        ConfigError: the OpenSSH client's files make no sense.
        MissingExtra: paramiko is not installed.
    """
    new: Shared
    if profile.transport == "openssh":
        from hermes_exec_backends.ssh.openssh import Master, arguments

        words = arguments(profile)
        key: Hashable = (profile.host, words)
        new = Master(profile.host, words)
    else:
        require("ssh", "ssh")
        from hermes_exec_backends.ssh.host import resolve
        from hermes_exec_backends.ssh.paramiko_connections import Connections

        key = host = await asyncio.get_running_loop().run_in_executor(None, resolve, profile)
        new = Connections(host)
    shared = _loops.setdefault(asyncio.get_running_loop(), {}).setdefault(key, new)
    shared.users += 1
    return shared


async def leave(shared: Shared) -> None:
    """Stop being one; the last one closes."""
    shared.users -= 1
    if shared.users == 0:
        ways = _loops.get(asyncio.get_running_loop(), {})
        for key in [key for key, way in ways.items() if way is shared]:
            del ways[key]
        await shared.close()
