"""Run commands in a sandbox that bubblewrap makes in the place outside: this machine, a container, a host.

Each ``spawn`` is a sandbox of its own, with its own processes, home and /tmp. A terminal has one, since all that it
does is done by its guest in there. It ends with what started it, so nothing is ever left behind, and so it cannot be
entered again either: after a lost connection there is nothing to come back to, and no job outlives us.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from hermes_exec.backend import OpenOptions
from hermes_exec.config import registry
from hermes_exec.errors import Unsupported
from hermes_exec.wrapper import Prepared, Words, Wrapper
from hermes_exec_backends.bubblewrap.options import options, options_under, prefix, trial_under
from hermes_exec_backends.bubblewrap.outer_host import TRIAL, Outside, look
from hermes_exec_backends.sandbox import PathRule
from hermes_exec_backends.sandbox.control import inline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Backend, BackendTraits, Check
    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.profiles.bubblewrap import BubblewrapProfile
    from hermes_exec_backends.sandbox import Confinement

PROGRAM = "bwrap"
_STAYS = '"$@"; exit $?'
"""A parent for bwrap, which dies with its parent. What starts a process in a container ends as soon as that runs; and
here a parent is a thread, as the kernel sees it, which may end long before its process does."""
_USE = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 14 | 1 << 15  # write, read, list, truncate, ioctl
_TERMINALS = (PathRule(path="/dev/pts", access=_USE), PathRule(path="/dev/tty", access=_USE))
"""What rules for a single program leave out, which has none of them: the sandbox's own terminals."""


class BubblewrapBackend(Wrapper):
    """A sandbox for as long as what it was made for."""

    type: ClassVar[str] = "bubblewrap"

    def __init__(self, profile: BubblewrapProfile, outer: Backend | None = None) -> None:
        super().__init__(outer)
        self.options = OpenOptions.from_profile(profile)
        self.profile = self._profile = profile
        self._outside = Outside(PROGRAM, {}, frozenset())
        self._user = profile.user
        self._confinement: Confinement | None = None

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
    def traits(self) -> BackendTraits:
        """A second ``spawn`` creates another sandbox; commands in a sandbox are not trusted."""
        return replace(super().traits, reattaches=False, guarded=True)

    @classmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:
        """A sandbox of a profile, in whatever place."""
        from hermes_exec_backends.profiles.bubblewrap import BubblewrapProfile

        assert isinstance(profile, BubblewrapProfile)  # noqa: S101  the registry pairs them
        return cls(profile, outer)

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        """Look for the program here, and whether it may make a sandbox."""
        from hermes_exec_backends.bubblewrap.doctor import examine

        return await examine(cast("BubblewrapProfile | None", profile))

    async def enter(self) -> None:
        """Find bwrap, see that it can make a sandbox, and look up the policy.

        Raises:
            ConfigError: there is no such policy.
            Unsupported: a rule of the policy cannot be enforced, or the place is not of this machine.
            PlaceUnavailable: bwrap is not there, or may not; says why and what mends it.
        """
        if self._profile.policy:
            self._confinement = self._under_policy(self._profile.policy)
            self._user = self._confinement.uid
        trial = trial_under(self._confinement) if self._confinement else TRIAL
        self._outside = await look(self.outer, self._profile.program or PROGRAM, self._user, trial)

    def _under_policy(self, policy: str) -> Confinement:
        if not self._is_here:
            raise Unsupported(
                f"bubblewrap: the policy {policy!r} can be enforced on this machine, and not at {self.outer.target}",
                remedy="the policy for a sandbox on this machine, or a profile without it",
            )
        binds = self._profile.binds
        writable = {bind.source: bind.target for bind in binds if bind.writable}
        readonly = {bind.source: bind.target for bind in binds if not bind.writable}
        confinement: Confinement
        overrides = self._profile.policy_overrides
        confinement, _ = registry.confinement_of(policy, overrides=overrides, writable=writable, readonly=readonly)
        rules = confinement.landlock
        if rules is None or not confinement.dev:
            return confinement
        return replace(confinement, landlock=replace(rules, paths=(*rules.paths, *_TERMINALS)))

    def words(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> Words:
        """A new sandbox; its variables are those that bwrap is started with, since no word may hold their values."""
        variables = self._outside.variables
        before = ["/bin/sh", "-c", _STAYS, "sh"]
        if self._is_here:
            variables |= os.environ.keys()  # which may have got more since
            if threading.current_thread() is threading.main_thread():
                before = []
        before += [*prefix(variables, self._user, kept=env.keys()), self._outside.program]
        if self._confinement is None:
            return [*before, *options(self._outside, self._profile, env), "--", *argv], env
        python = str(argv[0]) if list(argv[1:2]) == ["-ISc"] else self.traits.pythons[0]
        inner = inline(self._confinement, python, argv)
        return [*before, *options_under(self._confinement, env), "--", *inner], env
