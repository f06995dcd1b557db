"""Run commands in a Modal sandbox: one that is created and later ended, or an existing one.

Every channel is an exec of its own, whose streams go to the sandbox's worker (``channel``). The sandbox's first process
belongs to this project (``lease``): it ends, and with it the sandbox, when the orchestrator has vanished and the lease
has expired.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, ClassVar, cast

from hermes_exec.backend import Backend, BackendTraits, Channel, Check, Leftover, OpenOptions, Receiver, Resource
from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec_backends._shared import cost_guard, labels
from hermes_exec_backends._shared.lease import keep_renewing, renewal_interval
from hermes_exec_backends._shared.prices import estimate_modal
from hermes_exec_backends.modal import create, migration, options, persistence
from hermes_exec_backends.modal.account import Account, limit_throttling
from hermes_exec_backends.modal.file_streams import FileStreams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.modal.sandbox import Sandbox
    from hermes_exec_backends.profiles.modal import ModalProfile

_FOR_EVER_S = 30 * 86400
_log = logging.getLogger("hermes_exec.place")


class ModalBackend(Backend):
    """A sandbox of the account of the profile's token, or of Modal's own settings."""

    type: ClassVar[str] = "modal"
    features: ClassVar[frozenset[str]] = frozenset({"keep", "snapshot", "gpu"})
    handover: Callable[[], Awaitable[Callable[[], Awaitable[None]]]] | None = None

    def __init__(self, profile: ModalProfile) -> None:
        limit_throttling()
        self.options = OpenOptions.from_profile(profile)
        self.profile = self._profile = profile
        self._account: Account | None = None
        self._sandbox: Sandbox | None = None
        self._ours = False
        self._created: float | None = None
        """The creation time of an existing sandbox, in seconds since 1970."""
        self._kept = ""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def target(self) -> str:
        """Return ``modal:@ID`` while the sandbox exists, ``modal:im-ID`` once it is kept, else ``modal:IMAGE``."""
        if self._sandbox is not None:
            return f"modal:@{self._sandbox.id}"
        return f"modal:{self._kept}" if self._kept else self._profile.target_text()

    @property
    def resource_id(self) -> str:
        """The ID of a sandbox that this project created."""
        return self._sandbox.id if self._sandbox is not None and self._ours else ""

    @property
    def traits(self) -> BackendTraits:
        """Return the traits; the image's own Python, which is first on its PATH, is preferred to the system's.

        A sandbox whose profile asks for a longer life than the vendor permits migrates.
        """
        return BackendTraits(
            features=self.features if self._profile.gpu not in {None, "0"} else self.features - {"gpu"},
            pythons=("python3", "/usr/local/bin/python3", "/usr/bin/python3", "/usr/libexec/platform-python"),
            migrates=self._ours and self._profile.timeout > options.LONGEST_S,
        )

    @property
    def bulk_transfer(self) -> FileStreams:
        """Return transfers with a separate exec for each large file."""
        return FileStreams(self._there)

    @classmethod
    def from_profile(cls, profile: Profile) -> ModalBackend:
        """Return a backend with the options of a ``ModalProfile``."""
        return cls(cast("ModalProfile", profile))

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:
        """Check the SDK, the token, the service, and the account's limits."""
        from hermes_exec_backends.modal.doctor import checks

        return await checks(cast("ModalProfile | None", profile))

    @classmethod
    async def reap(cls) -> list[Leftover]:
        """Terminate expired sandboxes of this project, on the account that is found without a profile."""
        from hermes_exec_backends.modal.cleanup import reap

        return await reap()

    @classmethod
    async def list_resources(cls, profile: Profile | None = None) -> list[Resource]:
        """List the running sandboxes of this project in the profile's app, or in the default app."""
        from hermes_exec_backends.modal.cleanup import list_resources

        return await list_resources(cast("ModalProfile | None", profile))

    async def open(self) -> None:
        """Create the sandbox, or find the existing one.

        Raises:
            ConfigError: an option is wrong, or the cost guard forbids it; nothing was created.
            PlaceUnavailable: no SDK, no token, no such sandbox, or Modal refused; nothing remains.
            PlaceGone: the sandbox to reopen has ended.
        """
        profile = self._profile
        account = self._account = await Account.of(profile)
        self._created = None
        try:
            if profile.sandbox:
                self._sandbox = await create.attach(account, profile.sandbox, returning=self.options.reopen)
                self._ours = self.options.take_ownership and await self._take_over(self._sandbox)
            else:
                self._sandbox = await self._find_existing() or await self._new()
                self._ours = True
        except BaseException:
            self._sandbox = self._account = None
            await account.leave()
            raise
        if self._ours:
            loop = asyncio.get_running_loop()
            renewing = keep_renewing(renewal_interval(self.options.lease_s), self._renew)
            self._tasks = [loop.create_task(renewing), loop.create_task(self._move())]

    async def _find_existing(self) -> Sandbox | None:
        """Return the running sandbox of the profile's name, if there is one."""
        profile = self._profile
        found = await create.find(self._get_account(), profile, profile.name) if profile.name else None
        if found is not None:
            await self._take_over(found)
        return found

    async def _take_over(self, sandbox: Sandbox) -> bool:
        """Return whether this project created the sandbox; if so, renew its lease and read its age."""
        told = await self._get_account().call("modal: its tags", sandbox.handle.get_tags.aio())
        self._created = labels.read_created(told)
        if self._created is None:
            return False
        price = estimate_modal(self._profile.cpu, self._profile.memory, self._profile.gpu)
        cost_guard.check_age(self._profile, self._created, time.time(), price)
        await sandbox.renew(self.options.lease_s)
        return True

    async def _new(self) -> Sandbox:
        profile, account = self._profile, self._get_account()
        image = (
            await persistence.find_kept_image(account, profile, create.image_name(profile)) if profile.name else None
        )
        return await create.create(account, profile, self.options.lease_s, image)

    async def _renew(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.renew(self.options.lease_s)

    async def _move(self) -> None:
        """Migrate to a new sandbox with the same files, each time before the vendor ends the present one."""
        age_s = time.time() - self._created if self._created is not None else 0.0
        profile = self._profile
        longest_s = cost_guard.longest_s(profile, estimate_modal(profile.cpu, profile.memory, profile.gpu))
        left_s = min(float(profile.timeout), longest_s or math.inf)
        while left_s > options.LONGEST_S:
            await migration.announce(self.target, age_s)
            left_s -= options.LONGEST_S - migration.BEFORE_S
            age_s = 0.0
            await self._go_on_elsewhere(self._there(), left_s)

    async def _go_on_elsewhere(self, sandbox: Sandbox, left_s: float) -> None:
        arrive = await self.handover() if self.handover is not None else None
        try:
            account, lease_s = self._get_account(), self.options.lease_s
            self._sandbox = await migration.move(account, self._profile, sandbox, lease_s, left_s)
        except HermesError as error:
            _log.error("%s could not be moved: %s", self.target, error.what)
        if arrive is not None:
            await arrive()

    def _get_account(self) -> Account:
        if self._account is None:
            raise PlaceUnavailable("modal: the target is not open")
        return self._account

    def _there(self) -> Sandbox:
        if self._sandbox is None:
            raise PlaceUnavailable("modal: the target is not open")
        return self._sandbox

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        """Start an exec."""
        return await self._there().spawn(argv, receiver, env or {})

    async def snapshot(self, name: str | None = None) -> str:
        """Save the sandbox's files as an image, published as ``name`` if given, until the user deletes it.

        Raises:
            PlaceUnavailable: it could not be created.
        """
        return f"modal:{await persistence.save_image(self._get_account(), self._profile, self._there(), name or '')}"

    async def tunnels(self) -> dict[int, tuple[str, int]]:
        """Return the public addresses of the profile's ``ports``: host and port of each.

        Raises:
            PlaceUnavailable: Modal does not answer.
        """
        found = await self._get_account().call("modal: the tunnels", self._there().handle.tunnels.aio())
        return {port: tunnel.tcp_socket for port, tunnel in found.items()}

    async def release(self) -> None:
        """Leave the sandbox running for its jobs; it ends after the last one, or when their time is used up."""
        await self._part(lambda sandbox: sandbox.renew(0))

    async def close(self, *, keep: bool = False) -> None:
        """End the sandbox that ``open`` created; one that was found by its ID is left unchanged.

        With ``keep`` its files become an image, from which the next ``open`` of a profile with the same name continues.

        Raises:
            PlaceUnavailable: its files could not be kept, or Modal does not confirm that it ended; its lease ends it.
        """
        await self._part(self._hibernate if keep else lambda sandbox: sandbox.terminate())

    async def _hibernate(self, sandbox: Sandbox) -> None:
        self._kept = await persistence.hibernate(self._get_account(), self._profile, sandbox)

    async def _part(self, farewell: Callable[[Sandbox], Awaitable[None]]) -> None:
        """Release the sandbox, after ``farewell`` if this project created it. Safe to call twice."""
        sandbox, account, ours = self._sandbox, self._account, self._ours
        for task in self._tasks:
            task.cancel()
        self._tasks, self._ours = [], False
        if sandbox is None or account is None:
            return
        try:
            if ours:
                await farewell(sandbox)
        finally:
            self._sandbox = None
            await sandbox.detach()
            self._account = None
            await account.leave()
