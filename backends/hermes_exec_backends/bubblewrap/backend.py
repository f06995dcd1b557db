"""Run commands in a sandbox that bubblewrap makes in the place outside: this machine, a container, a host.

Each ``spawn`` is a sandbox of its own, with its own processes, home and /tmp. A terminal has one, since all that it
does is done by its guest in there. It ends with what started it, so nothing is ever left behind, and so it cannot be
entered again either: after a lost connection there is nothing to come back to, and no job outlives us.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from hermes_exec.wrapper import Prepared, Words, Wrapper
from hermes_exec_backends.bubblewrap.options import options, prefix
from hermes_exec_backends.bubblewrap.outside import Outside, look

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Backend, Check
    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.profiles.bubblewrap import BubblewrapProfile

PROGRAM = "bwrap"
_STAYS = '"$@"; exit $?'
"""A parent for bwrap, which dies with its parent: what starts a process in a container ends as soon as that runs."""


class BubblewrapBackend(Wrapper):
    """A sandbox for as long as what it was made for."""

    type: ClassVar[str] = "bubblewrap"

    def __init__(self, profile: BubblewrapProfile, outer: Backend | None = None) -> None:
        super().__init__(outer)
        self.lease_s = profile.lease_s
        self._profile = profile
        self._outside = Outside(PROGRAM, {}, frozenset())

    @property
    def own_target(self) -> str:
        """``bubblewrap``, or with the folder of its system."""
        from hermes_exec.config.targets import target_of

        return target_of(self._profile)

    @property
    def _is_here(self) -> bool:
        """Whether what is spawned outside is a child of this very process."""
        outer = self.outer
        while isinstance(outer, Prepared):
            outer = outer.outer
        return outer.type == "local"

    @property
    def reattaches(self) -> bool:
        """False: a second ``spawn`` makes another sandbox."""
        return False

    @property
    def guarded(self) -> bool:
        """True: what is run in a sandbox is there for a reason."""
        return True

    @classmethod
    def inside(cls, profile: Profile, outer: Backend) -> Backend:
        """A sandbox of a profile, in whatever place."""
        from hermes_exec_backends.profiles.bubblewrap import BubblewrapProfile

        assert isinstance(profile, BubblewrapProfile)  # noqa: S101  the registry pairs them
        return cls(profile, outer)

    @classmethod
    async def doctor(cls) -> list[Check]:
        """Look for the program here, and whether it may make a sandbox."""
        from hermes_exec_backends.bubblewrap.health import examine

        return await examine()

    async def enter(self) -> None:
        """Find bwrap, and see that it can make a sandbox.

        Raises:
            PlaceUnavailable: it is not there, or may not; says why and what mends it.
        """
        self._outside = await look(self.outer, self._profile.program or PROGRAM, self._profile.user)

    def words(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> Words:
        """A new sandbox; its variables are those that bwrap is started with, since no word may hold their values."""
        variables = self._outside.variables
        if self._is_here:
            before: list[str] = []
            variables |= os.environ.keys()  # which may have got more since
        else:
            before = ["/bin/sh", "-c", _STAYS, "sh"]
        before += prefix(variables, self._profile, kept=env.keys())
        return [*before, self._outside.program, *options(self._outside, self._profile, env), "--", *argv], env
