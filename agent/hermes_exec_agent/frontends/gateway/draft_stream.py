"""Show an answer while a model writes it: the text so far becomes the draft of its message, at most once a second."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Self

from hermes_exec.errors import HermesError
from hermes_exec_agent.models.protocol import Retried, Text
from hermes_exec_agent.runtime.links import links_to_text
from hermes_exec_agent.runtime.updates import Replied

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hermes_exec_agent.frontends.gateway.records import Message
    from hermes_exec_agent.frontends.gateway.store import Store
    from hermes_exec_agent.runtime.updates import Update

_log = logging.getLogger("hermes_exec.gateway")
INTERVAL_S = 1.0


class DraftStream:
    """The draft of one message. An answer that is complete within the first second has none."""

    def __init__(
        self,
        store: Store,
        message: Message,
        notify: Callable[[], None],
        *,
        is_shown: bool,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """``notify`` is called after a change; ``is_shown`` is whether the platform can edit."""
        self._store = store
        self._message = message
        self._notify = notify
        self._is_shown = is_shown
        self._interval_s = interval_s
        self.hosts: Callable[[], Collection[str]] = tuple
        """Returns the hosts that the person named, which links may lead to."""
        self._text = ""
        self._is_complete = False
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._is_shown:
            self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            async with self._turn:  # a change that is being written is on the disk before the answer
                pass

    def update(self, update: Update) -> None:
        """Take an update of the turn. Each reply of the model begins another text."""
        match update:
            case Text():
                self._text = update.text if self._is_complete else self._text + update.text
                self._is_complete = False
                self._changed.set()
            case Retried():
                self._text = ""
            case Replied():
                self._is_complete = True
            case _:
                pass

    async def end(self) -> None:
        """Let the draft be a piece of its own, because another piece follows."""
        if self._is_shown:
            async with self._turn:
                text, self._text = self._text, ""
                await asyncio.to_thread(self._store.end_draft, self._message, self._to_shown(text))

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await asyncio.sleep(self._interval_s)
            try:
                await asyncio.shield(asyncio.ensure_future(self._write()))
            except HermesError as error:
                _log.warning("a draft was not written: %s", error)

    async def _write(self) -> None:
        async with self._turn:
            if self._text.strip():
                await asyncio.to_thread(self._store.put_draft, self._message, self._to_shown(self._text))
                self._notify()

    def _to_shown(self, text: str) -> str:
        return links_to_text(text.rstrip(), self.hosts()) if text else ""
