"""A place inside another: what is started here becomes other words there.

Apptainer on a login node, a Slurm step behind SSH, a sandbox inside a container: each is a ``Wrapper`` around
the ``spawn`` of the place outside, whatever that is, so places compose to any depth. Every channel goes down
the whole chain, and nothing of ours runs in the places between.
"""

from __future__ import annotations

import shlex
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from hermes_exec.backend import Backend, BackendTraits, Channel, Check, OpenOptions, Receiver, get_resource_id, release
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.profile import Profile

ArgvAndEnv = tuple["Sequence[str | bytes]", "Mapping[str, str]"]
"""An argv, and the variables to start it with."""


async def open_outer(outer: Backend, options: OpenOptions) -> None:
    """Open the outer target with the ``options`` of the inner one; an error names the outer one as its ``place``."""
    outer.options = replace(options, keepalive_s=outer.options.keepalive_s)
    try:
        await outer.open()
    except HermesError as error:
        error.place = error.place or outer.target
        raise


def join_resource_ids(own: str, outer: Backend) -> str:
    """Return the ``resource_id`` of a target inside ``outer`` whose own part is ``own``."""
    return f"{own}+{get_resource_id(outer)}".rstrip("+")


class Wrapper(Backend):
    """A backend whose places are inside of another backend's; this machine's when none is given."""

    def __init__(self, outer: Backend | None = None) -> None:
        if outer is None:
            from hermes_exec.config import registry

            outer = registry.find_backend_class("local")()
        self.outer = outer

    @property
    @abstractmethod
    def own_target(self) -> str:
        """The target of this place alone, as a part of a chain."""

    @property
    def target(self) -> str:
        """Ours, and that of the place outside unless it is this machine."""
        outside = self.outer.target
        return self.own_target if outside == "local" else f"{self.own_target}+{outside}"

    @property
    def traits(self) -> BackendTraits:
        """Those of the connection to the outer target; from there on it is the pipes of one machine."""
        outer = self.outer.traits
        return BackendTraits(
            features=self.features - {"gpu"},
            guarded=outer.guarded,
            authenticated=outer.authenticated,
            needs_checksum=outer.needs_checksum,
            high_latency=outer.high_latency,
        )

    @property
    def own_resource_id(self) -> str:
        """The identifier of the resource that ``enter`` created, as a part of ``resource_id``; without a ``+``."""
        return ""

    @property
    def resource_id(self) -> str:
        """The identifiers of the resources that were created here and in the outer targets."""
        return join_resource_ids(self.own_resource_id, self.outer)

    @classmethod
    def from_profile(cls, profile: Profile) -> Backend:
        """Inside of this machine."""
        from hermes_exec.config import registry

        return cls.nest(profile, registry.find_backend_class("local")())

    @classmethod
    @abstractmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:
        """See ``SupportsNesting``."""

    @abstractmethod
    def wrap_argv(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> ArgvAndEnv:
        """What to start outside, so that ``argv`` is started inside with ``env`` added.

        No value of ``env`` may become a word of the argv: it may be a secret.
        """

    async def enter(self) -> None:
        """Make the place ready; the one outside is open. On an error nothing may be left behind."""

    async def leave(self, *, keep: bool) -> None:
        """Let go of the place; the one outside is still open. Must do no harm when called twice."""

    async def leave_to_jobs(self) -> None:
        """Let go of the place while jobs go on in it: what ``enter`` made ends after them."""
        await self.leave(keep=True)

    async def open(self) -> None:
        """Open the place outside, then this one; an error names the one that failed as its ``place``."""
        await open_outer(self.outer, self.options)
        try:
            await self.enter()
        except BaseException as error:
            if isinstance(error, HermesError):
                error.place = error.place or self.target
            await self.outer.close()
            raise

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        """Start our words for ``argv`` outside."""
        words, variables = self.wrap_argv(argv, env or {})
        return await self.outer.spawn(words, receiver, env=variables)

    async def close(self, *, keep: bool = False) -> None:
        """Let go of this place, then of the one outside."""
        try:
            await self.leave(keep=keep)
        finally:
            await self.outer.close(keep=keep)

    async def release(self) -> None:
        """Let go of this place, then of the one outside, while jobs go on in here."""
        try:
            await self.leave_to_jobs()
        finally:
            await release(self.outer)


class PreparedBackend(Wrapper):
    """A place as its profile wants it for what runs inside: its folder, variables and set-up lines."""

    type: ClassVar[str] = "prepared"

    def __init__(
        self,
        outer: Backend,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        setup: Sequence[str] = (),
        login: bool = False,
    ) -> None:
        super().__init__(outer)
        self._env = dict(env or {})
        self._login = login
        # What set-up lines print is nobody's output, and what they read would be the command's input.
        lines = [f"cd -- {shlex.quote(cwd)} || exit"] if cwd else []
        if setup:
            lines += ["{", *setup, "} </dev/null >/dev/null"]
        self._text = "\n".join([*lines, 'exec "$@"'])
        self._shell = bool(lines) or login

    @classmethod
    def of(cls, outer: Backend, profile: Profile, env: Mapping[str, str]) -> Backend:
        """``outer`` itself where its profile asks for nothing; ``env`` is the profile's, with its secrets."""
        if not (env or profile.cwd or profile.setup or profile.login):
            return outer
        return cls(outer, cwd=profile.cwd, env=env, setup=profile.setup, login=profile.login)

    @classmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:
        """See ``of``."""
        return cls.of(outer, profile, profile.env)

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:  # noqa: ARG003  it needs nothing
        """Nothing is needed."""
        return []

    @property
    def own_target(self) -> str:
        """That of the place itself."""
        return self.outer.target

    @property
    def target(self) -> str:
        """That of the place itself."""
        return self.outer.target

    @property
    def resource_id(self) -> str:
        """That of the outer target."""
        return get_resource_id(self.outer)

    @property
    def traits(self) -> BackendTraits:
        """Those of the outer target, with its interpreters."""
        outer = self.outer.traits
        return replace(super().traits, pythons=outer.pythons, same_python=outer.same_python)

    def wrap_argv(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> ArgvAndEnv:
        """The same words, after the set-up."""
        variables = {**self._env, **env}
        if not self._shell:
            return argv, variables
        return ["/bin/sh", "-lc" if self._login else "-c", self._text, "sh", *argv], variables
