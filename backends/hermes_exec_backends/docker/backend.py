"""Run commands in a container: one that is created and later removed, or an existing one.

Every command is an exec with a connection of its own (``channel``). The container's first process belongs to this
project (``lease``): it ends, and with it the container, when the orchestrator has vanished and the lease has expired.
"""

from __future__ import annotations

import asyncio
import fnmatch
import secrets
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

from hermes_exec.backend import Backend, BackendTraits, Channel, Check, Leftover, OpenOptions, Receiver
from hermes_exec.errors import HermesError, PlaceGone, PlaceUnavailable, Unsupported
from hermes_exec.wrapper import join_resource_ids, open_outer
from hermes_exec_backends._shared.lease import keep_renewing, renewal_interval
from hermes_exec_backends.docker import lease
from hermes_exec_backends.docker.channel import Container
from hermes_exec_backends.docker.create import create, reusable
from hermes_exec_backends.docker.engine import Engine
from hermes_exec_backends.docker.errors import Refused
from hermes_exec_backends.docker.images import commit
from hermes_exec_backends.docker.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.profiles.docker import DockerProfile


_STOP_S = 5
_MOST_COPIED = 1 << 30
"""Bytes of changed files of a container that is copied: larger ones take many seconds, and as much of the disk."""
_NOT_FOUND = 404
_GONE = (_NOT_FOUND, 409)
"""The container does not exist, or another process is removing it now."""


class DockerBackend(Backend):
    """A container of the engine that the profile names."""

    type: ClassVar[str] = "docker"
    features: ClassVar[frozenset[str]] = frozenset({"keep", "snapshot", "suspend", "gpu"})

    def __init__(self, profile: DockerProfile, engine: Engine | None = None) -> None:
        self.options = OpenOptions.from_profile(profile)
        self.profile = self._profile = profile
        self._engine = engine or Engine(profile.engine)
        self._engine.keepalive_s = profile.keepalive_s
        self._container: Container | None = None
        self._name = ""
        self._ours = False
        self._renewing: asyncio.Task[None] | None = None

    @classmethod
    def find_targets(cls, pattern: str) -> list[str]:
        """Return the running containers of this machine's engine whose names match ``@PATTERN``, as targets.

        Raises:
            PlaceUnavailable: there is no engine, or no permission.
        """
        if not pattern.startswith("@"):
            return []
        with closing(Engine(None).connect_client()) as client:
            names = [str(name).lstrip("/") for each in client.containers() for name in each.get("Names") or ()]
        return [f"docker:@{name}" for name in sorted(fnmatch.filter(names, pattern.removeprefix("@")))]

    @property
    def target(self) -> str:
        """Return ``docker:@NAME`` while the container exists, so that it can be found again; else ``docker:IMAGE``."""
        return f"docker:@{self._name}" if self._name else self._profile.target_text()

    @property
    def resource_id(self) -> str:
        """The name of a container that this project created."""
        return self._name if self._ours else ""

    @property
    def traits(self) -> BackendTraits:
        """Return the traits; the image's own Python, which is first on its PATH, is preferred to the system's.

        The GPU of a container that existed before is unknown. Streams need a checksum over TCP without TLS.
        """
        wants_gpu = self._profile.gpus not in {None, "0"}
        has_gpu = wants_gpu and (self.options.reopen or not self._profile.container)
        return BackendTraits(
            features=self.features if has_gpu else self.features - {"gpu"},
            pythons=("python3", "/usr/bin/python3", "/usr/libexec/platform-python"),
            needs_checksum=not (self._engine.address.path or self._engine.address.certificates),
        )

    @classmethod
    def from_profile(cls, profile: Profile) -> DockerBackend:
        """Return a backend with the options of a ``DockerProfile``."""
        return cls(cast("DockerProfile", profile))

    @classmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:
        """Return a backend for the engine of the outer target."""
        return DockerInside(cast("DockerProfile", profile), outer)

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        """Check the SDK, the engine, and the limits that it can enforce."""
        from hermes_exec_backends.docker.doctor import checks

        wanted = cast("DockerProfile | None", profile)
        return await checks(Engine(wanted.engine if wanted else None))

    @classmethod
    async def reap(cls) -> list[Leftover]:
        """Remove expired containers of this project, on the engine that is found without a profile."""
        from hermes_exec_backends.docker.cleanup import reap

        engine = Engine()
        try:
            await engine.open()
            return await reap(engine)
        finally:
            await engine.close()

    async def open(self) -> None:
        """Create the container, or find the existing one.

        Raises:
            ConfigError, Unsupported: an option is wrong, or this engine does not support it; nothing was created.
            PlaceUnavailable: no engine, no image, no such container, or a name that is taken.
            PlaceGone: the container to reopen has ended.
        """
        attached = self._profile.container
        try:
            await self._engine.open()
            container = await (self._attach(attached) if attached else self._create())
            self._ours = self.options.take_ownership or not attached
            if self.options.take_ownership:
                await container.signal(lease.RENEW)
        except BaseException:
            self._name = ""
            await self._engine.close()
            raise
        self._container = container
        if self._ours:
            interval_s = renewal_interval(self.options.lease_s)
            renewing = keep_renewing(interval_s, lambda: container.signal(lease.RENEW))
            self._renewing = asyncio.get_running_loop().create_task(renewing)

    async def _attach(self, name: str) -> Container:
        container = Container(self._engine, name, self._profile.user)
        try:
            found = await container.inspect()
        except Refused as error:
            if error.status != _NOT_FOUND:
                raise
            missing = PlaceGone if self.options.reopen else PlaceUnavailable
            raise missing(f"docker: there is no container {name!r}", remedy="docker ps") from error
        death = await container.death()
        paused = found["State"].get("Paused")
        if death and self.options.reopen and not paused:
            raise PlaceGone(f"docker: {name}: {death}")
        if death:
            raise PlaceUnavailable(
                f"docker: {name}: {death}", remedy=f"docker {'unpause' if paused else 'start'} {name}"
            )
        self._name = name
        return Container(self._engine, str(found["Id"]), self._profile.user)

    async def _create(self) -> Container:
        profile = self._profile
        container = await reusable(self._engine, profile) if profile.reuse and profile.name else None
        name = profile.name or f"hermes-exec-{secrets.token_hex(6)}"
        container = container or await create(self._engine, profile, name, self.options.lease_s)
        self._name = name
        return container

    def _get_container(self) -> Container:
        if self._container is None:
            raise PlaceUnavailable("docker: the target is not open")
        return self._container

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        """Start an exec."""
        return await self._get_container().spawn(argv, receiver, env or {})

    async def snapshot(self, name: str | None = None) -> str:
        """Commit the container as the image ``name``, without the directories that are mounted into it.

        Raises:
            PlaceUnavailable: the engine refused; the image does not exist then.
        """
        return f"docker:{await commit(self._engine, self._get_container(), name)}"

    async def check_copies(self) -> None:
        """Check that the container was created from the profile, and that its changed files are small.

        Raises:
            Unsupported: it existed before, so that its limits are not known, or its changed files are too large.
            PlaceUnavailable: the engine refused.
        """
        if self._profile.container is not None:
            raise Unsupported("the limits of a container that existed before are not known")
        chosen = {"id": self._get_container().id}
        found = await self._engine.call("docker", lambda client: client.containers(filters=chosen, size=True))
        if sum(int(each.get("SizeRw") or 0) for each in found) > _MOST_COPIED:
            raise Unsupported(f"the changed files of the container have more than {_MOST_COPIED >> 20} MiB")

    def create_copy(self, snapshot: str) -> Backend:
        """Return a backend for a new container of a snapshot, with the limits of this one and nothing mounted."""
        changed: dict[str, object] = {
            "image": snapshot.removeprefix("docker:"), "pull": "never", "dockerfile": None, "requirements": (),
            "binds": (), "volumes": {}, "tmpfs": {}, "gpus": None, "name": None, "reuse": False,
            "secrets": {},
        }  # fmt: skip
        return DockerBackend(self._profile.model_copy(update=changed))

    async def remove_snapshot(self, snapshot: str) -> None:
        """Remove the image of a snapshot.

        Raises:
            PlaceUnavailable: the engine refused.
        """
        name = snapshot.removeprefix("docker:")
        await self._engine.call(f"docker: image {name}", lambda client: client.remove_image(name, force=True))

    async def suspend(self) -> None:
        """Freeze every process in the container. Its lease continues, and cannot end it while it is frozen."""
        container = self._get_container()
        await self._engine.call(f"docker: container {self._name}", lambda client: client.pause(container.id))

    async def resume(self) -> None:
        """Resume all processes."""
        container = self._get_container()
        await self._engine.call(f"docker: container {self._name}", lambda client: client.unpause(container.id))
        await self._signal(container, lease.RENEW)

    async def release(self) -> None:
        """Leave the container running for its jobs; it ends after the last one, or when their time is used up."""
        await self._part(lambda container: self._signal(container, lease.FINISH))

    async def _signal(self, container: Container, name: str) -> None:
        if self._ours:  # the first process of other containers does not understand the signal
            await container.signal(name)

    async def close(self, *, keep: bool = False) -> None:
        """Remove the container that ``open`` created; one that ran already is left unchanged.

        With ``keep`` it remains: a ``reuse`` container is stopped, to be started by the next ``open``; any other one
        keeps running, idle and without a lease, under the name that ``target`` returns.
        """
        await self._part(lambda container: self._dismiss(container, keep=keep))

    async def _part(self, farewell: Callable[[Container], Awaitable[None]]) -> None:
        """Release the container, after ``farewell`` if this project created it. Safe to call twice."""
        container, self._container = self._container, None
        try:
            if container is not None and self._renewing is not None:
                self._renewing.cancel()
                self._renewing = None
                await farewell(container)
        except Refused as error:
            if error.status not in _GONE:
                raise
        finally:
            self._name, self._ours = "", False
            await self._engine.close()

    async def _dismiss(self, container: Container, *, keep: bool) -> None:
        if not keep:
            await container.remove()
        elif self._profile.reuse:
            await self._engine.call(
                f"docker: container {self._name}", lambda client: client.stop(container.id, timeout=_STOP_S)
            )
        else:
            await container.signal(lease.KEEP)


class DockerInside(DockerBackend):
    """A ``DockerBackend`` whose engine is reached through a tunnel. Bind paths are paths of the outer target."""

    def __init__(self, profile: DockerProfile, outer: Backend) -> None:
        self._tunnel = Tunnel(outer, profile.engine)
        super().__init__(profile, Engine(self._tunnel.address))
        self.outer = outer

    @property
    def target(self) -> str:
        """Return the container's target and the outer one."""
        return f"{super().target}+{self.outer.target}"

    @property
    def traits(self) -> BackendTraits:
        """Return the traits; the engine is reached over the connection to the outer target."""
        return replace(super().traits, needs_checksum=self.outer.traits.needs_checksum)

    @property
    def resource_id(self) -> str:
        """Return the identifiers of the container and of the outer target."""
        return join_resource_ids(super().resource_id, self.outer)

    async def check_copies(self) -> None:
        """Refuse: a copy would need a second connection to the outer target."""
        raise Unsupported("copies are not made inside of another target")

    async def open(self) -> None:
        """Open the outer target, then the container in it; an error names the one that failed as its ``place``."""
        await open_outer(self.outer, self.options)
        target = self.target
        try:
            await self._tunnel.open()
            await super().open()
        except BaseException as error:
            await self._tunnel.close()
            await self.outer.close()
            if isinstance(error, PlaceUnavailable) and self._tunnel.complaint:
                raise self._add_complaint(error, target) from error
            if isinstance(error, HermesError):
                error.place = error.place or target
            raise

    def _add_complaint(self, error: PlaceUnavailable, target: str) -> PlaceUnavailable:
        told = PlaceUnavailable(f"{error.what} ({self.outer.target}: {self._tunnel.complaint})", remedy=error.remedy)
        told.place = target
        return told

    async def release(self) -> None:
        """Leave the container running for its jobs; release the outer target."""
        try:
            await super().release()
        finally:
            await self._let_go(keep=True)

    async def close(self, *, keep: bool = False) -> None:
        """Close the container, then the outer target."""
        try:
            await super().close(keep=keep)
        finally:
            await self._let_go(keep=keep)

    async def _let_go(self, *, keep: bool) -> None:
        try:
            await self._tunnel.close()
        finally:
            await self.outer.close(keep=keep)
