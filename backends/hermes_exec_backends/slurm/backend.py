"""Run commands on the nodes of a Slurm allocation, requested in the outer target (a login node, or this machine).

The allocation is a batch job that only waits (``scripts.py``), so it needs no process in the outer target: it outlives
a broken connection by the lease, and ends by itself. Every channel is a separate step on the first node that shares all
resources of the job (``srun --overlap``). One more step is the presence of the orchestrator: its end informs the job
that the orchestrator is gone, and informs the orchestrator that the job has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from hermes_exec._async import create_or_rollback, shield_to_completion
from hermes_exec.backend import OpenOptions
from hermes_exec.errors import PlaceGone, PlaceUnavailable
from hermes_exec.transport.shell.target import run_helper
from hermes_exec.wrapper import ArgvAndEnv, Wrapper
from hermes_exec_backends._shared.lease_process import LeaseProcess
from hermes_exec_backends.slurm import scripts
from hermes_exec_backends.slurm.options import submit_options
from hermes_exec_backends.slurm.queue import Standing, build_unavailable, standing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Backend, BackendTraits, Channel, Check, Receiver
    from hermes_exec.config.profile import Profile
    from hermes_exec_backends.profiles.slurm import SlurmProfile

_log = logging.getLogger("hermes_exec.slurm")
progress = logging.getLogger("hermes_exec.progress")
"""Progress messages of slow operations."""

_STEP_S = 120.0
_POLL_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SETTLING = 20
"""The number of checks of a job that is ending, half a second apart."""
_WARN_S = 300.0
"""Seconds before the time limit at which a warning is logged; at once when less is left."""


class SlurmBackend(Wrapper):
    """An allocation of this project, or an existing job."""

    type: ClassVar[str] = "slurm"
    features: ClassVar[frozenset[str]] = frozenset({"gpu"})

    def __init__(self, profile: SlurmProfile, outer: Backend | None = None) -> None:
        super().__init__(outer)
        self.options = OpenOptions.from_profile(profile)
        self.profile = self._profile = profile
        self._job = ""
        self._nodes = ""
        self._presence: LeaseProcess | None = None
        self._warning: asyncio.TimerHandle | None = None

    @property
    def own_target(self) -> str:
        """Return ``slurm``, or the target with the number of the existing job."""
        from hermes_exec.config.targets import format_target

        return format_target(self._profile)

    @property
    def traits(self) -> BackendTraits:
        """Return the traits; Slurm sends streams over plain TCP, and the GPU of an existing job is unknown."""
        wants_gpu = self._profile.gpus not in {None, "0"}
        has_gpu = wants_gpu and (self.options.reopen or not self._profile.job)
        return replace(super().traits, needs_checksum=True, features=self.features if has_gpu else frozenset())

    @property
    def own_resource_id(self) -> str:
        """The job ID of an allocation that this project created."""
        return self._job if self._ours else ""

    @property
    def _ours(self) -> bool:
        """Return whether this project requested the job, and so must end it."""
        return self.options.take_ownership or not self._profile.job

    @property
    def job(self) -> str:
        """Return the job ID of the allocation while it is open."""
        return self._job

    @classmethod
    def nest(cls, profile: Profile, outer: Backend) -> Backend:
        """Return a backend that requests its allocation in the outer target."""
        from hermes_exec_backends.profiles.slurm import SlurmProfile

        assert isinstance(profile, SlurmProfile)  # noqa: S101  the registry pairs them
        return cls(profile, outer)

    @classmethod
    async def doctor(cls, profile: Profile | None = None) -> list[Check]:  # noqa: ARG003  PATH has them
        """Check Slurm's commands on this machine, and whether a controller answers."""
        from hermes_exec_backends.slurm.doctor import examine

        return await examine()

    async def enter(self) -> None:
        """Request the allocation, and wait in the queue for as long as it takes.

        Raises:
            PlaceUnavailable: Slurm refuses it, or it ended before it began; nothing remains in the queue.
            PlaceGone: the job to reopen has ended.
        """
        self._job = self._profile.job or ""
        if not self._job:
            self._job = await create_or_rollback(self._submit(), self._cancel)
        try:
            now = await self._wait_until_begun()
            self._nodes = now.nodes
            self._presence = await self._be_present()
        except BaseException:
            if not self._profile.job:
                await shield_to_completion(self._cancel(self._job))
            raise
        if now.left_s is not None:
            delay = max(0.0, now.left_s - _WARN_S)
            self._warning = asyncio.get_running_loop().call_later(delay, self._warn, now.left_s - delay)

    def wrap_argv(self, argv: Sequence[str | bytes], env: Mapping[str, str]) -> ArgvAndEnv:
        """Return the argv of a step that shares the job's resources; two ``--quiet`` silence srun about failures."""
        words = [os.fsdecode(word) for word in argv]
        if ":" in words:  # srun takes it for the separator between two steps
            argv = ["/bin/sh", "-c", f"exec {shlex.join(words)}"]
        return [*self._step(), "--quiet", "/bin/sh", "-c", scripts.ENTER, self._nodes, *argv], env

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, *, env: Mapping[str, str] | None = None
    ) -> Channel:
        """Start a step, unless the allocation has ended.

        Raises:
            PlaceGone: the allocation has ended; includes the reason.
        """
        if self._presence is not None and self._presence.ended:
            await self._return()
        return await super().spawn(argv, receiver, env=env)

    async def leave(self, *, keep: bool) -> None:
        """End the allocation; with ``keep`` it remains for the lease, or at most for its jobs and their time."""
        presence, self._presence = self._presence, None
        if self._warning is not None:
            self._warning.cancel()
        if presence is None:
            return
        try:
            if self._ours and not keep:
                await self._cancel(self._job)
        finally:
            presence.disconnect()

    async def _submit(self) -> str:
        script = scripts.placeholder(self.options.lease_s)
        reply = await run_helper(self.outer, ["sbatch", "--parsable", *submit_options(self._profile)], script)
        job = reply.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2].partition(";")[0]
        if reply.exit.code != 0 or not job.isdigit():
            raise build_unavailable(f"slurm: no allocation at {self.outer.target}", reply.failure)
        return job

    async def _wait_until_begun(self) -> Standing:
        told = ""
        for pause in (*_POLL_S, *([_POLL_S[-1]] * 1_000_000)):
            now = await standing(self.outer, self._job)
            if now.running:
                return now
            if not now.waiting and self.options.reopen:
                raise self._build_gone_error(now)
            if not now.waiting:
                what = f"slurm: the allocation {self._job} ended before it began: {now.why_ended}"
                raise PlaceUnavailable(what, remedy="squeue --me, which lists your allocations")
            expected = f", expected to begin at {now.start}" if now.start not in {"", "N/A"} else ""
            why = f": {now.why_waiting}" if now.why_waiting else ""
            text = f"slurm: allocation {self._job} waits in the queue{why}{expected}"
            if text != told:
                progress.info("%s", text)
                told = text
            await asyncio.sleep(pause)
        raise PlaceUnavailable("slurm: waited for a lifetime")

    async def _be_present(self) -> LeaseProcess:
        argv = [*self._step(), "/bin/sh", "-c", scripts.PRESENCE, scripts.PRESENCE_NAME]
        try:
            return await LeaseProcess.start(self.outer, argv, patience_s=_STEP_S, on_end=self._presence_ended)
        except PlaceUnavailable as error:
            raise PlaceUnavailable(f"slurm: no step starts in allocation {self._job}: {error.what}") from error

    async def _return(self) -> None:
        now = await self._wait_until_settled()
        if not now.running:
            raise self._build_gone_error(now)
        self._presence = await self._be_present()

    def _build_gone_error(self, now: Standing) -> PlaceGone:
        return PlaceGone(f"slurm: the allocation {self._job} is gone: {now.why_ended}", remedy="open the target again")

    async def _wait_until_settled(self) -> Standing:
        """Return the job's state once it has finished ending, because only then the state shows why it ended."""
        for _ in range(_SETTLING):
            now = await standing(self.outer, self._job)
            if now.state != "COMPLETING":
                return now
            await asyncio.sleep(_POLL_S[2])
        return await standing(self.outer, self._job)

    def _presence_ended(self, how: str) -> None:
        _log.warning("slurm: allocation %s: %s", self._job, how.rpartition("\n")[2])

    def _warn(self, left_s: float) -> None:
        _log.warning(
            "slurm: allocation %s ends in %.0f s, at its time limit. Try: save what is needed, or ask for more `time`",
            self._job,
            left_s,
        )

    async def _cancel(self, job: str) -> None:
        await run_helper(self.outer, ["scancel", "--quiet", job])

    def _step(self) -> list[str]:
        where = ["--relative=0", "--nodes=1", "--ntasks=1"]
        return ["srun", f"--jobid={self._job}", "--overlap", *where, "--unbuffered", "--quiet"]
