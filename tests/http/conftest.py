"""The server in a thread of this process, with real HTTP around it and a script in the model's place."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec_agent.frontends.http.app import Server, ServerConfig
from hermes_exec_agent.frontends.http.guard import RequestGuard, list_host_names
from hermes_exec_agent.frontends.http.listener import serve_until_cancelled
from hermes_exec_agent.models import Models, ScriptedModel, say
from hermes_exec_agent.models.protocol import Text
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.absent_person import AbsentPerson
from hermes_exec_agent.tools.tool import Approvals
from tests.cli.conftest import cli, nap, running, until

if TYPE_CHECKING:
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Reply, ToolChoice, ToolSpec

__all__ = ["cli", "nap", "running", "until"]

TOKEN = "a token of tests, not short"


class Held:
    """A model that begins to answer, and ends when it is let go."""

    name = "held"
    window = 100_000
    scripted = True

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        """Released when a reply begins."""
        self.ended = threading.Semaphore(0)
        """Released when a reply is over, however it ended."""
        self.go: concurrent.futures.Future[None] = concurrent.futures.Future()

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> AsyncGenerator[Text | Reply]:
        """``So far.``"""
        try:
            self.begun.release()
            yield Text("So ")
            await asyncio.shield(asyncio.wrap_future(self.go))
            yield Text("far.")
            yield say("So far.")
        finally:
            self.ended.release()

    async def close(self) -> None:
        """Nothing is held."""


class Served:
    """A server that runs."""

    _loop: asyncio.AbstractEventLoop
    _task: asyncio.Task[None]

    def __init__(self, log: EventLog, server: Server, where: tuple[str, int] | Path, grace_s: float) -> None:
        self.log = log
        self.server = server
        self.url = ""
        """The base of its API."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(server, where, grace_s))
        self._thread.start()
        assert self._ready.wait(30)

    @property
    def root(self) -> str:
        """Its address."""
        return self.url.removesuffix("/v1")

    def tell_to_stop(self) -> None:
        """Tell it to end."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._task.cancel)

    def stop(self) -> None:
        """Wait until it ended, which it is told once if it was not yet."""
        if not self._told:
            self.tell_to_stop()
        self._thread.join(60)
        assert not self._thread.is_alive()

    @property
    def _told(self) -> bool:
        return self._task.cancelling() > 0 or self._task.done()

    def _run(self, server: Server, where: tuple[str, int] | Path, grace_s: float) -> None:
        async def until_stopped() -> None:
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.ensure_future(
                serve_until_cancelled(server, where, grace_s=grace_s, listening=self._listening)
            )
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

        asyncio.run(until_stopped())

    def _listening(self, url: str) -> None:
        self.url = url if url.startswith("unix:") else f"{url}/v1"
        self._ready.set()


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Serve]:
    """``serve(say("hello"))``: a script, or a model; and what an `Offer` takes."""
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:

        def start(
            *said: Any, token: str | None = TOKEN, at: Path | None = None, grace_s: float = 30.0, **offer: Any
        ) -> Served:
            model = said[0] if said and hasattr(said[0], "stream") else ScriptedModel(said)
            other = ScriptedModel([say("The other one.")], name="scripted: other")
            log = stack.enter_context(EventLog(tmp_path / "conversations.sqlite"))
            settings: dict[str, Any] = {
                "target": "local",
                "models": Models(model, named={"other": other}),
                "why": None,
                "log": log,
                "cwd": str(tmp_path),
                "approvals": Approvals("allow"),
                "person": AbsentPerson(),
                **offer,
            }
            guard = RequestGuard(
                Secret("TOKEN", token) if token else None, list_host_names("127.0.0.1", ["agent.test"])
            )
            served = Served(log, Server(ServerConfig(**settings), guard), at or ("127.0.0.1", 0), grace_s)
            stack.callback(served.stop)
            return served

        yield start
