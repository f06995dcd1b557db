"""Targets inside other targets: an inner backend translates each argv and starts it through the outer backend.

Apptainer on a login node, a Slurm step behind SSH, a sandbox inside a container: each is a ``Wrapper`` around the
``spawn`` of any outer backend, so targets can be nested to any depth. Every channel passes through the whole chain,
and no process of this project runs in the targets in between.
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
    """A backend whose targets are inside another backend's target; inside this machine if no outer backend is given."""

    def __init__(self, outer: Backend | None = None) -> None:
        if outer is None:
            from hermes_exec.config import registry

            outer = registry.find_backend_class("local")()
        self.outer = outer

    @property
    @abstractmethod
    def own_target(self) -> str:
        """Return the name of this target alone, as one part of a chain."""

    @property
    def target(self) -> str:
        """Return the chain of target names: this target, then the outer one unless it is this machine."""
        outside = self.outer.target
        return self.own_target if outside == "local" else f"{self.own_target}+{outside}"

    @property
    def traits(self) -> BackendTraits:
        """Return the traits of the connection to the outer target; the last step only adds pipes on one machine."""
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
        """Return the identifier of the resource that ``enter`` created, a part of ``resource_id``; without a ``+``."""
        return ""

    @property
    def resource_id(self) -> str:
        """Return the identifiers of the resources that were created here and in the outer targets."""
        return join_resource_ids(self.own_resource_id, self.outer)

    @classmethod
    def from_profile(cls, profile: Profile) -> Backend:
        """Return a backend inside this machine."""
        from hermes_exec.config import registry

        return cls.nest(profile, registry.find_backend_class("local")())

    @classmethod
    @abstractmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:
        """Return a backend of ``profile`` inside ``outer``; see ``SupportsNesting``."""

    @abstractmethod
    def wrap_argv(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> ArgvAndEnv:
        """Return the argv and variables that, started in the outer target, start ``argv`` here with ``env`` added.

        No value of ``env`` may be put into the argv: it may be a secret.
        """

    async def enter(self) -> None:
        """Prepare the target; the outer one is open. After an error nothing may remain."""

    async def leave(self, *, keep: bool) -> None:
        """Release the target while the outer one is still open. A second call must have no effect."""

    async def leave_to_jobs(self) -> None:
        """Release the target while jobs still run in it; the resources that ``enter`` created end after the jobs."""
        await self.leave(keep=True)

    async def open(self) -> None:
        """Open the outer target, then this one; an error names the one that failed as its ``place``."""
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
        """Start the translation of ``argv`` in the outer target."""
        words, variables = self.wrap_argv(argv, env or {})
        return await self.outer.spawn(words, receiver, env=variables)

    async def close(self, *, keep: bool = False) -> None:
        """Release this target, then the outer one."""
        try:
            await self.leave(keep=keep)
        finally:
            await self.outer.close(keep=keep)

    async def release(self) -> None:
        """Release this target, then the outer one, while jobs still run in this one."""
        try:
            await self.leave_to_jobs()
        finally:
            await release(self.outer)


class PreparedBackend(Wrapper):
    """A target with the working directory, variables and set-up lines of its profile applied."""

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
        # Set-up lines must not add to the command's output, and must not read the command's input.
        lines = [f"cd -- {shlex.quote(cwd)} || exit"] if cwd else []
        if setup:
            lines += ["{", *setup, "} </dev/null >/dev/null"]
        self._text = "\n".join([*lines, 'exec "$@"'])
        self._shell = bool(lines) or login

    @classmethod
    def of(cls, outer: Backend, profile: Profile, env: Mapping[str, str]) -> Backend:
        """Return ``outer`` itself if its profile changes nothing; ``env`` is the profile's, with its secrets."""
        if not (env or profile.cwd or profile.setup or profile.login):
            return outer
        return cls(outer, cwd=profile.cwd, env=env, setup=profile.setup, login=profile.login)

    @classmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:
        """Return the prepared backend of ``profile``; see ``of``."""
        return cls.of(outer, profile, profile.env)

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:  # noqa: ARG003  it needs nothing
        """Return no checks, because the backend has no requirements."""
        return []

    @property
    def own_target(self) -> str:
        """Return the name of the outer target."""
        return self.outer.target

    @property
    def target(self) -> str:
        """Return the name of the outer target."""
        return self.outer.target

    @property
    def resource_id(self) -> str:
        """Return the resource identifier of the outer target."""
        return get_resource_id(self.outer)

    @property
    def traits(self) -> BackendTraits:
        """Return the traits of the outer target, with its interpreters."""
        outer = self.outer.traits
        return replace(super().traits, pythons=outer.pythons, same_python=outer.same_python)

    def wrap_argv(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> ArgvAndEnv:
        """Return an argv that runs the set-up and then ``argv``."""
        variables = {**self._env, **env}
        if not self._shell:
            return argv, variables
        return ["/bin/sh", "-lc" if self._login else "-c", self._text, "sh", *argv], variables
