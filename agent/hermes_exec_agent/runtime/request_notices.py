"""The notices that accompany a request: of hooks, images, the journal, skills and memories; and those during a turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_exec._async import gather_or_cancel

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from hermes_exec_agent.memory.longterm.recall import Recaller
    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.tools.provenance import Provenance
    from hermes_exec_agent.tools.skill_recall import SkillRecall
    from hermes_exec_agent.tools.tool import Context


class Inbox:
    """Holds the person's words and the program's notices until the turn, or the next request, takes them."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._notices: list[str] = []

    def add_words(self, words: str) -> None:
        """Add words of the person."""
        self._words.append(words)

    def add_notice(self, notice: str) -> None:
        """Add a notice of the program."""
        self._notices.append(notice)

    def take_words(self) -> list[str]:
        """Return the words, once."""
        words, self._words = self._words, []
        return words

    def take_notices(self) -> list[str]:
        """Return the notices, once."""
        notices, self._notices = self._notices, []
        return notices


class RequestNotices:
    """Finds the notices of one conversation."""

    def __init__(
        self, context: Context, log: EventLog, inbox: Inbox, skill_recall: SkillRecall | None, *, is_delegated: bool
    ) -> None:
        """``skill_recall`` finds skills; None if the model cannot read them."""
        self._context = context
        self._log = log
        self._inbox = inbox
        self._skill_recall = skill_recall
        self._recaller: Recaller | None = None
        self._is_delegated = is_delegated

    def begin(self, events: Sequence[Event]) -> None:
        """Prepare the recall of memories; ``events`` are those of the conversation so far."""
        context = self._context
        if context.longterm is None:
            return
        from hermes_exec_agent.memory.longterm.recall import Recaller

        def is_own(conversation: str) -> bool:
            return self._log.start(conversation).person == context.participant.name

        own, tell = context.conversation, context.tell
        self._recaller = Recaller(context.longterm, context.journal, tell, own, events, is_own=is_own)

    async def read_journal(self, provenance: Provenance) -> str:
        """Return the end of the system message with what the journal holds; add its untrusted text to the sources."""
        journal = self._context.journal
        if journal is None:
            return ""
        from hermes_exec_agent.memory.prompt import read_prompt

        text, is_untrusted = await asyncio.to_thread(read_prompt, journal, self._context.tell)
        provenance.has_output = provenance.has_output or is_untrusted
        return text

    async def find(self, request: str, messages: Sequence[Message], images: Sequence[Image]) -> list[dict[str, object]]:
        """Return the notices for a request, as the log has them; ``messages`` are those that the model reads.

        Raises:
            HookRefused: a hook blocks the request.
        """
        parts = [_describe_image(image) for image in images]
        if self._context.hooks is not None and not self._is_delegated:
            parts += await self._context.hooks.check_prompt(request, self._context)
        parts.extend({"source": "program", "content": each} for each in self._inbox.take_notices())
        parts += await self._find_journal_changes(messages)
        shown = [message.content for message in messages] + [str(each["content"]) for each in parts]
        work: list[Coroutine[Any, Any, list[dict[str, object]]]] = []
        recall = self._skill_recall
        if recall is not None and (recall.registry_log is None or recall.registry_log.exists()):
            work.append(recall.find_parts(request, messages))
        if self._recaller is not None:
            work.append(self._recaller.find_parts(request, shown))
        for found in await gather_or_cancel(work):
            parts += found
        return parts

    async def _find_journal_changes(self, messages: Sequence[Message]) -> list[dict[str, object]]:
        """Return the notice of entries that were added to the journal, or left it, after the latest notice."""
        journal = self._context.journal
        if journal is None:
            return []
        from hermes_exec_agent.memory.prompt import read_changes

        text, is_untrusted = await asyncio.to_thread(read_changes, journal, messages, self._context.tell)
        self._context.provenance.has_output = self._context.provenance.has_output or is_untrusted
        return [{"source": "memory", "content": text}] if text else []


def _describe_image(image: Image) -> dict[str, object]:
    """Return the notice of an image, which stays where the image itself is left out."""
    return {"source": "image", "content": f"attached image: {image.describe()}", "has_output": True}
