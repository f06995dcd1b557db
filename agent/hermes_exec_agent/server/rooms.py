"""Conversations whose places stay open between requests, so that a shell goes on where it stopped."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.loop import Conversation, Options


class Busy(HermesError):
    """The conversation, or the whole server, has enough to do; nothing ran."""


@dataclass(slots=True, eq=False)
class _Room:
    conversation: Conversation
    stack: AsyncExitStack
    taken: bool = True
    leaving: asyncio.TimerHandle | None = field(default=None)


class Rooms:
    """At most ``most`` open conversations; one that nobody needs closes after ``keep_s`` seconds, or for another."""

    def __init__(
        self, open: Callable[[str, Options], AbstractAsyncContextManager[Conversation]], *, most: int, keep_s: float
    ) -> None:
        """``open`` opens a conversation: an id to resume, or an empty one for a new one."""
        self._open = open
        self._most = most
        self._keep_s = keep_s
        self._rooms: dict[str, _Room] = {}
        self._entering: set[str] = set()
        self._opening = 0
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many are open, or about to be."""
        return len(self._rooms) + self._opening

    @asynccontextmanager
    async def entered(self, id: str, options: Options) -> AsyncGenerator[Conversation]:
        """A conversation for one turn; nobody else has it meanwhile.

        Raises:
            Busy: somebody has it, or all that are open are in use.
            HermesError: its place cannot be opened.
        """
        room = await self._taken(id, options)
        try:
            yield room.conversation
        finally:
            room.taken = False
            self._rooms[room.conversation.id] = self._rooms.pop(
                room.conversation.id
            )  # the last one used is the last to go
            loop = asyncio.get_running_loop()
            room.leaving = loop.call_later(self._keep_s, self._leave, room)

    async def close(self) -> None:
        """Close them all. Whoever is in one is to have left."""
        for room in list(self._rooms.values()):
            self._leave(room)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _taken(self, id: str, options: Options) -> _Room:
        room = self._rooms.get(id)
        if id in self._entering or (room is not None and room.taken):
            raise Busy(f"conversation {id} is in use", remedy="its turn has to end first")
        if room is not None:
            room.taken = True
            if room.leaving is not None:
                room.leaving.cancel()
            return room
        if len(self) >= self._most and not self._free_one():
            raise Busy(f"all of {self._most} conversations are in use", remedy="the same later")
        self._opening += 1
        self._entering |= {id} if id else set()
        stack = AsyncExitStack()
        try:
            conversation = await stack.enter_async_context(self._open(id, options))
        finally:
            self._opening -= 1
            self._entering.discard(id)
        room = self._rooms[conversation.id] = _Room(conversation, stack)
        return room

    def _free_one(self) -> bool:
        idle = next((room for room in self._rooms.values() if not room.taken), None)
        if idle is not None:
            self._leave(idle)
        return idle is not None

    def _leave(self, room: _Room) -> None:
        if room.taken or self._rooms.get(room.conversation.id) is not room:
            return
        del self._rooms[room.conversation.id]
        if room.leaving is not None:
            room.leaving.cancel()
        task = asyncio.create_task(room.stack.aclose())
        self._closing.add(task)
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            import logging

            logging.getLogger("hermes_exec.server").warning("a place did not close well: %s", error)
