"""The data of ``top``: guests with jobs and kept shells, terminals of orchestrators, and billable resources."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hermes_exec._async import create_or_rollback
from hermes_exec.cli.console import note
from hermes_exec.cli.find_jobs import connect_guest, refresh_guest
from hermes_exec.cli.open_target import plan_target
from hermes_exec.errors import HermesError
from hermes_exec.pool.journal import Journal
from hermes_exec.pool.owner import Liveness
from hermes_exec.terminal.guest_records import read_records

if TYPE_CHECKING:
    from hermes_exec.cli.find_jobs import Guest
    from hermes_exec.pool.journal import JournalEntry
    from hermes_exec.terminal.guest_records import GuestRecord

_RETRY_S = 30.0
"""Seconds until a guest that did not answer is tried again."""
_BILLED_EVERY_S = 60.0
"""Seconds between two questions to the vendors of clouds."""


@dataclass(slots=True)
class WatchedGuest:
    """A recorded guest, and the connection to it, if there is one."""

    record: GuestRecord
    state: str = "connecting"
    guest: Guest | None = None


class Watcher:
    """Follows everything of the core that ``top`` shows. Each guest has a task, so that a slow one delays no other."""

    def __init__(self, on: str | None, every_s: float) -> None:
        self._on = on
        self._every_s = every_s
        self.guests: dict[str, WatchedGuest] = {}
        self.pooled: list[JournalEntry] = []
        """Terminals of orchestrators whose processes live."""
        self.billed: list[dict[str, Any]] = []
        """Resources as ``backends --cost --json`` lists them."""
        self.ended_today: float = 0.0
        """US dollars that targets cost since midnight that have ended."""

    async def run(self) -> None:
        """Follow everything until the task is cancelled."""
        target = None if self._on is None else plan_target(self._on).target
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_bills())
            while True:
                try:
                    records = await asyncio.to_thread(read_records)
                    self.pooled = await asyncio.to_thread(list_pooled)
                except (HermesError, OSError) as error:
                    note(str(error))
                    records = []
                for record in records:
                    if record.id not in self.guests and target in {None, record.target}:
                        self.guests[record.id] = watched = WatchedGuest(record)
                        tasks.create_task(self._watch(watched))
                await asyncio.sleep(self._every_s)

    async def _watch(self, watched: WatchedGuest) -> None:
        async with connect_guest(watched.record) as guest:
            watched.guest = guest
            watched.state = "no answer" if guest is None else "connected"
            try:
                while guest is not None:
                    await asyncio.sleep(self._every_s)
                    await refresh_guest(guest)
            except HermesError as error:
                watched.state, watched.guest = "no answer", None
                note(f"{watched.record.target}: {error}")
        await asyncio.sleep(_RETRY_S if guest is None else self._every_s)
        del self.guests[watched.record.id]

    async def _watch_bills(self) -> None:
        while True:
            self.billed, self.ended_today = await read_billed()
            await asyncio.sleep(_BILLED_EVERY_S)


def list_pooled() -> list[JournalEntry]:
    """Return the terminals of orchestrators whose processes live."""
    journal = Journal()
    alive = [folder for folder, life in journal.find_others().items() if life is not Liveness.DEAD]
    return [entry for folder in alive for entry in journal.entries(folder)]


async def read_billed() -> tuple[list[dict[str, Any]], float]:
    """Return running billable resources, and the cost of those that ended since midnight.

    The SDKs of vendors run in a process of their own: an import takes seconds.
    """
    argv = program("--quiet", "backends", "--cost", "--json")
    null = asyncio.subprocess.DEVNULL
    starting = asyncio.create_subprocess_exec(*argv, stdin=null, stdout=asyncio.subprocess.PIPE, stderr=null)
    child = await create_or_rollback(starting, _end)  # cancelled while it starts, asyncio never returns
    try:
        output, _ = await child.communicate()
    finally:
        await _end(child)
    try:
        document: Any = json.loads(output)
        alive: Any = document["alive"]
        ended = float(document["ended_today"]["cost"])
    except (ValueError, KeyError, TypeError):
        return [], 0.0
    rows = cast("list[object]", alive) if isinstance(alive, list) else []
    return [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)], ended


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.kill()
        await child.wait()


def program(*argv: str) -> list[str]:
    """Return the argv of another ``hermes-exec`` with these arguments."""
    return [sys.executable, "-P", "-m", "hermes_exec", *argv]
