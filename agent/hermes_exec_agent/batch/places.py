"""The targets of attempts: their opening with a short lease, their record, and the proof that one has ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import hermes_exec
from hermes_exec._async import create_or_rollback, shield_to_completion
from hermes_exec.backend import get_resource_id
from hermes_exec.errors import HermesError, PlaceUnavailable, ProtocolError
from hermes_exec.pool.journal import JournalEntry
from hermes_exec.pool.options import Pool
from hermes_exec.pool.owner import Owner
from hermes_exec.pool.pooled_terminal import plan_terminal
from hermes_exec.pool.recovery import Fate, Recovered, recover
from hermes_exec.terminal.encoding import encode
from hermes_exec.terminal.guest_records import GuestRecord
from hermes_exec.terminal.opening import create_terminal, open_transport, plan_open
from hermes_exec_agent.agent_shell import mark_plan

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Mapping

    from hermes_exec import Terminal
    from hermes_exec.config.plan import Plan
    from hermes_exec.config.profile import Profile
    from hermes_exec.transport import Transport
    from hermes_exec_agent.batch.run_folder import RunFolder
    from hermes_exec_agent.batch.trials import Trial

_log = logging.getLogger("hermes_exec.batch")
_MACHINES = frozenset({"local", "ssh", "slurm"})
"""Kinds of targets whose files outlast a terminal, so that each attempt gets a folder of its own."""
_NETWORKED = frozenset({"ssh", "slurm", "modal", "daytona"})
"""Kinds of targets that are the same ones on each machine."""
_PREFIX = "/tmp/hermes-trial."  # noqa: S108  a folder of mode 700 that must not exist
_GONE = "gone already"
_PREPARE_S = 60.0
_CLOSE_S = 60.0
_ENDING_S = 20.0
"""The lease of a process that ends what another one left."""
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_FAILURES = 3
"""Failures in a row after which a target is paused."""
_GIVE_UP = 8
"""Failures in a row after which a target is not opened again by this process."""


@dataclass(frozen=True, slots=True)
class AttemptPlace:
    """The open target of an attempt."""

    terminal: Terminal
    entry: JournalEntry
    """How to attach to it again."""
    folder: str | None
    """The working folder; None for that of the target."""
    own_folder: bool
    """Whether `prepare` creates it."""
    resource: str = ""
    """The identifier of the container or sandbox that was created for the attempt; empty if none was."""

    async def prepare(self) -> None:
        """Create the working folder.

        Raises:
            PlaceUnavailable: it could not be created.
        """
        if self.own_folder and self.folder:
            made = await self.terminal.run(["mkdir", "-m", "700", self.folder], timeout=_PREPARE_S, cwd="/")
            if not made.ok:
                raise PlaceUnavailable(f"{self.folder}: not created: {made.stderr_text.strip() or made.reason}")

    def to_record(self) -> dict[str, Any]:
        """Return the record by which another process ends it."""
        folder = self.folder if self.own_folder else None
        machine = "" if self.terminal.kind in _NETWORKED else _describe_machine()
        return {"entry": asdict(self.entry), "folder": folder, "resource": self.resource, "machine": machine}


@contextlib.asynccontextmanager
async def open_place(
    trial: Trial,
    attempt: int,
    lease_s: float,
    target: str | Profile | None = None,
    env: Mapping[str, str] | None = None,
) -> AsyncGenerator[AttemptPlace]:
    """Open the target of an attempt; it is closed, with all that runs in it, at the end.

    ``target`` and ``env`` replace those of the trial and its task.

    Raises:
        HermesError: it could not be opened; nothing ran. Or, at the end, it could not be closed: its lease ends it.
    """
    given = trial.task.env if env is None else env
    plan = await asyncio.to_thread(plan_open, target or trial.target, env=given, lease_s=lease_s)
    plan.job_lease_s = lease_s
    mark_plan(plan, trial.model)
    own = trial.task.cwd is None and plan.backend.type in _MACHINES
    # The key of a trial is the same in all runs of a task, which may run at the same time.
    folder = f"{_PREFIX}{trial.key}.{attempt}.{secrets.token_hex(4)}" if own else trial.task.cwd
    if folder:
        plan.session["cwd"] = encode(folder)
    carrier = await create_or_rollback(open_transport(plan), lambda opened: _close(plan, opened))
    try:
        place = _create_place(plan, carrier, trial, folder, own)
    except BaseException:
        await shield_to_completion(_close(plan, carrier), limit_s=_CLOSE_S)
        raise
    try:
        yield place
    finally:
        await shield_to_completion(_end(place), limit_s=_CLOSE_S)


def _create_place(plan: Plan, carrier: Transport, trial: Trial, folder: str | None, own: bool) -> AttemptPlace:  # noqa: FBT001  its field
    entry, resource = _describe(plan, carrier, trial.key), get_resource_id(plan.backend)
    if entry.guest is None and not resource:
        raise PlaceUnavailable(
            f"{plan.target}: it has no Python, so that the commands of a killed shard could not be ended there",
            remedy="a target with Python 3.6 or later, or a container of its own for each trial",
        )
    terminal = create_terminal(plan, carrier, plan.create_audit(wanted=None))
    return AttemptPlace(terminal, entry, folder, own, resource)


async def _close(plan: Plan, carrier: Transport) -> None:
    await carrier.close()
    await plan.backend.close()


async def _end(place: AttemptPlace) -> None:
    """Remove the working folder and close the target."""
    try:
        if place.own_folder and place.folder:
            with contextlib.suppress(HermesError):  # a target that is lost has ended already
                await _remove_folder(place.terminal, place.folder)
    finally:
        await place.terminal.close()


async def _remove_folder(terminal: Terminal, folder: str) -> None:
    """Remove a folder; once more if a process that was just ended created a file in it meanwhile."""
    argv = ["rm", "-rf", "--", folder]
    done = await terminal.run(argv, timeout=_PREPARE_S, cwd="/")
    if not done.ok:
        done = await terminal.run(argv, timeout=_PREPARE_S, cwd="/")
    if not done.ok:
        _log.warning("%s: not removed: %s", folder, done.stderr_text.strip() or done.reason)


def _describe(plan: Plan, carrier: Transport, key: str) -> JournalEntry:
    link = carrier.link
    try:
        guest = None if link is None else GuestRecord.from_identity(plan.target, link.identity)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the guest's description of itself is invalid: {error}") from error
    return JournalEntry(key[:16], plan.target, "", plan.target, guest, "" if link is None else link.client.hex())


def _describe_machine() -> str:
    """Return what distinguishes this machine from others that may have an engine of containers of their own."""
    owner = Owner.current()
    return f"{owner.host} {owner.boot} {owner.machine}"


async def end_place(record: dict[str, Any]) -> str:
    """End the target that a dead shard recorded; return how it ended, or an empty text if that is not proven.

    A target that is not found proves nothing if it was of another machine, such as a container of a node's own engine.
    """
    how = await _end_place(record)
    is_elsewhere = record.get("machine", "") not in ("", _describe_machine())
    return "" if how == _GONE and is_elsewhere else how


async def _end_place(record: dict[str, Any]) -> str:
    try:
        entry = JournalEntry.from_values(record["entry"])
    except (KeyError, TypeError, ValueError):
        return ""
    resource = record.get("resource")
    if isinstance(resource, str) and resource:
        return await _delete_target(entry, resource)
    if entry.guest is None:
        return ""
    how = await _end_client(entry)
    folder = record.get("folder")
    if how and isinstance(folder, str) and folder.startswith(_PREFIX):
        with contextlib.suppress(HermesError, OSError):  # the attempt has ended, which is what counts
            async with asyncio.timeout(_CLOSE_S), hermes_exec.open(entry.target, lease_s=_ENDING_S) as terminal:
                await _remove_folder(terminal, folder)
    return how


async def _delete_target(entry: JournalEntry, resource: str) -> str:
    """Delete the container or sandbox that the attempt created, with all that runs in it."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            plan = await plan_terminal(Pool(entry.target, lease_s=_ENDING_S), resource)
            await plan.backend.open()
            await plan.backend.close()
    except PlaceUnavailable as error:
        return _GONE if error.guest_is_gone else ""
    except (HermesError, OSError):
        return ""
    return "deleted"


async def _end_client(entry: JournalEntry) -> str:
    """End what the attempt's client runs in a guest of a machine."""
    pool = Pool(entry.target, lease_s=_ENDING_S)  # this process may be killed meanwhile, too
    found = cast("Recovered", await recover(entry, pool, attach=False))
    if found.fate is Fate.LEFT and not found.jobs:
        # A process that was killed here before is still a client of the guest. The client of the attempt has been
        # closed, which the second time proves: the guest ends all of a client before it forgets it.
        found = cast("Recovered", await recover(entry, pool, attach=False))
        if found.fate is Fate.LEFT and not found.jobs:
            return "ended"
    return {Fate.REAPED: "ended", Fate.GONE: _GONE}.get(found.fate, "")


def remove_leftovers(run: RunFolder) -> None:
    """Remove the working folders on this machine of attempts that have a result: their shard was killed here."""
    for path in Path(_PREFIX).parent.glob(f"{Path(_PREFIX).name}*"):
        key, _, rest = path.name.removeprefix(Path(_PREFIX).name).partition(".")
        number = rest.partition(".")[0]
        with contextlib.suppress(OSError, HermesError):
            is_ours = number.isdigit() and path.lstat().st_uid == os.getuid()
            if is_ours and run.has_trial(key) and run.read_result(key, int(number)) is not None:
                shutil.rmtree(path, ignore_errors=True)


class PlaceHealth:
    """Pauses the targets that keep failing to open: one attempt at a time tries again, after growing waits."""

    def __init__(self) -> None:
        self._failures: defaultdict[str, int] = defaultdict(int)
        self._until: dict[str, float] = {}
        self._probing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @contextlib.asynccontextmanager
    async def admit(self, target: str) -> AsyncGenerator[None]:
        """Wait until the target may be opened; the block opens it, and raises if that fails.

        Raises:
            PlaceUnavailable: it failed too often to be tried again.
        """
        if self._failures[target] < _FAILURES:
            with self._count(target):
                yield
            return
        async with self._probing[target]:
            if self._failures[target] >= _GIVE_UP:
                raise PlaceUnavailable(f"{target}: not tried again after {_GIVE_UP} failures in a row")
            await asyncio.sleep(max(self._until.get(target, 0.0) - time.monotonic(), 0.0))
            with self._count(target):
                yield

    @contextlib.contextmanager
    def _count(self, target: str) -> Generator[None]:
        try:
            yield
        except (HermesError, OSError):
            self._failures[target] += 1
            over = self._failures[target] - _FAILURES
            if over >= 0:
                pause = min(_FIRST_PAUSE_S * 2**over, _LONGEST_PAUSE_S)
                self._until[target] = time.monotonic() + pause
            raise
        else:
            self._failures[target] = 0

    @property
    def paused(self) -> list[str]:
        """The targets that are paused now."""
        now = time.monotonic()
        return sorted(target for target, until in self._until.items() if until > now)
