"""What happens is recorded before the conversation goes on, and what is recorded is what the model reads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.loop.history import History

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from hermes_exec_agent.events.event import Event, Kind
    from hermes_exec_agent.events.log import EventLog


class Recorder:
    """The events of one conversation, in the log and as its history."""

    def __init__(self, log: EventLog, conversation: str) -> None:
        self.conversation = conversation
        self.history = History()
        self._log = log
        self._last = 0
        self._lock = asyncio.Lock()
        self._noted: list[tuple[Kind, dict[str, Any]]] = []

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._last

    async def load(self) -> list[Event]:
        """Read what was recorded before."""
        events = await asyncio.get_running_loop().run_in_executor(self._writer, self._log.events, self.conversation)
        self.history = History(events)
        self._last = events[-1].number if events else 0
        return events

    async def record(self, kind: Kind, data: dict[str, Any]) -> Event:
        """Keep an event. One whose recording is cancelled is kept nevertheless, and then the cancellation goes on.

        Raises:
            Conflict: another program went on with this conversation.
            HermesError: it could not be written; nothing was recorded.
        """
        async with self._lock:
            noted, self._noted = self._noted, []
            for each in noted:
                await self._keep(*each)
            return await self._keep(kind, data)

    def note(self, kind: Kind, data: dict[str, Any]) -> None:
        """Keep what happened inside of a call: it is written before the next event, which is the call's result."""
        self._noted.append((kind, data))

    async def _keep(self, kind: Kind, data: dict[str, Any]) -> Event:
        loop = asyncio.get_running_loop()
        writing = loop.run_in_executor(self._writer, self._append, kind, data, self._last)
        cancelled = False
        while not writing.done():
            try:
                await asyncio.wait([writing])
            except asyncio.CancelledError:
                cancelled = True
        event = writing.result()
        self._last = event.number
        self.history.add(event)
        if cancelled:
            raise asyncio.CancelledError
        return event

    @property
    def _writer(self) -> Executor:
        return self._log.executor

    def _append(self, kind: Kind, data: dict[str, Any], after: int) -> Event:
        return self._log.append(self.conversation, kind, data, after=after)
