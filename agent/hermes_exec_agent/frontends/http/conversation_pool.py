"""A pool of conversations whose targets stay open between requests, so that their shells keep their state."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.memory.persons import Participant
    from hermes_exec_agent.runtime import Conversation, Options


_TURNS_S = 60.0
"""Seconds in which turns that were interrupted end."""


class PoolExhausted(HermesError):
    """The limit of open conversations is reached, and all are in use; nothing ran."""


class ConversationInUse(HermesError):
    """A turn of this conversation is running; nothing ran."""


@dataclass(slots=True, eq=False)
class _OpenConversation:
    conversation: Conversation
    stack: AsyncExitStack
    taken: bool = True
    left: float = 0.0
    """The loop's time at the end of its last turn."""
    leaving: asyncio.TimerHandle | None = field(default=None)


class ConversationPool:
    """At most ``most`` open conversations. An idle one closes after ``keep_s`` seconds, or to make entry for another.

    A conversation with background commands stays open until they have ended, for ``idle_s`` seconds at most; then they
    end with it.
    """

    def __init__(
        self,
        open: Callable[[str, Options, Participant], AbstractAsyncContextManager[Conversation]],
        *,
        most: int,
        keep_s: float,
        idle_s: float,
    ) -> None:
        """``open`` opens the conversation with an id, or a new one of a person if the id is empty."""
        self._open = open
        self._most = most
        self._keep_s = keep_s
        self._idle_s = idle_s
        self._open_conversations: dict[str, _OpenConversation] = {}
        self._entering: set[str] = set()
        self._opening = 0
        self._released = asyncio.Event()
        """Set when a turn ends."""
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Return the number of open and opening conversations."""
        return len(self._open_conversations) + self._opening

    @property
    def is_idle(self) -> bool:
        """Whether no turn runs, and no conversation is opening."""
        return not self._opening and all(not each.taken for each in self._open_conversations.values())

    @asynccontextmanager
    async def acquire(self, id: str, options: Options, participant: Participant) -> AsyncGenerator[Conversation]:
        """Yield a conversation for the exclusive use of one turn.

        Raises:
            InUse: a turn of it is running.
            Busy: all open conversations are in use.
            HermesError: its target cannot be opened.
        """
        entry = await self._take(id, options, participant)
        try:
            yield entry.conversation
        finally:
            entry.taken = False
            self._released.set()
            id = entry.conversation.id
            self._open_conversations[id] = self._open_conversations.pop(id)  # keep the order of use
            loop = asyncio.get_running_loop()
            entry.left = loop.time()
            entry.leaving = loop.call_later(self._keep_s, self._close_if_idle, entry)

    def _close_if_idle(self, entry: _OpenConversation) -> None:
        """Close an idle conversation, unless it has background commands."""
        self._track(asyncio.create_task(self._leave_or_wait(entry)))

    async def _leave_or_wait(self, entry: _OpenConversation) -> None:
        loop = asyncio.get_running_loop()
        left, rest_s = entry.left, entry.left + self._idle_s - loop.time()
        runs = False
        if rest_s > 0:
            with suppress(HermesError):  # the target is lost, with its commands
                runs = await entry.conversation.runs_in_background()
        if entry.taken or entry.left != left:
            return  # a turn began meanwhile
        if runs:
            entry.leaving = loop.call_later(min(self._keep_s, rest_s), self._close_if_idle, entry)
        else:
            self._leave(entry)

    async def close(self) -> None:
        """Close all conversations, once their turns have ended, which were interrupted before."""
        give_up = asyncio.get_running_loop().time() + _TURNS_S
        while any(entry.taken for entry in self._open_conversations.values()):
            self._released.clear()
            try:
                async with asyncio.timeout_at(give_up):
                    await self._released.wait()
            except TimeoutError:
                break
        for entry in list(self._open_conversations.values()):
            self._leave(entry)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _take(self, id: str, options: Options, participant: Participant) -> _OpenConversation:
        entry = self._open_conversations.get(id)
        if id in self._entering or (entry is not None and entry.taken):
            raise ConversationInUse(f"conversation {id}: a turn is running", remedy="try again after its end")
        if entry is not None:
            entry.taken = True
            if entry.leaving is not None:
                entry.leaving.cancel()
            return entry
        if len(self) >= self._most and not self._free_one():
            raise PoolExhausted(f"all of {self._most} conversations are in use", remedy="try again later")
        self._opening += 1
        self._entering |= {id} if id else set()
        stack = AsyncExitStack()
        try:
            conversation = await stack.enter_async_context(self._open(id, options, participant))
        finally:
            self._opening -= 1
            self._entering.discard(id)
        entry = self._open_conversations[conversation.id] = _OpenConversation(conversation, stack)
        return entry

    def _free_one(self) -> bool:
        idle = [entry for entry in self._open_conversations.values() if not entry.taken]
        idle.sort(
            key=lambda entry: entry.conversation.background
        )  # the longest unused first, without background commands before others
        if idle:
            self._leave(idle[0])
        return bool(idle)

    def _leave(self, entry: _OpenConversation) -> None:
        if entry.taken or self._open_conversations.get(entry.conversation.id) is not entry:
            return
        del self._open_conversations[entry.conversation.id]
        if entry.leaving is not None:
            entry.leaving.cancel()
        self._track(asyncio.create_task(entry.stack.aclose()))

    def _track(self, task: asyncio.Task[None]) -> None:
        self._closing.add(task)
        task.add_done_callback(self._log_failure)

    def _log_failure(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            import logging

            logging.getLogger("hermes_exec.server").warning("a conversation failed to close: %s", error)
