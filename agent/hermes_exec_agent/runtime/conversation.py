"""One conversation: requests and answers over one terminal, each event recorded as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from hermes_exec._async import shield_to_completion, wait_done
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.learning.outcomes import record_task
from hermes_exec_agent.models.protocol import Usage, sum_usage
from hermes_exec_agent.runtime.compaction import Compactor
from hermes_exec_agent.runtime.events.log import new_id
from hermes_exec_agent.runtime.events.turn_lock import TurnHeld, TurnLost
from hermes_exec_agent.runtime.history import BRANCHED, TIME_LIMIT, UNANSWERED, EventRecorder, MessageHistory, to_record
from hermes_exec_agent.runtime.links import find_hosts
from hermes_exec_agent.runtime.options import Options
from hermes_exec_agent.runtime.system_prompt import system_prompt
from hermes_exec_agent.runtime.token_record import TokenRecorder
from hermes_exec_agent.runtime.tool_executor import ToolExecutor
from hermes_exec_agent.runtime.tool_schemas import record_schemas
from hermes_exec_agent.runtime.turn import Turn, to_usage_record
from hermes_exec_agent.runtime.updates import Ended, Text
from hermes_exec_agent.tools.skill_list import SkillView
from hermes_exec_agent.tools.skill_recall import SkillRecall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from hermes_exec import Terminal
    from hermes_exec_agent.learning.review_queue import ReviewRules
    from hermes_exec_agent.memory.longterm.recall import Recaller
    from hermes_exec_agent.memory.persons import Participant
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Model, ToolSpec
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.updates import Answer, Update
    from hermes_exec_agent.tools.provenance import Provenance
    from hermes_exec_agent.tools.tool import Approvals, Context, Tool

_log = logging.getLogger("hermes_exec.agent")


class Conversation:
    """Requests and answers over one terminal. It belongs to the event loop of `begin`; one turn runs at a time."""

    def __init__(
        self,
        *,
        models: Models,
        tools: Sequence[Tool],
        context: Context,
        log: EventLog,
        options: Options | None = None,
        reviews: ReviewRules | None = None,
    ) -> None:
        """``context.conversation`` is the id of a conversation to resume; if empty, it is set to a new id.

        ``reviews`` say when a task is reviewed; without them none is.
        """
        if not context.conversation:
            context.conversation = new_id()
        self.options = options or Options()
        self._reviews = reviews
        self.usage = Usage()
        """Of all turns, with those before a resumption."""
        self._models = models
        self._specs = tuple(tool.spec for tool in tools)
        self._log = log
        self._context = context
        self._recorder = EventRecorder(log, context.conversation)
        context.record, context.spend = self._recorder.note, self._count_usage
        self._executor = ToolExecutor(tools, context, record=self._recorder.record, clean=self._redact)
        self._compactor = Compactor()
        self._tokens = TokenRecorder(self._redact)
        self._schemas = ""
        self._task: asyncio.Task[Answer] | None = None
        self._turn: Turn | None = None
        self._reason = ""
        self._lost: TurnLost | None = None
        self._recaller: Recaller | None = None
        has_skills = any(spec.name == SkillView.name for spec in self._specs)
        self._skill_recall = SkillRecall(context) if has_skills else None

    @property
    def id(self) -> str:
        """The conversation's id in the log."""
        return self._context.conversation

    @property
    def place(self) -> str:
        """The target, as the person wrote it."""
        return self._context.place

    @property
    def participant(self) -> Participant:
        """The person that the conversation belongs to."""
        return self._context.participant

    @property
    def approvals(self) -> Approvals:
        """The calls that may run without a question."""
        return self._context.approvals

    @property
    def terminal(self) -> Terminal:
        """The conversation's terminal."""
        return self._context.terminal

    @property
    def model(self) -> Model:
        """The main model."""
        return self._models.main

    @property
    def models(self) -> Models:
        """All models."""
        return self._models

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools of the model."""
        return self._specs

    @property
    def servers(self) -> list[str]:
        """A line about each server whose tools the conversation has."""
        return self._context.servers()

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts that the person named in this conversation."""
        return frozenset(self._recorder.history.hosts)

    @property
    def messages(self) -> list[Message]:
        """The conversation as the model reads it."""
        return self._recorder.history.messages

    def set_model(self, name: str) -> None:
        """Use another model from the next turn on.

        Raises:
            ConfigError: no model has that name.
        """
        self._models = self._models.with_main(name)

    async def begin(self) -> list[Event]:
        """Begin the conversation, or resume it from the log; return the events recorded before.

        If the program was killed during a turn, the record ends that turn: its running calls have an unknown outcome,
        and the model is notified. A turn that runs in another program is left alone.

        Raises:
            HermesError: the log cannot be read or written.
        """
        before = await self._recorder.load()
        inherited, self._context.provenance = self._context.provenance, self._recorder.history.provenance
        if not before:
            remembered = await self._read_journal(inherited)
            started = self._start_record(remembered) | inherited.to_record()
            if self.options.branch_of:
                started |= await self._branch(self.options.branch_of)
            await self._recorder.record("started", started)
        self._schemas = await self._record_schemas()
        self._count(before)
        self._recaller = self._create_recaller(before)
        if self._recorder.history.open:
            with contextlib.suppress(TurnHeld):
                async with self._hold_turn():
                    pass
        return before

    async def _record_schemas(self) -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._log.executor, record_schemas, self._log, self._specs)

    def _count(self, events: Sequence[Event]) -> None:
        counted = [_usage(event) for event in events if event.kind in ("assistant", "compacted", "spent")]
        self.usage = sum_usage([self.usage, *counted])

    async def _branch(self, other: str) -> dict[str, object]:
        """Return the events of another conversation as the beginning of this one; the other stays unchanged."""
        loop = asyncio.get_running_loop()
        events = await loop.run_in_executor(self._log.executor, self._log.events, other)
        history = MessageHistory(events)
        history.cut(BRANCHED, UNANSWERED)
        branch: dict[str, object] = {
            "history": [to_record(message) for message in history.messages[1:]],
            "branch_of": {"conversation": other, "upto": events[-1].number if events else 0},
            "hosts": sorted(history.hosts),
            **history.provenance.to_record(),
        }
        if events and events[0].data.get("target") == self.place:
            branch["system"] = events[0].data["system"]
        return branch

    @contextlib.asynccontextmanager
    async def _hold_turn(self) -> AsyncGenerator[None]:
        """Hold the turn, so that no other program runs one, and read what others added before.

        Raises:
            TurnHeld: another program holds it.
            TurnLost: another program took it over, because its lease was not renewed in time; nothing more is recorded.
        """
        self._count(await self._recorder.acquire(self.options.turn_lease_s))
        self._lost = None
        renewing = asyncio.create_task(self._renew())
        try:
            if self._recorder.history.open:
                await self._recorder.record("interrupted", {"by": "end"})
            yield
        finally:
            renewing.cancel()
            await wait_done(renewing)
            await shield_to_completion(self._recorder.release(), limit_s=None)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self.options.turn_lease_s / 3)
            try:
                await self._recorder.renew()
            except TurnLost as error:
                self._lost = error
                self.interrupt("another program")
                return
            except HermesError as error:
                _log.warning("the turn's lease was not renewed: %s", error)

    async def _read_journal(self, provenance: Provenance) -> str:
        """Return the end of the system message with what the journal holds; add its untrusted text to the sources."""
        journal = self._context.journal
        if journal is None:
            return ""
        from hermes_exec_agent.memory.prompt import read_prompt

        text, is_untrusted = await asyncio.to_thread(read_prompt, journal, self._context.tell)
        provenance.has_output = provenance.has_output or is_untrusted
        return text

    def _start_record(self, remembered: str) -> dict[str, object]:
        record: dict[str, object] = {
            "target": self.place,
            "model": self.model.name,
            "scripted": self.model.scripted,
            "parent": self.options.parent,
            "version": _version(),
            **self._context.participant.to_record(),
            "system": system_prompt(self.place, self.options.instructions, remembered, self._context.project),
        }
        if self.options.history:
            record["history"] = [to_record(message) for message in self.options.history]
            said = (message.content for message in self.options.history if message.role == "user")
            record["hosts"] = sorted({host for text in said for host in find_hosts(text)})
        return record

    async def ask(self, request: str, listener: Callable[[Update], None] | None = None) -> Answer:
        """Answer ``request``. ``listener`` is called with each update and must not block.

        If the caller is cancelled, `interrupt` is called or the time limit expires, nothing is left running, and the
        record has the interruption.

        The answer and the updates have the model's text unchanged. A caller that renders it as Markdown passes it
        through ``links_to_text(answer.text, self.hosts)`` first, as its links and images may carry data away.

        Raises:
            ModelError: no model replied; completed calls stay recorded.
            UsageError: another turn runs; `TurnHeld` if another program runs it.
            TurnLost: another program took this turn over.
            HermesError: the log cannot be written.
        """
        if self._task is not None:
            raise UsageError("this conversation is busy with another request", remedy="wait for it, or interrupt it")
        tell = listener or _ignore_update
        self._add_new_tools()
        self._context.request, self._context.model, self._context.notify = request, self.model.name, tell
        turn = self._create_turn(tell)
        self._turn, self._task = turn, asyncio.create_task(self._run(turn, request, tell))
        self._reason = ""
        try:
            await asyncio.wait([self._task], timeout=self.options.time_limit_s)
            if not self._task.done():
                self.interrupt(TIME_LIMIT)
            answer = await self._result(self._task, turn)
        except asyncio.CancelledError:
            _cancel(self._task)
            await wait_done(self._task)  # calls may run until then
            if not self._task.cancelled():
                self._task.exception()  # retrieved, so that asyncio does not log it
            raise
        finally:
            self._turn, self._task = None, None
            self.usage = sum_usage([self.usage, *turn.usages])
            if self._context.longterm is not None:
                self._context.longterm.index_soon()
        tell(Ended(answer))
        return answer

    async def rewind(self, turns: int = 1) -> list[str]:
        """Take back the latest requests with all that followed; return them, the oldest first.

        The model no longer reads them. The record keeps them, and what their calls did stays done.

        Raises:
            UsageError: there are fewer requests that can be taken back, or a turn runs.
            HermesError: the log cannot be written.
        """
        if self._task is not None:
            raise UsageError("this conversation is busy with a request", remedy="wait for it, or interrupt it")
        async with self._hold_turn():
            requests = self._recorder.history.requests
            if not 1 <= turns <= len(requests):
                known = f"{len(requests)} can be taken back" if requests else "none can be taken back"
                raise UsageError(
                    f"{turns} requests: {known}, as earlier ones are not in the model's context one by one"
                )
            taken = requests[-turns:]
            await self._recorder.record("rewound", {"turns": turns})
        return taken

    async def set_title(self, title: str) -> None:
        """Give the conversation a title for lists.

        Raises:
            UsageError: another program runs a turn of it.
            HermesError: the log cannot be written.
        """
        async with self._hold_turn():
            await self._recorder.record("titled", {"title": title})

    async def compact(self, listener: Callable[[Update], None] | None = None) -> bool:
        """Shorten the model's messages now; return whether that freed anything. The record keeps all of them.

        Raises:
            UsageError: a turn runs; `TurnHeld` if another program runs it.
            HermesError: the log cannot be written.
        """
        if self._task is not None:
            raise UsageError("this conversation is busy with a request", remedy="wait for it, or interrupt it")
        turn = self._create_turn(listener or _ignore_update)
        try:
            async with self._hold_turn():
                return await turn.compact(force=True)
        finally:
            self.usage = sum_usage([self.usage, *turn.usages])

    def _add_new_tools(self) -> None:
        """Add the tools of servers that have answered for the first time."""
        tools = self._context.new_tools()
        if tools:
            self._executor.add(tools)
            self._specs += tuple(tool.spec for tool in tools)
            self._context.tools = (*self._context.tools, *tools)
            self._schemas = ""

    def _create_turn(self, tell: Callable[[Update], None]) -> Turn:
        return Turn(
            self.model,
            self._specs,
            self._executor,
            self._recorder,
            self.options,
            tell,
            auxiliary=self._models.auxiliary,
            compactor=self._compactor,
            schemas=self._schemas,
            tokens=self._tokens,
        )

    async def _run(self, turn: Turn, request: str, tell: Callable[[Update], None]) -> Answer:
        async with self._hold_turn():
            if self._specs and not self._schemas:
                turn.schemas = self._schemas = await self._record_schemas()
            try:
                answer = await turn.run(request, await self._find_parts(request))
            except TurnLost:
                self._recorder.drop_notes()
                raise
            except ModelError:
                self._record_outcome(turn)
                raise
            except asyncio.CancelledError:
                if self._lost is not None:
                    self._recorder.drop_notes()
                    raise self._lost from None
                await shield_to_completion(self._record_interruption(turn, tell), limit_s=None)
                self._record_outcome(turn)
                raise
            self._record_outcome(turn)
            return answer

    def _record_outcome(self, turn: Turn) -> None:
        """Record the outcome of a task in the log's thread, before that thread releases the turn."""
        if turn.request and not self.options.parent:
            self._log.executor.submit(
                record_task,
                self._log,
                self.id,
                turn.request,
                model=self.model.name,
                target=self.place,
                reviews=self._reviews,
            )

    async def _find_parts(self, request: str) -> list[dict[str, object]]:
        """Return the notices that accompany a request.

        They are changes of the journal, and the skills and the memories that fit the request.
        """
        parts = await self._find_journal_changes()
        if self._skill_recall is not None:
            parts += await self._skill_recall.find_parts(request, self.messages)
        if self._recaller is not None:
            shown = [message.content for message in self.messages] + [str(each["content"]) for each in parts]
            parts += await self._recaller.find_parts(request, shown)
        return parts

    def _create_recaller(self, events: Sequence[Event]) -> Recaller | None:
        context = self._context
        if context.longterm is None:
            return None
        from hermes_exec_agent.memory.longterm.recall import Recaller

        def is_own(conversation: str) -> bool:
            return self._log.start(conversation).person == context.participant.name

        own, tell = context.conversation, context.tell
        return Recaller(context.longterm, context.journal, tell, own, events, is_own=is_own)

    async def _find_journal_changes(self) -> list[dict[str, object]]:
        """Return the notice of entries that were added to the journal, or left it, after the latest notice."""
        journal = self._context.journal
        if journal is None:
            return []
        from hermes_exec_agent.memory.prompt import read_changes

        text, is_untrusted = await asyncio.to_thread(read_changes, journal, self.messages, self._context.tell)
        self._context.provenance.has_output = self._context.provenance.has_output or is_untrusted
        return [{"source": "memory", "content": text}] if text else []

    async def _record_interruption(self, turn: Turn, tell: Callable[[Update], None]) -> None:
        """Record it; at the time limit with the program's list of the turn, as the model cannot be asked."""
        if not self._recorder.history.open:
            return
        if self._reason == TIME_LIMIT:
            ended = f"the time limit of {self.options.time_limit_s:g} s"
            text = await turn.report(ended, why="had no time left")
            tell(Text(text))
            turn.said = f"{turn.said}\n\n{text}".lstrip()
        await self._recorder.record("interrupted", {"by": self._reason or "cancelled", "content": turn.said})

    async def _result(self, task: asyncio.Task[Answer], turn: Turn) -> Answer:
        if await wait_done(task):
            raise asyncio.CancelledError
        if not task.cancelled():
            return task.result()
        return turn.answer(turn.said, "stopped" if self._reason == TIME_LIMIT else "interrupted")

    def interrupt(self, by: str = "the person") -> None:
        """End the running turn, if any: running calls are stopped, and `ask` returns the text so far."""
        if self._task is not None and not self._task.done():
            self._reason = by
            _cancel(self._task)

    async def turn(self, request: str) -> AsyncGenerator[Update]:
        """Return the updates of `ask` as an iterator whose last item is `Ended`. Closing it interrupts the turn."""
        updates: asyncio.Queue[Update | None] = asyncio.Queue()
        asking = asyncio.create_task(self.ask(request, updates.put_nowait))
        asking.add_done_callback(lambda _: updates.put_nowait(None))
        try:
            while (update := await updates.get()) is not None:
                yield update
            await asking
        finally:
            _cancel(asking)
            cancelled = await wait_done(asking)
            if not asking.cancelled():
                asking.exception()  # raised above, or the consumer has left
        if cancelled:
            raise asyncio.CancelledError

    @property
    def background(self) -> bool:
        """Whether processes were started in the background that end with this conversation."""
        return self._context.background

    async def runs_in_background(self) -> bool:
        """Whether one of these processes still runs.

        Raises:
            PlaceError: the connection to the target is lost.
        """
        return self.background and await self._context.workspace.runs_in_background()

    async def end_background(self) -> list[str]:
        """End these processes with the conversation, and record it; return a line for each that still ran."""
        ended = await self._context.end_background()
        if ended:
            with contextlib.suppress(HermesError):  # another program holds the conversation
                await self._recorder.record("ended", {"reason": "the conversation was left", "background": ended})
        return ended

    def _count_usage(self, usage: Usage) -> None:
        """Count the usage of a model that a tool asked by itself."""
        self._recorder.note("spent", {"usage": to_usage_record(usage)})
        if self._turn is not None:
            self._turn.usages.append(usage)

    def _redact(self, text: str) -> str:
        return self._models.redactor.redact(text)


def _cancel(task: asyncio.Task[Answer]) -> None:
    """Cancel the turn once: a second cancellation would cut short the code that ends its processes."""
    if not task.cancelling():
        task.cancel()


def _usage(event: Event) -> Usage:
    record: dict[str, Any] = event.data.get("usage") or {}
    cost = record.get("cost")
    return Usage(
        prompt=int(record.get("prompt", 0)),
        cached=int(record.get("cached", 0)),
        completion=int(record.get("completion", 0)),
        reasoning=int(record.get("reasoning", 0)),
        cost=None if cost is None else float(cost),
        estimated=bool(record.get("estimated")),
    )


def _version() -> str:
    try:
        return version("hermes-exec")
    except PackageNotFoundError:
        return ""


def _ignore_update(update: Update) -> None:
    """Ignore an update."""
