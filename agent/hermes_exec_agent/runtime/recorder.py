"""What happens is recorded before the conversation goes on, and what is recorded is what the model reads."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from hermes_exec._async import settled
from hermes_exec.errors import HermesError
from hermes_exec_agent.runtime.history import History

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events.event import Event, Kind
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.events.turn_lock import TurnLock


class Recorder:
    """The events of one conversation, in the log and as its history."""

    def __init__(self, log: EventLog, conversation: str) -> None:
        self.conversation = conversation
        self.history = History()
        self._log = log
        self._last = 0
        self._lock = asyncio.Lock()
        self._turn: TurnLock | None = None
        self._noted: list[tuple[Kind, dict[str, Any]]] = []

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._last

    async def load(self) -> list[Event]:
        """Read what was recorded before."""
        events = await asyncio.get_running_loop().run_in_executor(
            self._log.executor, self._log.events, self.conversation
        )
        self.history = History(events)
        self._last = events[-1].number if events else 0
        return events

    async def acquire(self, lease_s: float) -> list[Event]:
        """Hold the turn, and read what other programs added; gives that. See `EventLog.acquire_turn`."""
        await self.release()  # where that failed before
        loop = asyncio.get_running_loop()
        acquiring = loop.run_in_executor(self._log.executor, self._log.acquire_turn, self.conversation, lease_s)
        cancelled = await settled(acquiring)
        self._turn = acquiring.result()
        if cancelled:
            await self.release()
            raise asyncio.CancelledError
        try:
            added = await loop.run_in_executor(self._log.executor, self._log.events, self.conversation, self._last)
        except BaseException:
            await self.release()
            raise
        for event in added:
            self.history.add(event)
            self._last = event.number
        return added

    async def renew(self) -> None:
        """Begin the lease of the turn anew. See `EventLog.renew_turn`."""
        if self._turn is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._log.executor, self._log.renew_turn, self._turn)

    async def release(self) -> None:
        """Let another program have the turn. Where that cannot be written, the next `acquire` does it."""
        if self._turn is not None:
            with contextlib.suppress(HermesError):
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._log.executor, self._log.release_turn, self._turn)
                self._turn = None

    def drop_notes(self) -> None:
        """Forget what was noted for an event that is never recorded."""
        self._noted = []

    async def record(self, kind: Kind, data: dict[str, Any]) -> Event:
        """Keep an event. One whose recording is cancelled is kept nevertheless, and then the cancellation goes on.

        Raises:
            TurnLost: another program took this conversation over.
            HermesError: it could not be written; nothing was recorded.
        """
        async with self._lock:
            self.note(kind, data)
            events, self._noted = self._noted, []
            return await self._keep(events)

    def note(self, kind: Kind, data: dict[str, Any]) -> None:
        """Keep something together with the next event that is recorded, right before it."""
        self._noted.append((kind, data))

    async def _keep(self, events: list[tuple[Kind, dict[str, Any]]]) -> Event:
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._log.executor, self._append, events, self._last)
        cancelled = await settled(writing)
        kept = writing.result()
        for event in kept:
            self.history.add(event)
        self._last = kept[-1].number
        if cancelled:
            raise asyncio.CancelledError
        return kept[-1]

    def _append(self, events: list[tuple[Kind, dict[str, Any]]], after: int) -> list[Event]:
        return self._log.append_all(self.conversation, events, after=after, turn=self._turn)
