"""Run commands in a Daytona sandbox: one that is created and later deleted, or an existing one.

Every command uses one shared WebSocket to a relay process in the sandbox (``connection``), and the next ``spawn``
replaces a broken one. After a connection failure the backend asks the service for the sandbox's state, which
determines the error.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Any, ClassVar, cast

from hermes_exec.backend import Backend, BackendTraits, Channel, Check, Leftover, OpenOptions, Receiver, Resource
from hermes_exec.errors import HermesError, PlaceGone, PlaceUnavailable
from hermes_exec.observe.spending import record_end
from hermes_exec_backends._shared import labels
from hermes_exec_backends._shared.lease import keep_renewing, renewal_interval
from hermes_exec_backends.daytona.cleanup import find_without_jobs
from hermes_exec_backends.daytona.connection import Connection
from hermes_exec_backends.daytona.create import again, attach, check_lives, create, delete, persist
from hermes_exec_backends.daytona.errors import sdk_errors
from hermes_exec_backends.daytona.file_calls import FileCalls
from hermes_exec_backends.daytona.options import NEVER, intervals
from hermes_exec_backends.daytona.service import REQUEST_S, STATE_S, Preview, Service, describe, is_gone, open_service

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.profiles.daytona import DaytonaProfile

_PYTHONS = ("python3", "/usr/bin/python3", "/usr/libexec/platform-python")
SHORTEST_INTERVAL_S = 60.0
"""The shortest interval between two reports of activity."""
_STATE_S = 10.0


class DaytonaBackend(Backend):
    """A sandbox of the account that the profile names."""

    type: ClassVar[str] = "daytona"
    features: ClassVar[frozenset[str]] = frozenset({"keep", "snapshot", "gpu"})

    def __init__(self, profile: DaytonaProfile) -> None:
        self.options = OpenOptions.from_profile(profile)
        self.profile = self._profile = profile
        self._service = Service(profile)
        self._sandbox: Any = None
        self._name = ""
        self._ours = False
        self._woken = False
        self._connection: Connection | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self._reporting: asyncio.Task[None] | None = None

    @property
    def target(self) -> str:
        """Return ``daytona:@NAME`` while the sandbox exists, to find it again; else the profile's target."""
        return f"daytona:@{self._name}" if self._name else self._profile.target_text()

    @property
    def resource_id(self) -> str:
        """The name of a sandbox that this project created."""
        return self._name if self._ours else ""

    @property
    def traits(self) -> BackendTraits:
        """Return the traits; the image's own Python, which is first on its PATH, is preferred to the system's.

        Streams need no checksum: each frame of the relay has a number and a checksum of its own.
        """
        return BackendTraits(
            features=self.features if self._profile.gpu not in {None, "0"} else self.features - {"gpu"},
            pythons=_PYTHONS,
            needs_checksum=False,
            reports_exit=True,
        )

    @property
    def bulk_transfer(self) -> FileCalls:
        """Return the vendor's file calls, several times as fast as a terminal."""
        return FileCalls(self._get_sandbox)

    @classmethod
    def from_profile(cls, profile: Profile) -> DaytonaBackend:
        """Return a backend with the options of a ``DaytonaProfile``."""
        return cls(cast("DaytonaProfile", profile))

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        """Check the SDK, the key, and whether the service accepts the key."""
        from hermes_exec_backends.daytona.doctor import checks

        return await checks(cast("DaytonaProfile | None", profile))

    @classmethod
    async def reap(cls) -> list[Leftover]:
        """Delete expired sandboxes of this project, on the account that is found without a profile."""
        from hermes_exec_backends.daytona.cleanup import reap

        async with open_service(None) as service:
            return await reap(service)

    @classmethod
    async def list_resources(cls, profile: Profile | None = None) -> list[Resource]:
        """List every sandbox of this project on the account."""
        from hermes_exec_backends.daytona.cleanup import list_resources

        async with open_service(cast("DaytonaProfile", profile)) as service:
            return await list_resources(service)

    async def open(self) -> None:
        """Create the sandbox, or start the existing one.

        Raises:
            ConfigError: an option is wrong, or the cost guard refuses it; nothing was created.
            PlaceUnavailable: no SDK, no key, or the service did not provide a sandbox; nothing remains.
            PlaceGone: the sandbox to reopen has ended.
        """
        self._connecting = asyncio.Lock()
        await self._service.open()
        try:
            await self._find()
        except BaseException:
            await self._service.close()
            raise
        self._reporting = asyncio.get_running_loop().create_task(self._report_activity())

    async def _find(self) -> None:
        profile = self._profile
        self._ours, self._woken = profile.sandbox is None, False
        if profile.sandbox:
            if self.options.reopen:
                await check_lives(self._service, profile.sandbox)
            self._sandbox, self._woken = await attach(self._service, profile, profile.sandbox)
            if self.options.take_ownership and labels.LEASE in self._sandbox.labels:
                self._ours = True
                await self._mark("open")
        else:
            self._sandbox = await again(self._service, profile, profile.name) if profile.name else None
            if self._sandbox is not None:
                await self._mark("open")
            else:
                name = profile.name or f"hermes-exec-{secrets.token_hex(6)}"
                self._sandbox = await create(self._service, profile, name, self.options.lease_s)
        self._name = str(self._sandbox.name)

    async def _mark(self, state: str) -> None:
        """Mark a kept sandbox as in use, or the other way round: its intervals, then its label."""
        wanted = intervals(self._profile, self.options.lease_s)
        keeps = self._profile.auto_delete_min is None and state == "kept"
        with sdk_errors(f"sandbox {self._sandbox.name!r} keeps its intervals"):
            if self._sandbox.labels.get(labels.STATE) == "jobs":
                await self._sandbox.set_autostop_interval(wanted["auto_stop_interval"], request_timeout=REQUEST_S)
            await self._sandbox.set_auto_delete_interval(
                NEVER if keeps else wanted["auto_delete_interval"], request_timeout=REQUEST_S
            )
            await self._sandbox.set_labels({**self._sandbox.labels, labels.STATE: state}, request_timeout=REQUEST_S)

    async def _report_activity(self) -> None:
        """Report to the service at intervals that the sandbox is in use; otherwise the service would stop it."""
        stop_s = 60.0 * intervals(self._profile, self.options.lease_s)["auto_stop_interval"]

        async def refresh() -> None:
            with sdk_errors("no report of activity"):
                await self._get_sandbox().refresh_activity(request_timeout=REQUEST_S)

        if stop_s:
            await keep_renewing(renewal_interval(stop_s, SHORTEST_INTERVAL_S), refresh)

    def _get_sandbox(self) -> Any:
        if self._sandbox is None:
            raise PlaceUnavailable("daytona: the target is not open")
        return self._sandbox

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        """Start a program through the relay, on a new connection if there is none.

        Raises:
            PlaceGone: the sandbox has ended.
            PlaceUnavailable: it cannot be reached; nothing ran.
        """
        async with self._connecting:
            if self._connection is None or self._connection.lost:
                self._connection = await self._connect(self._get_sandbox())
            connection = self._connection
        return connection.start(argv, receiver, env or {})

    async def _connect(self, sandbox: Any) -> Connection:
        connection = Connection(_PYTHONS, self._why_lost, self.options.keepalive_s)
        try:
            with sdk_errors("no terminal in the sandbox"):
                await connection.connect(sandbox)
        except PlaceUnavailable as error:
            why = await self._why_lost()
            if why:
                raise PlaceGone(f"daytona: {why}", remedy="open a new one") from error
            if isinstance(error, PlaceGone):  # a missing route does not mean that the sandbox has ended
                raise PlaceUnavailable(error.what, remedy=error.remedy) from error
            raise
        return connection

    async def _why_lost(self) -> str:
        """Describe how the sandbox has ended; empty while it runs, or if the service does not answer."""
        try:
            async with asyncio.timeout(_STATE_S):
                found = await self._service.get(self._get_sandbox().id)
        except PlaceGone:
            return "the sandbox was deleted"
        except (HermesError, TimeoutError):
            return ""
        return describe(found) if is_gone(str(found.state.value)) else ""

    async def preview(self, port: int) -> Preview:
        """Return the vendor's public address of a port of the sandbox, for others; ``Terminal.forward`` needs none.

        Raises:
            PlaceUnavailable: the service returned no address.
        """
        with sdk_errors(f"port {port} has no address"):
            link = await self._get_sandbox().get_preview_link(port, request_timeout=REQUEST_S)
        return Preview(str(link.url), str(link.token))

    async def snapshot(self, name: str | None = None) -> str:
        """Save the sandbox's disk as the snapshot ``name``.

        Raises:
            PlaceUnavailable: the service refused; the snapshot does not exist then.
        """
        wanted = name or f"hermes-exec-{secrets.token_hex(6)}"
        with sdk_errors(f"the snapshot {wanted!r} was not made"):
            await self._get_sandbox().create_snapshot(wanted, timeout=STATE_S)
        return f"daytona:snapshot:{wanted}"

    async def release(self) -> None:
        """Leave the sandbox running for its jobs: it is deleted after their time, or by ``doctor --reap``."""
        minutes = max(3, round(self._profile.job_lease_s / 60))
        await self._part(lambda: self._leave(minutes))

    async def _leave(self, minutes: int) -> None:
        if self._ours:
            sandbox, what = self._sandbox, f"sandbox {self._name!r} was not left to its jobs"
            left = {**sandbox.labels, labels.STATE: "jobs"}
            await persist(what, lambda: sandbox.set_autostop_interval(minutes, request_timeout=REQUEST_S))
            await persist(what, lambda: sandbox.set_labels(left, request_timeout=REQUEST_S))

    async def close(self, *, keep: bool = False) -> None:
        """Delete the sandbox; an existing one that was attached to is left unchanged.

        A sandbox that was left to its jobs, and that ``open`` reopened, is deleted once it has no jobs.
        With ``keep`` it is stopped, and remains until the next ``open`` by its name starts it again.
        """
        await self._part(lambda: self._dismiss(keep=keep))

    async def _dismiss(self, *, keep: bool) -> None:
        if self._ours and not keep:
            await delete(self._sandbox)
            return
        if self.options.reopen and not keep:
            await self._end_after_jobs()
            return
        if self._ours:
            await self._mark("kept")
        if self._ours or self._woken:
            sandbox = self._sandbox
            await persist(f"sandbox {self._name!r} was not stopped", lambda: sandbox.stop(timeout=STATE_S))
            if labels.LEASE in sandbox.labels:
                record_end(f"daytona:@{self._name}")

    async def _end_after_jobs(self) -> None:
        """Delete a sandbox that was left to jobs and has none; one that the profile names ends by its lease again."""
        found = await find_without_jobs(self._service, self._name)
        if found is not None and self._profile.name:
            self._sandbox = found
            await self._mark("open")
        elif found is not None:
            await delete(found)

    async def _part(self, farewell: Any) -> None:
        """Release the sandbox, after ``farewell``. Safe to call twice."""
        if self._sandbox is None:
            return
        if self._reporting is not None:
            self._reporting.cancel()
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                await connection.close()
            with contextlib.suppress(PlaceGone):
                await farewell()
        finally:
            self._sandbox, self._name = None, ""
            await self._service.close()
