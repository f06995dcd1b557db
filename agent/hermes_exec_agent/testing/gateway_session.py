"""A gateway in this process for the conformance suite of adapters: what a rig provides, models, and the session."""

from __future__ import annotations

import asyncio
import inspect
import re
import sqlite3
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

from hermes_exec_agent.frontends.gateway import core
from hermes_exec_agent.frontends.gateway.core import Gateway
from hermes_exec_agent.frontends.gateway.records import GuestLimit
from hermes_exec_agent.frontends.gateway.store import Store
from hermes_exec_agent.frontends.gateway.turns import TurnConfig, Turns
from hermes_exec_agent.models import Models, ScriptedModel, say
from hermes_exec_agent.models.protocol import Text
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.tool import Approvals

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
    from pathlib import Path

    import pytest

    from hermes_exec_agent.frontends.gateway.adapter import Adapter
    from hermes_exec_agent.frontends.gateway.listener import Listener
    from hermes_exec_agent.frontends.gateway.records import Role
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Model, Reply, ToolChoice, ToolSpec
    from hermes_exec_agent.tools.tool import Mode

CODE = re.compile(r"pair ([A-Z2-9]{8})")
_PATIENCE_S = 120.0
_LIMIT_S = 60.0


async def until(holds: Callable[[], object], within_s: float = _PATIENCE_S) -> None:
    """Wait until something holds that sets no event; fail after ``within_s`` seconds."""
    give_up = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < give_up, "it did not come"
        await asyncio.sleep(0.01)


class PlatformRig(Protocol):
    """A platform under test, with accounts of people on it. Names of people are words; the rig maps them to ids."""

    redelivers: bool
    """Whether the platform keeps messages until they are acknowledged."""

    def adapter(self) -> Adapter:
        """Return a new adapter, of the same account."""
        ...

    async def say(self, name: str, text: str, *, group: bool = False, mention: bool = False) -> None:
        """Write as a person, in a private chat with the gateway or in the one group, and wait until it has recorded that.

        A platform that keeps messages need not wait.
        """
        ...

    def texts(self, name: str) -> list[str]:
        """Return what a person read in the private chat so far, without marks of the platform."""
        ...

    def group_texts(self) -> list[str]:
        """Return what the gateway wrote in the group."""
        ...

    async def fail(self, kind: str) -> None:
        """Let the next piece fail.

        ``unknown``: it may have arrived; ``flood``: the platform takes it after a short time; ``rejected``: it takes it
        never; ``gone``, of an `EditRig`: the message to edit was deleted.
        """
        ...

    async def cut(self) -> None:
        """End the connection of the adapter, which raises `PlatformDown`; it can connect again."""
        ...


class FileRig(PlatformRig, Protocol):
    """A platform with files. Its adapter takes files of at most 1,000 bytes."""

    async def attach(
        self,
        name: str,
        content: bytes,
        text: str = "",
        *,
        file_name: str = "",
        mime_type: str = "",
        size: int | None = None,
    ) -> None:
        """Write a message with a file as a person; ``size`` is what the platform states, if that is wrong."""
        ...

    def files(self, name: str) -> list[tuple[str, bytes]]:
        """Return the names and contents of the files that a person got."""
        ...


class EditRig(PlatformRig, Protocol):
    """A platform that can change a message."""

    changes: list[tuple[Any, ...]]
    """The edits of the gateway; the last part of each is its time, of the monotonic clock."""


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

        def list_matches() -> list[str]:
            return [text for text in self.rig.texts(name) if wanted in text]

        await until(lambda: len(list_matches()) >= count, 30)
        return list_matches()[-1]

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
            return int(base.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608  a name in a test

    def requests(self) -> list[str]:
        """All requests that reached a conversation, in order."""
        return [
            str(event.data["content"])
            for summary in reversed(self.log.conversations(100))
            for event in self.log.events(summary.id)
            if event.kind == "user"
        ]


def behaviour(test: Callable[[Any, Session], Coroutine[Any, Any, None]]) -> Any:
    """Return a test that runs a coroutine method with a session, whose gateway serves the platform of the fixture ``rig``."""

    def run(self: Any, rig: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

        async def run_bounded() -> None:
            async with asyncio.timeout(_LIMIT_S), rig() as platform:
                session = Session([platform], tmp_path)
                try:
                    await test(self, session)
                finally:
                    await session.close()

        asyncio.run(run_bounded())

    run.__name__, run.__doc__ = test.__name__, inspect.getdoc(test)
    return run
