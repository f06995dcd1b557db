"""The guests with jobs and kept shells, of all targets: connected while the page is open."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_exec._async import cancel_and_wait
from hermes_exec.cli.find_jobs import guests_with_jobs, record_ends
from hermes_exec.cli.jobs import job_to_json
from hermes_exec.errors import HermesError
from hermes_exec.terminal.guest_records import read_records
from hermes_exec.terminal.job import list_jobs
from hermes_exec.terminal.pty_status import list_ptys

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from hermes_exec.cli.find_jobs import Guest
    from hermes_exec.terminal.job_status import JobStatus
    from hermes_exec.terminal.pty_status import PtyStatus

T = TypeVar("T")
_log = logging.getLogger("hermes_exec.web")
IDLE_S = 60.0
"""Seconds without a reader after which the targets are disconnected."""
_LOOK_S = 5.0
"""Seconds that a guest has to answer."""
_EVERY_S = 1.0
_AGAIN_S = 15.0
"""Seconds before a guest that did not answer is tried again."""
_FRESH_S = 0.5
_WAIT_S = 1.0
"""Seconds that a list waits for slow guests."""


class PlaceMonitor:
    """Connects to the guests of each target in a task of its own, so that one that hangs delays no other one."""

    def __init__(self) -> None:
        self._guests: dict[str, Guest] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[str, float] = {}
        self._asked = 0.0
        self._streams = 0
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._entries: dict[str, list[dict[str, Any]]] = {}
        self._looked: dict[str, float] = {}
        self._recorded: set[str] = set()

    async def list_places(self) -> dict[str, Any]:
        """Return the jobs and kept shells of the guests that answer, and the targets that do not.

        A guest that is slow is shown as it was a moment ago.
        """
        self._begin()
        looks = [look for guest in list(self._guests.values()) if (look := self._start_look(guest)) is not None]
        if looks:
            await asyncio.wait(looks, timeout=_WAIT_S)
        records = read_records()
        waiting = dict[str, bool]()
        for each in records:
            if each.id not in self._entries:
                waiting[each.target] = waiting.get(each.target, False) or each.id in self._failed
        return {
            "places": [entry for each in records for entry in self._entries.get(each.id, ())],
            "waiting": [{"target": target, "failed": failed} for target, failed in waiting.items()],
        }

    async def find_job(self, guest: str, id: str, limit_s: float) -> tuple[Guest, JobStatus] | None:
        """Return a job and its guest, once the guest is connected; None if there is none.

        Raises:
            HermesError: the guest does not answer within the time.
        """
        if (found := await self._find(guest, limit_s)) is None:
            return None
        found.jobs[:] = await self._ask(found, list_jobs(found.link))
        return next(((found, each) for each in found.jobs if each.id == id), None)

    async def find_pty(self, guest: str, name: str, limit_s: float) -> tuple[Guest, PtyStatus] | None:
        """Return a kept shell and its guest, once the guest is connected; None if there is none.

        Raises:
            HermesError: the guest does not answer within the time.
        """
        if (found := await self._find(guest, limit_s)) is None:
            return None
        ptys = await self._ask(found, list_ptys(found.link))
        return next(((found, each) for each in ptys if each.name == name and each.keep_s), None)

    @contextmanager
    def stream(self) -> Generator[None]:
        """Keep the targets connected meanwhile."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1
            self._asked = time.monotonic()

    async def close(self) -> None:
        """Disconnect from all targets."""
        await cancel_and_wait([*self._tasks.values(), *self._looks.values()])

    def _drop(self, guest: Guest) -> None:
        """Disconnect from a target whose guest does not answer; it is tried again later."""
        if self._guests.get(guest.record.id) is not guest:
            return
        self._failed[guest.record.id] = time.monotonic()
        self._remove(guest.record.id)
        if task := self._tasks.get(guest.record.target):
            task.cancel()

    async def _find(self, guest: str, limit_s: float) -> Guest | None:
        ends = time.monotonic() + limit_s
        while guest not in self._guests:
            self._begin()
            record = next((each for each in read_records() if each.id == guest), None)
            if record is None:
                return None
            if time.monotonic() > ends:
                raise HermesError(f"{record.target} does not answer")
            await asyncio.sleep(0.1)
        return self._guests[guest]

    def _remove(self, guest: str) -> None:
        self._guests.pop(guest, None)
        self._entries.pop(guest, None)

    async def _ask(self, guest: Guest, question: Coroutine[Any, Any, T]) -> T:
        """Return the answer of a guest; disconnect from one that does not answer, which also ends the question.

        Raises:
            HermesError: it does not answer within the time.
        """
        asking = asyncio.ensure_future(question)
        try:
            await asyncio.wait([asking], timeout=_LOOK_S)
            if asking.done():
                return asking.result()
            self._drop(guest)
            raise HermesError(f"{guest.record.target} does not answer")
        finally:
            asking.cancel()

    def _begin(self) -> None:
        """Start a task for each target that has none."""
        self._asked = time.monotonic()
        for target in dict.fromkeys(each.target for each in read_records()):
            if target not in self._tasks:
                self._tasks[target] = asyncio.create_task(self._hold(target))
                self._tasks[target].add_done_callback(partial(self._forget, target))

    def _forget(self, target: str, _: asyncio.Task[None]) -> None:
        self._tasks.pop(target, None)

    async def _hold(self, target: str) -> None:
        """Connect to the guests of a target, also to new ones, while the page is open."""
        mine: set[str] = set()
        try:
            async with AsyncExitStack() as stack:
                while self._streams or time.monotonic() - self._asked < IDLE_S:
                    await self._connect(target, mine, stack)
                    await asyncio.sleep(_EVERY_S)
        except HermesError as error:
            _log.warning("%s: its jobs are not shown: %s", target, error)
        finally:
            for each in mine:
                self._remove(each)

    async def _connect(self, target: str, mine: set[str], stack: AsyncExitStack) -> None:
        """Connect to the guests of a target that are not connected, and did not fail just now."""
        now = time.monotonic()
        failed = {id for id, at in self._failed.items() if now - at < _AGAIN_S}
        wanted = {each.id for each in read_records() if each.target == target} - mine - failed
        if not wanted:
            return
        everything = {each.id for each in read_records()}
        for guest in await stack.enter_async_context(guests_with_jobs(known=everything - wanted)):
            mine.add(guest.record.id)
            self._guests[guest.record.id] = guest
            self._failed.pop(guest.record.id, None)
        self._failed.update(dict.fromkeys(wanted - mine, now))

    def _start_look(self, guest: Guest) -> asyncio.Task[None] | None:
        """Look at a guest, unless that was done just now; return the task."""
        id = guest.record.id
        if id not in self._looks and time.monotonic() - self._looked.get(id, 0.0) > _FRESH_S:
            self._looks[id] = asyncio.create_task(self._look(guest))
            self._looks[id].add_done_callback(lambda _: self._looks.pop(id, None))
        return self._looks.get(id)

    async def _look(self, guest: Guest) -> None:
        """Read the jobs and kept shells of a guest."""
        try:
            guest.jobs[:] = await self._ask(guest, list_jobs(guest.link))
            ptys = [each for each in await self._ask(guest, list_ptys(guest.link)) if each.keep_s]
        except HermesError as error:
            _log.warning("%s: its jobs are not shown: %s", guest.record.target, error)
            self._drop(guest)
            return
        ended = [each for each in guest.jobs if each.result is not None and each.id not in self._recorded]
        if ended:  # the whole audit is read for them
            await asyncio.to_thread(record_ends, [replace(guest, jobs=ended)])
            self._recorded.update(each.id for each in ended)
        if self._guests.get(guest.record.id) is guest:
            self._entries[guest.record.id] = _describe_guest(guest, ptys)
            self._looked[guest.record.id] = time.monotonic()


def _describe_guest(guest: Guest, ptys: list[PtyStatus]) -> list[dict[str, Any]]:
    target, id = guest.record.target, guest.record.id
    shells = [
        {
            "kind": "pty",
            "job": each.name,
            "target": target,
            **asdict(each),
            "state": "ended" if each.ended else "running",
        }
        for each in ptys
    ]
    return [{**each, "guest": id} for each in [*shells, *(job_to_json(target, job) for job in guest.jobs)]]
