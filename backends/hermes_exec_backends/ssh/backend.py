"""Run commands on a host over SSH.

Terminals of the same host share one connection. ``launch`` writes the command line that starts a program there.
"""

from __future__ import annotations

import asyncio
import fnmatch
from typing import TYPE_CHECKING, ClassVar, cast

from hermes_exec.backend import Backend, BackendTraits, Channel, Check, OpenOptions, Receiver
from hermes_exec.errors import PlaceUnavailable
from hermes_exec.extras import require
from hermes_exec_backends.ssh import launch, pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.profiles.ssh import SshProfile
    from hermes_exec_backends.ssh.pool import SharedConnection


_PYTHONS = (launch.PYTHON, launch.TRIED_PYTHON)
"""Placeholders that ``launch`` replaces by a fast search for an interpreter, then by a thorough one."""


class SshBackend(Backend):
    """A host with an sshd."""

    type: ClassVar[str] = "ssh"

    def __init__(self, profile: SshProfile) -> None:
        self.options = OpenOptions.from_profile(profile)
        self.profile = self._profile = profile
        self._way: SharedConnection | None = None

    @property
    def target(self) -> str:
        """``ssh://USER@HOST:PORT``."""
        return self._profile.target_text()

    @property
    def traits(self) -> BackendTraits:
        """Return the traits; SSH packets have a message authentication code, the time to connect shows the latency."""
        return BackendTraits(
            pythons=_PYTHONS,
            authenticated=True,
            needs_checksum=False,
            high_latency=self._way is not None and self._way.far,
        )

    @classmethod
    def from_profile(cls, profile: Profile) -> SshBackend:
        """Return a backend for one host; no file is read yet."""
        return cls(cast("SshProfile", profile))

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        """Check the requirements of connections on this machine."""
        from hermes_exec_backends.ssh.doctor import checks

        return checks(cast("SshProfile | None", profile))

    @classmethod
    def find_targets(cls, pattern: str) -> list[str]:
        """Return the hosts of ``~/.ssh/config`` whose names match ``//[USER@]PATTERN``, as targets.

        Raises:
            ConfigError: the file cannot be read or parsed.
        """
        from hermes_exec_backends.ssh.ssh_config import list_hosts

        user, at, host = pattern.removeprefix("//").rpartition("@")
        return [f"ssh://{user}{at}{name}" for name in fnmatch.filter(list_hosts(), host)]

    async def open(self) -> None:
        """Connect and log in, or share a connection that exists.

        Raises:
            PlaceUnavailable: see ``Connection.make``.
            ConfigError: the OpenSSH client's configuration is invalid, or a secret is missing.
            MissingExtra: paramiko is not installed.
        """
        way = self._way = await _join(self._profile)
        try:
            await way.connect()
        except BaseException:
            await self.close()
            raise

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        """Start ``argv`` on the host, on a new connection if the old one broke.

        Raises:
            PlaceUnavailable: it could not be started; nothing ran.
        """
        setup = self._profile.setup if argv[0] in {*_PYTHONS, self._profile.python} else ()
        if self._way is None:
            raise PlaceUnavailable("ssh: the backend is not open")
        return await self._way.spawn(argv, receiver, env, setup, self._profile.lease_s)

    async def close(self, *, keep: bool = False) -> None:  # noqa: ARG002  nothing was created on the host
        """Release the connection, which closes after its last user."""
        way, self._way = self._way, None
        if way is not None:
            await pool.leave(way)


async def _join(profile: SshProfile) -> SharedConnection:
    """Share the connection to the profile's host on this event loop."""
    if profile.transport == "openssh":
        from hermes_exec_backends.ssh.openssh import Master, arguments

        options = arguments(profile)
        return pool.join((profile.host, options), lambda: Master(profile.host, options))
    require("ssh", "ssh")
    from hermes_exec_backends.ssh.connection import Connections
    from hermes_exec_backends.ssh.host import resolve

    host = await asyncio.get_running_loop().run_in_executor(None, resolve, profile)
    return pool.join(host, lambda: Connections(host))
