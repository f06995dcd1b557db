"""A gateway of the tests: a platform in this process, models that can be held, and what the suite needs."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from collections import defaultdict, deque
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from hermes_exec_agent.frontends.gateway import core
from hermes_exec_agent.frontends.gateway.adapter import (
    AdapterTraits,
    Choice,
    Incoming,
    NotSent,
    PlatformDown,
    Rejected,
    SendUnknown,
)
from hermes_exec_agent.frontends.gateway.core import Gateway
from hermes_exec_agent.frontends.gateway.records import GuestLimit
from hermes_exec_agent.frontends.gateway.rendering import to_plain
from hermes_exec_agent.frontends.gateway.store import Store
from hermes_exec_agent.frontends.gateway.turns import TurnConfig, Turns
from hermes_exec_agent.models import Models, ScriptedModel, say
from hermes_exec_agent.models.protocol import Text
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.tool import Approvals
from tests.rigs.bounded import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from pathlib import Path

    from hermes_exec_agent.frontends.gateway.adapter import Adapter
    from hermes_exec_agent.frontends.gateway.listener import Listener
    from hermes_exec_agent.frontends.gateway.records import Role
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Model, Reply, ToolChoice, ToolSpec
    from hermes_exec_agent.tools.tool import Mode

CODE = re.compile(r"pair ([A-Z2-9]{8})")


class PlatformRig(Protocol):
    """A platform under test, with accounts of people on it. Names of people are words; the rig maps them to ids."""

    redelivers: bool
    """Whether the platform keeps messages until they are acknowledged."""
    edits: bool

    def adapter(self) -> Adapter:
        """A new adapter, of the same account."""
        ...

    async def say(self, name: str, text: str, *, group: bool = False, mention: bool = False) -> None:
        """Write as a person: to the gateway alone, or in the group."""
        ...

    def texts(self, name: str) -> list[str]:
        """What a person read in the private chat so far, as text."""
        ...

    def group_texts(self) -> list[str]:
        """What the gateway wrote in the group."""
        ...

    async def fail(self, kind: str) -> None:
        """Let the next piece fail: ``unknown``, ``flood`` or ``rejected``."""
        ...

    async def cut(self) -> None:
        """End the gateway's connection."""
        ...


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
    edits = True

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


class Held:
    """A model that repeats the person's last words once it is let go; ``Held(go=True)`` does at once."""

    name = "held"
    window = 100_000
    scripted = True
    vision = False

    def __init__(self, *, go: bool = False) -> None:
        self.requests: list[str] = []
        self.images: list[str] = []
        """The content of the images of each request, in base64."""
        self.go = asyncio.Event()
        if go:
            self.go.set()

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> AsyncGenerator[Text | Reply]:
        last = next(each for each in reversed(messages) if each.role == "user")
        said = last.content
        self.requests.append(said)
        self.images += [each.data for each in last.images]
        await self.go.wait()
        yield Text(f"echo: {said}")
        yield say(f"echo: {said}")

    async def close(self) -> None:
        """Nothing is held."""


class Growing(Held):
    """A model whose answer begins with "first " and grows as the test says; then ``reply``, and later echoes."""

    def __init__(self, reply: Reply | None = None) -> None:
        super().__init__(go=True)
        self._reply = reply
        self._words: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self._text = "first "

    def more(self, text: str) -> None:
        """Write more."""
        self._words.put_nowait((text, False))

    def end(self, text: str) -> None:
        """Write the end."""
        self._words.put_nowait((text, True))

    async def stream(self, *args: Any, **options: Any) -> AsyncGenerator[Text | Reply]:
        if self._text and not self.requests:
            self.requests.append("first")
            yield Text(self._text)
            while True:
                text, is_end = await self._words.get()
                self._text += text
                if text:
                    yield Text(text)
                if is_end:
                    break
            yield self._reply or say(self._text)
            return
        async for item in super().stream(*args, **options):
            yield item


class Session:
    """One gateway over a folder, which can be stopped and started again."""

    def __init__(self, rigs: Sequence[PlatformRig], folder: Path) -> None:
        self.rigs = list(rigs)
        self.folder = folder
        self.now = 0.0
        """Seconds that the clock of the store is ahead."""
        self.log = EventLog(folder / "conversations.sqlite")
        self.store = self._open_store(50)
        self._task: asyncio.Task[None] | None = None

    @property
    def rig(self) -> Any:
        return self.rigs[0]

    def _open_store(self, requests: int) -> Store:
        path = self.folder / "gateway.sqlite"
        return Store(path, clock=lambda: time.time() + self.now, guests=GuestLimit(requests))

    async def start(
        self,
        *replies: Any,
        approve: str = "allow",
        guests: int = 50,
        grace_s: float = 0.0,
        model: Model | None = None,
        listener: Listener | None = None,
        draft_s: float = 1.0,
        largest_file: int = 1000,
    ) -> None:
        """Serve with a script, or with a model."""
        self.store.close()
        self.store = self._open_store(guests)
        other = ScriptedModel([say("The other one.")] * 9, name="other")
        models = Models(model or ScriptedModel(replies), named={"other": other})
        approvals = Approvals(cast("Mode", approve))
        config = TurnConfig("local", "local", approvals, str(self.folder), draft_s=draft_s, largest_file=largest_file)
        adapters = [each.adapter() for each in self.rigs]
        turns = Turns(self.store, self.log, models, config)
        gateway = Gateway(self.store, adapters, turns, self.log, grace_s=grace_s, listener=listener)
        connected: list[Adapter] = []
        self._task = asyncio.create_task(gateway.run(connected.append))
        await until(lambda: len(connected) >= len(adapters) or self._task is None or self._task.done())
        if self._task.done():
            self._task.result()

    async def kill(self) -> None:
        """End the gateway as a kill at this moment does: what it records from now on is lost."""
        path, copy = self.folder / "gateway.sqlite", self.folder / "copy.sqlite"
        with closing(sqlite3.connect(path)) as base, closing(sqlite3.connect(copy)) as other:
            base.backup(other)
        await self.stop(flush_s=0.0)
        self.store.close()
        for each in self.folder.glob("gateway.sqlite*"):
            each.unlink()
        copy.replace(path)
        self.store = self._open_store(50)

    async def stop(self, *, flush_s: float = 1.0) -> None:
        """End the gateway, which sends for so long what is left."""
        task, self._task = self._task, None
        before, core.FLUSH_S = core.FLUSH_S, flush_s
        try:
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        finally:
            core.FLUSH_S = before

    async def close(self) -> None:
        await self.stop()
        self.store.close()
        self.log.close()

    async def say(self, name: str, text: str, **kind: bool) -> None:
        """Write to the gateway and wait until it has recorded that."""
        await self.rig.say(name, text, **kind)

    async def read(self, name: str, wanted: str, count: int = 1) -> str:
        """Wait until a person has read ``count`` texts with these words; return the last of them."""

        def found() -> list[str]:
            return [text for text in self.rig.texts(name) if wanted in text]

        await until(lambda: len(found()) >= count, 30)
        return found()[-1]

    async def pair(self, name: str, person: str = "owner", role: Role | None = None) -> None:
        """Introduce a person as one does on the machine."""
        before = sum("gateway pair" in text for text in self.rig.texts(name))
        await self.say(name, "hello")
        code = CODE.search(await self.read(name, "gateway pair", before + 1))
        assert code is not None
        self.store.pair(code[1], person, role)
        await self.read(name, "Paired as", before + 1)

    def count(self, table: str) -> int:
        """The number of rows of a table."""
        with closing(sqlite3.connect(self.folder / "gateway.sqlite")) as base:
            return int(base.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def requests(self) -> list[str]:
        """All requests that reached a conversation, in order."""
        return [
            str(event.data["content"])
            for summary in reversed(self.log.conversations(100))
            for event in self.log.events(summary.id)
            if event.kind == "user"
        ]
