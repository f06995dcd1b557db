"""Conversations whose places stay open between requests, so that a shell goes on where it stopped."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.runtime import Conversation, Options


class PoolExhausted(HermesError):
    """All conversations that may be open are in use; nothing ran."""


class ConversationInUse(HermesError):
    """A turn of this very conversation runs; nothing ran."""


@dataclass(slots=True, eq=False)
class _OpenConversation:
    conversation: Conversation
    stack: AsyncExitStack
    taken: bool = True
    left: float = 0.0
    """When its last turn ended, in the loop's time."""
    leaving: asyncio.TimerHandle | None = field(default=None)


class ConversationPool:
    """At most ``most`` open conversations; one that nobody needs closes after ``keep_s`` seconds, or for another.

    One in which commands run in the background stays open until these have ended, or for ``idle_s`` seconds; then it
    ends, and they end with it.
    """

    def __init__(
        self,
        open: Callable[[str, Options], AbstractAsyncContextManager[Conversation]],
        *,
        most: int,
        keep_s: float,
        idle_s: float,
    ) -> None:
        """``open`` opens a conversation: an id to resume, or an empty one for a new one."""
        self._open = open
        self._most = most
        self._keep_s = keep_s
        self._idle_s = idle_s
        self._open_conversations: dict[str, _OpenConversation] = {}
        self._entering: set[str] = set()
        self._opening = 0
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many are open, or about to be."""
        return len(self._open_conversations) + self._opening

    @asynccontextmanager
    async def acquire(self, id: str, options: Options) -> AsyncGenerator[Conversation]:
        """A conversation for one turn; nobody else has it meanwhile.

        Raises:
            InUse: a turn of it runs.
            Busy: all that are open are in use.
            HermesError: its place cannot be opened.
        """
        room = await self._take(id, options)
        try:
            yield room.conversation
        finally:
            room.taken = False
            self._open_conversations[room.conversation.id] = self._open_conversations.pop(
                room.conversation.id
            )  # the last one used is the last to go
            loop = asyncio.get_running_loop()
            room.left = loop.time()
            room.leaving = loop.call_later(self._keep_s, self._close_if_idle, room)

    def _close_if_idle(self, room: _OpenConversation) -> None:
        """Its time is over, unless commands run in the background."""
        self._track(asyncio.create_task(self._leave_or_wait(room)))

    async def _leave_or_wait(self, room: _OpenConversation) -> None:
        loop = asyncio.get_running_loop()
        left, rest_s = room.left, room.left + self._idle_s - loop.time()
        runs = False
        if rest_s > 0:
            with suppress(HermesError):  # the place is lost, and what ran there with it
                runs = await room.conversation.runs_in_background()
        if room.taken or room.left != left:
            return  # a turn began meanwhile
        if runs:
            room.leaving = loop.call_later(min(self._keep_s, rest_s), self._close_if_idle, room)
        else:
            self._leave(room)

    async def close(self) -> None:
        """Close them all. Whoever is in one is to have left."""
        for room in list(self._open_conversations.values()):
            self._leave(room)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _take(self, id: str, options: Options) -> _OpenConversation:
        room = self._open_conversations.get(id)
        if id in self._entering or (room is not None and room.taken):
            raise ConversationInUse(f"conversation {id}: a turn of it runs", remedy="again when that has ended")
        if room is not None:
            room.taken = True
            if room.leaving is not None:
                room.leaving.cancel()
            return room
        if len(self) >= self._most and not self._free_one():
            raise PoolExhausted(f"all of {self._most} conversations are in use", remedy="the same later")
        self._opening += 1
        self._entering |= {id} if id else set()
        stack = AsyncExitStack()
        try:
            conversation = await stack.enter_async_context(self._open(id, options))
        finally:
            self._opening -= 1
            self._entering.discard(id)
        room = self._open_conversations[conversation.id] = _OpenConversation(conversation, stack)
        return room

    def _free_one(self) -> bool:
        idle = [room for room in self._open_conversations.values() if not room.taken]
        idle.sort(key=lambda room: room.conversation.background)  # the longest unused first, of both kinds
        if idle:
            self._leave(idle[0])
        return bool(idle)

    def _leave(self, room: _OpenConversation) -> None:
        if room.taken or self._open_conversations.get(room.conversation.id) is not room:
            return
        del self._open_conversations[room.conversation.id]
        if room.leaving is not None:
            room.leaving.cancel()
        self._track(asyncio.create_task(room.stack.aclose()))

    def _track(self, task: asyncio.Task[None]) -> None:
        self._closing.add(task)
        task.add_done_callback(self._log_failure)

    def _log_failure(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            import logging

            logging.getLogger("hermes_exec.server").warning("a place did not close well: %s", error)
