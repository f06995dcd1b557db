"""Run commands on this machine, as this user.

A command has an environment of its own: what `environment` selects, without secrets, and what the profile adds.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, ClassVar

from hermes_exec.backend import Backend, BackendTraits, Channel, Check, Inherited, OpenOptions, Receiver
from hermes_exec.errno_hints import errno_remedy
from hermes_exec.errors import PlaceError, PlaceUnavailable
from hermes_exec_backends.local.environment import select_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.local.environment import Inherit

_MORE_INOTIFY = "sysctl fs.inotify.max_user_instances=1024"


def _check_inotify() -> Check:
    from hermes_exec.guest.shell.inotify_watcher import Inotify

    watches: list[Inotify] = []
    try:
        watches.extend(Inotify() for _ in range(2))  # as many as a guest needs
    except (OSError, AttributeError):
        return Check("inotify", "warning", "none is left, so sessions are slower", _MORE_INOTIFY)
    finally:
        for watch in watches:
            watch.close()
    return Check("inotify", "ok", "watches live shells")


class LocalBackend(Backend):
    """The backend without configuration."""

    type: ClassVar[str] = "local"

    def __init__(self, profile: Profile | None = None) -> None:
        self.profile = profile
        if profile is not None:
            self.options = OpenOptions.from_profile(profile)

    @property
    def target(self) -> str:
        """Return ``local``."""
        return "local"

    @property
    def traits(self) -> BackendTraits:
        """Return the traits; the running interpreter is also the guest's, so that compiled code can be sent."""
        linux = sys.platform == "linux"
        return BackendTraits(
            pythons=(sys.executable,) if sys.executable else ("/usr/bin/python3", "python3"),
            same_python=bool(sys.executable),
            shares_host=linux,
            needs_checksum=not linux,
            reports_exit=True,
        )

    @classmethod
    def from_profile(cls, profile: Profile) -> LocalBackend:
        """Return a backend with the options that every profile has."""
        return cls(profile)

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:  # noqa: ARG003  every profile has these
        """Check the requirements of live shells and limits."""
        if sys.platform == "win32":
            return [Check("system", "missing", "Windows is not supported", "use WSL2")]
        checks = [
            Check("system", "ok", f"Linux {os.uname().release}")
            if sys.platform == "linux"
            else Check("system", "warning", f"{sys.platform} is not tested", "use Linux where it matters")
        ]
        bash = shutil.which("bash")
        checks.append(
            Check("bash", "ok", bash)
            if bash
            else Check("bash", "warning", "sessions use sh, which keeps no functions", "install bash")
        )
        checks.append(_check_inotify())
        return checks

    async def open(self) -> None:
        """Refuse Windows; other systems need no preparation."""
        if sys.platform == "win32":
            raise PlaceUnavailable("Windows cannot be a local place", remedy="run hermes_exec inside WSL2")

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        """Start a child process."""
        from hermes_exec_backends.local.channel import ProcessChannel

        try:
            variables = {**self.select_inherited().variables, **self.options.marks, **(env or {})}
            return ProcessChannel(argv, receiver, variables)
        except OSError as error:
            what = f"cannot start {os.fsdecode(argv[0])}: {error.strerror}"
            if remedy := errno_remedy(error.errno):  # no other program could be started either
                raise PlaceError(what, remedy=remedy) from error
            raise PlaceUnavailable(what) from error

    def select_inherited(self) -> Inherited:
        """Return the variables of this process that commands inherit, as the profile says or by default."""
        inherit: Inherit | Sequence[str] | None = getattr(self.profile, "inherit", None)
        return select_variables(os.environ, inherit or ("all" if self.options.personal else "tools"))

    async def close(self, *, keep: bool = False) -> None:  # noqa: ARG002  this machine stays anyway
        """Wait for killed processes; no other resources were created."""
        from hermes_exec_backends.local import channel

        await channel.wait_until_killed()
        channel.reap()
