"""Runs: turns that go on without a client, with a status, a stream of events, a stop, and approvals by request."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import secrets
import time
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from hermes_exec._async import cancel_and_wait, shield_to_completion
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.frontends.http import protocol, turns
from hermes_exec_agent.frontends.http.responses import format_usage
from hermes_exec_agent.runtime.links import LinkFilter, links_to_text
from hermes_exec_agent.runtime.updates import CallEnded, CallStarted, Replied, Retried, Text, Warned
from hermes_exec_agent.tools.absent_person import AbsentPerson

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from hermes_exec_agent.frontends.http.metrics import Metrics
    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.runtime import Conversation
    from hermes_exec_agent.runtime.updates import Update

_log = logging.getLogger("hermes_exec.server")
_MOST_EVENTS = 10_000
_MOST_RUNS = 200
_KEEP_S = 3600.0
_APPROVAL_S = 600.0
_PREVIEW = 300

Status = Literal["running", "waiting_for_approval", "stopping", "completed", "incomplete", "failed", "cancelled"]
ENDED = frozenset({"completed", "incomplete", "failed", "cancelled"})


class RunRequest(BaseModel):
    """A request to begin a run."""

    model_config = ConfigDict(extra="forbid")

    input: str = Field(min_length=1)
    model: str = Field(default="", max_length=200)
    session_id: str = Field(default="", max_length=100)
    instructions: str = ""
    person: str = Field(default="", max_length=64)

    @property
    def conversation(self) -> str:
        """The id of the conversation to continue; empty for a new one."""
        return self.session_id

    @property
    def request(self) -> str:
        """The text of the user."""
        return self.input

    @property
    def images(self) -> tuple[Image, ...]:
        """No images; an item with one is refused."""
        return ()

    @property
    def history(self) -> tuple[Message, ...]:
        """No earlier messages: the conversation has them."""
        return ()


class Decision(BaseModel):
    """The answer to a question of a run."""

    model_config = ConfigDict(extra="forbid")

    choice: Literal["once", "deny"]
    approval_id: str = Field(max_length=64)
    """The question that is answered, so that no answer approves a call that its client has not seen."""


@dataclass(frozen=True, slots=True)
class Question:
    """A call of a tool that waits for the answer of a client."""

    tool: str
    summary: str
    asked_at: float
    """Seconds since 1970."""
    answer: asyncio.Future[bool]


class Run:
    """One run; its events are kept for clients that come later."""

    def __init__(self) -> None:
        self.id = f"run_{secrets.token_hex(12)}"
        self.conversation: Conversation | None = None
        self.status: Status = "running"
        self.output = ""
        self.usage: dict[str, Any] | None = None
        self.error = ""
        self.ended_at: float | None = None
        self.task: asyncio.Task[None] | None = None
        self._events: deque[tuple[int, dict[str, Any]]] = deque(maxlen=_MOST_EVENTS)
        self._count = 0
        self._changed = asyncio.Event()
        self._questions: dict[str, Question] = {}

    def add(self, event: str, **payload: Any) -> None:
        """Add an event."""
        self._count += 1
        record = {"event": event, "run_id": self.id, "timestamp": round(time.time(), 3), **payload}
        self._events.append((self._count, record))
        self._changed.set()
        self._changed = asyncio.Event()

    async def follow(self, after: int) -> AsyncGenerator[tuple[int, dict[str, Any]] | None]:
        """Yield the events after a number as they come, until the run has ended; None after a long silence."""
        while True:
            changed = self._changed
            first = self._events[0][0] if self._events else 0
            kept = list(itertools.islice(self._events, max(after + 1 - first, 0), None))
            if kept and kept[0][0] > after + 1:
                yield kept[0][0] - 1, {"event": "events.lost", "run_id": self.id, "count": kept[0][0] - after - 1}
            for number, record in kept:
                after = number
                yield number, record
            if self.status in ENDED:
                return
            if kept:
                continue
            try:
                async with asyncio.timeout(turns.SILENCE_S):
                    await changed.wait()
            except TimeoutError:
                yield None

    def to_json(self) -> dict[str, Any]:
        """Return the state."""
        return {
            "object": "hermes.run", "run_id": self.id, "status": self.status, "output": self.output,
            "usage": self.usage, "error": self.error or None, "approvals": list(self._questions),
            "session_id": self.conversation.id if self.conversation is not None else "",
            "model": self.conversation.model.name if self.conversation is not None else "",
        }  # fmt: skip

    async def ask(self, tool: str, summary: str) -> bool:
        """Ask the client whether a call may run; no answer within ten minutes means no."""
        id = secrets.token_hex(6)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._questions[id] = Question(tool, summary, time.time(), answer)
        if self.status == "running":
            self.status = "waiting_for_approval"
        self.add("approval.request", approval_id=id, tool=tool, summary=summary)
        try:
            async with asyncio.timeout(_APPROVAL_S):
                return await answer
        except TimeoutError:
            return False
        finally:
            del self._questions[id]
            if self.status == "waiting_for_approval" and not self._questions:
                self.status = "running"
            allowed = answer.done() and not answer.cancelled() and answer.result()
            self.add("approval.responded", approval_id=id, allowed=bool(allowed))

    def decide(self, decision: Decision) -> None:
        """Answer a question.

        Raises:
            UsageError: there is no such question, or it was answered.
        """
        question = self._questions.get(decision.approval_id)
        if question is None or question.answer.done():
            raise UsageError("no such question waits")
        question.answer.set_result(decision.choice == "once")

    def list_questions(self) -> Iterator[dict[str, Any]]:
        """Yield the questions that wait."""
        for id, each in self._questions.items():
            if not each.answer.done():
                yield {
                    "run_id": self.id, "approval_id": id, "tool": each.tool, "summary": each.summary,
                    "asked_at": round(each.asked_at, 3), "expires_at": round(each.asked_at + _APPROVAL_S, 3),
                    "session_id": self.conversation.id if self.conversation is not None else "",
                }  # fmt: skip


_RUN: ContextVar[Run | None] = ContextVar("run", default=None)
"""The run that a turn belongs to, in the tasks of that turn."""


class RequestApprover(AbsentPerson):
    """Asks the client of a run; no other request has one that can be asked."""

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        """Ask; see `AbsentPerson.approve`."""
        run = _RUN.get()
        if run is None:
            return await super().approve(tool, summary, scope)
        return await run.ask(tool, summary)


class RunRegistry:
    """The runs of a server."""

    def __init__(self, metrics: Metrics, clean: Callable[[str], str]) -> None:
        """``clean`` removes secrets from texts."""
        self._metrics = metrics
        self._clean = clean
        self._runs: dict[str, Run] = {}

    def find(self, id: str) -> Run | None:
        """Return a run; None if there is none, or it ended long ago."""
        return self._runs.get(id)

    def list_all(self) -> list[Run]:
        """Return the runs, the oldest first."""
        return list(self._runs.values())

    async def start(self, acquired: AbstractAsyncContextManager[Conversation], model: str, text: str) -> Run:
        """Begin a run in a conversation, and return it once its target is open.

        Raises:
            HermesError: the conversation cannot be acquired; nothing ran.
        """
        self._forget()
        run = Run()
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        run.task = asyncio.create_task(self._run(run, acquired, model, text, opened))
        self._runs[run.id] = run
        try:
            await asyncio.wait([opened, run.task], return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():
                await run.task
        except BaseException:  # its client is gone, or it could not be opened
            del self._runs[run.id]
            await shield_to_completion(cancel_and_wait([run.task]), limit_s=None)
            raise
        return run

    def _forget(self) -> None:
        """Forget runs that ended long ago, and the oldest ended ones if there are many."""
        ended = [run for run in self._runs.values() if run.ended_at is not None]
        many = ended[: max(len(self._runs) - _MOST_RUNS, 0)]
        for run in ended:
            if run in many or time.monotonic() - (run.ended_at or 0) > _KEEP_S:
                del self._runs[run.id]

    async def _run(
        self,
        run: Run,
        acquired: AbstractAsyncContextManager[Conversation],
        model: str,
        text: str,
        opened: asyncio.Future[None],
    ) -> None:
        async with acquired as conversation:
            conversation.set_model(model)
            run.conversation = conversation
            opened.set_result(None)
            _RUN.set(run)
            run.add("run.started", session_id=conversation.id)
            try:
                await self._turn(run, conversation, text)
            except asyncio.CancelledError:
                self._end(run, "cancelled")
                raise
            except HermesError as error:
                run.error = self._clean(str(error))
                self._end(run, "failed", error=run.error)
            except Exception:  # noqa: BLE001  its client learns of it, and the log has it
                run.error = "internal error"
                self._end(run, "failed", error=run.error)
                _log.exception("a run failed", extra={"conversation": conversation.id})

    async def _turn(self, run: Run, conversation: Conversation, text: str) -> None:
        links = LinkFilter(lambda piece: run.add("message.delta", delta=piece), lambda: conversation.hosts)
        count = turns.count_calls(conversation, self._metrics)

        def update(each: Update) -> None:
            if isinstance(each, Text):
                links.feed(each.text)
                return
            if isinstance(each, CallStarted | CallEnded | Replied | Warned | Retried):
                links.flush()
            if isinstance(each, CallStarted):
                preview = self._clean(each.call.arguments)[:_PREVIEW]
                run.add("tool.started", tool=each.call.name, call_id=each.call.id, preview=preview)
            elif isinstance(each, CallEnded):
                count(each)
                seconds, ok = round(each.duration_s, 3), each.envelope.ok
                run.add("tool.completed", tool=each.call.name, call_id=each.call.id, duration=seconds, error=not ok)

        answer = await turns.ask(conversation, text, update, self._metrics)
        links.flush()
        run.output = links_to_text(answer.text, conversation.hosts)
        run.usage = format_usage(answer.usage)
        if answer.outcome == "interrupted":
            self._end(run, "cancelled")
        else:
            status: Status = "completed" if answer.outcome in ("answered", "empty") else "incomplete"
            self._end(run, status, reason=answer.outcome, output=run.output, usage=run.usage)

    def _end(self, run: Run, status: Status, **payload: Any) -> None:
        run.status = status
        run.ended_at = time.monotonic()
        run.add(f"run.{status}", **payload)

    def stop(self, run: Run) -> None:
        """Interrupt the turn of a run."""
        if run.status not in ENDED and run.conversation is not None:
            run.status = "stopping"
            run.conversation.interrupt("a request to stop")

    async def close(self, grace_s: float) -> None:
        """Let all runs go on for ``grace_s`` seconds, then interrupt them, and wait for their ends."""
        tasks = [run.task for run in self._runs.values() if run.task is not None and not run.task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
            await cancel_and_wait(tasks)


def format_run_event(number: int, record: dict[str, Any]) -> bytes:
    """Format an event of a run as a server-sent event."""
    return f"id: {number}\ndata: {json.dumps(record, ensure_ascii=False)}\n\n".encode()


def read_run(body: bytes) -> RunRequest:
    """Parse a request to begin a run.

    Raises:
        UsageError: the request is invalid.
    """
    asked = protocol.read_model(RunRequest, body)
    if not asked.input.strip():
        raise UsageError("input: it has no text")
    return asked
