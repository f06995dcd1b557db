"""A platform of the tests, in this process, with faults."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hermes_exec_agent.frontends.gateway.adapter import (
    AdapterTraits,
    Choice,
    Incoming,
    NotSent,
    PlatformDown,
    Rejected,
    SendUnknown,
)
from hermes_exec_agent.frontends.gateway.rendering import to_plain

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence


@dataclass(frozen=True, slots=True)
class Sent:
    chat: str
    text: str
    choices: tuple[Choice, ...]
    at: float
    key: str
    file: bytes | None = None


class Hub:
    """A platform in this process. It keeps a message until an adapter has accepted it."""

    redelivers = True

    def __init__(
        self,
        platform: str = "hub",
        *,
        longest: int = 300,
        interval_s: float = 0.0,
        repeat: Literal["never", "key", "find"] = "never",
        repeat_s: float = 60.0,
    ) -> None:
        self.platform = platform
        self.longest = longest
        self.interval_s = interval_s
        self.repeat: Literal["never", "key", "find"] = repeat
        self.repeat_s = repeat_s
        self.sent: list[Sent] = []
        self.tries: list[Sent] = []
        self.held = asyncio.Event()
        """Set when an adapter waits: after the piece arrived ("held"), or before ("stuck"), without an end; before,
        until it is ``released`` ("slow")."""
        self.released = asyncio.Event()
        self.never_closes = False
        self.before_send: Callable[[], Awaitable[object]] | None = None
        self.waiting: deque[Incoming] = deque()
        self.faults: deque[str] = deque()
        self.forgets_acknowledgements = False
        self.retry_s = 0.3
        """The wait that a refusal for too many pieces states."""
        self._numbers: dict[str, int] = defaultdict(int)
        self._changed = asyncio.Event()
        self._cut = asyncio.Event()

    def adapter(self) -> HubAdapter:
        return HubAdapter(self)

    async def say(self, name: str, text: str, *, group: bool = False, mention: bool = False) -> None:
        chat = "group" if group else name
        self._numbers[chat] += 1
        self.post(Incoming(chat, str(self._numbers[chat]), f"id-{name}", text, is_group=group, is_mention=mention))

    async def edit(self, name: str, text: str) -> None:
        self.post(Incoming(name, str(self._numbers[name]), f"id-{name}", text, is_edit=True))

    def post(self, incoming: Incoming) -> None:
        self.waiting.append(incoming)
        self._changed.set()

    def texts(self, name: str) -> list[str]:
        return [each.text for each in self.sent if each.chat == name]

    def group_texts(self) -> list[str]:
        return self.texts("group")

    async def fail(self, kind: str) -> None:
        self.faults.append(kind)

    async def cut(self) -> None:
        self._cut.set()

    def keep(self, sent: Sent) -> None:
        """Take a piece; where keys count, the same one once."""
        self.tries.append(sent)
        if self.repeat != "key" or all(each.key != sent.key for each in self.sent):
            self.sent.append(sent)

    async def serve(self, accept: Callable[[Incoming], Awaitable[None]]) -> None:
        self._cut.clear()
        while True:
            while self.waiting:
                await accept(self.waiting[0])
                if self.forgets_acknowledgements:
                    await accept(self.waiting[0])
                self.waiting.popleft()
            self._changed.clear()
            ending = {asyncio.ensure_future(each.wait()) for each in (self._changed, self._cut)}
            try:
                await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in ending:
                    each.cancel()
            if self._cut.is_set():
                raise PlatformDown("the hub went away")


@asynccontextmanager
async def open_hub() -> AsyncGenerator[Hub]:
    """Open a platform for one session."""
    yield Hub()


class HubAdapter:
    """The adapter of a hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.platform = hub.platform
        self.account = "one"
        self.traits = AdapterTraits(
            hub.longest, "bytes", hub.interval_s, has_buttons=True, largest_file=1000, repeat=hub.repeat,
            repeat_s=hub.repeat_s,
        )  # fmt: skip

    async def receive(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        ready()
        await self._hub.serve(accept)

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = (), *, key: str) -> str:
        if self._hub.before_send is not None:
            await self._hub.before_send()
        fault = self._hub.faults.popleft() if self._hub.faults else ""
        if fault == "flood":
            raise NotSent("too fast", retry_s=self._hub.retry_s)
        if fault == "rejected":
            raise Rejected("no such chat")
        if fault == "stuck":
            self._hub.held.set()
            await asyncio.Event().wait()
        if fault == "slow":
            self._hub.held.set()
            await self._hub.released.wait()
        if fault == "lost":
            raise SendUnknown("no answer came")
        self._hub.keep(Sent(chat, text, tuple(choices), time.monotonic(), key))
        if fault == "held":
            self._hub.held.set()
            await asyncio.Event().wait()
        if fault == "unknown":
            raise SendUnknown("no answer came")
        return str(len(self._hub.sent))

    async def send_file(self, chat: str, name: str, content: bytes, *, key: str) -> str:
        self._hub.keep(Sent(chat, name, (), time.monotonic(), key, content))
        return str(len(self._hub.sent))

    async def find(self, chat: str, key: str) -> str | None:
        if self._hub.faults and self._hub.faults[0] == "blind":
            self._hub.faults.popleft()
            raise SendUnknown("the history cannot be read")
        found = (str(number) for number, each in enumerate(self._hub.sent) if each.chat == chat and each.key == key)
        return next(found, None)

    def render(self, text: str) -> str:
        return to_plain(text)

    async def close(self) -> None:
        """Nothing is held."""
        if self._hub.never_closes:
            await asyncio.Event().wait()
