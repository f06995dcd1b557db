"""The beginning of a command that runs as another user of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_exec import Terminal

_RUNUSER = "/usr/sbin/runuser"
_STEP_S = 60.0


class UserUnavailable(Exception):
    """Commands cannot run as that user."""


class UserSwitch:
    """Finds out once who commands of a target run as."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._own: tuple[str, str] | None = None

    async def prefix(self, user: str | None) -> list[str]:
        """Return the beginning of a command that runs as ``user``, a name or a number; only root can switch.

        Raises:
            UserUnavailable: there is no such user, or commands there do not run as root.
            PlaceError: the target failed.
        """
        if user is None:
            return []
        own = await self._find_own()
        if user in own:
            return []
        if own[1] != "0":
            raise UserUnavailable(f"commands run as {own[0]!r} there, not as {user!r}")
        named = await self._terminal.run(["/usr/bin/id", "-un", user], timeout=_STEP_S)
        if not named.ok:
            raise UserUnavailable(f"there is no user {user!r}")
        return [_RUNUSER, "-u", named.stdout_text.strip(), "--"]

    async def is_root(self) -> bool:
        """Whether commands run as root."""
        return (await self._find_own())[1] == "0"

    async def _find_own(self) -> tuple[str, str]:
        if self._own is None:
            found = await self._terminal.run("id -un; id -u", timeout=_STEP_S)
            name, _, number = found.stdout_text.strip().partition("\n")
            self._own = name, number
        return self._own
