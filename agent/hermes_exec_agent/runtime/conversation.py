"""One conversation: requests, each answered in as many steps as it takes, everything recorded as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from hermes_exec._async import settled, to_its_end
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.models.protocol import Usage, total
from hermes_exec_agent.runtime.compaction import Compactor
from hermes_exec_agent.runtime.events.log import new_id
from hermes_exec_agent.runtime.events.turn_lock import TurnHeld, TurnLost
from hermes_exec_agent.runtime.history import BRANCHED, TIME_LIMIT, UNANSWERED, History, Recorder, record_of
from hermes_exec_agent.runtime.options import Options
from hermes_exec_agent.runtime.system_prompt import system_prompt
from hermes_exec_agent.runtime.tool_executor import Acting
from hermes_exec_agent.runtime.turn import Turn, usage_record
from hermes_exec_agent.runtime.updates import Ended, Text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from hermes_exec import Terminal
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Model, ToolSpec
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.updates import Answer, Update
    from hermes_exec_agent.tools.tool import Context, Tool

_log = logging.getLogger("hermes_exec.agent")


class Conversation:
    """Requests and answers over one terminal. Belongs to the event loop it was begun on; one turn at a time."""

    def __init__(
        self,
        *,
        models: Models,
        tools: Sequence[Tool],
        context: Context,
        log: EventLog,
        options: Options | None = None,
    ) -> None:
        """``context.conversation`` is the id of one to go on with; a new one is made, and set there, if it is empty."""
        if not context.conversation:
            context.conversation = new_id()
        self.options = options or Options()
        self.usage = Usage()
        """Of all turns, with those before a resumption."""
        self._models = models
        self._specs = tuple(tool.spec for tool in tools)
        self._log = log
        self._context = context
        self._recorder = Recorder(log, context.conversation)
        context.record, context.spend = self._recorder.note, self._spent
        self._acting = Acting(tools, context, record=self._recorder.record, clean=self._clean)
        self._compactor = Compactor()
        self._task: asyncio.Task[Answer] | None = None
        self._turn: Turn | None = None
        self._reason = ""
        self._lost: TurnLost | None = None

    @property
    def id(self) -> str:
        """Its id in the log."""
        return self._context.conversation

    @property
    def place(self) -> str:
        """The target, as the person wrote it."""
        return self._context.place

    @property
    def terminal(self) -> Terminal:
        """The place itself."""
        return self._context.terminal

    @property
    def model(self) -> Model:
        """Who is asked."""
        return self._models.main

    @property
    def models(self) -> Models:
        """All of them."""
        return self._models

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model can ask for."""
        return self._specs

    @property
    def messages(self) -> list[Message]:
        """The conversation as the model reads it."""
        return self._recorder.history.messages

    def set_model(self, name: str) -> None:
        """Ask another model from the next turn on.

        Raises:
            ConfigError: there is none of that name.
        """
        self._models = self._models.with_main(name)

    async def begin(self) -> list[Event]:
        """Begin, or go on where the log has the conversation; gives what was recorded before.

        A turn that a kill cut short is ended in the record: what was running then has an unknown outcome, and the
        model is told so. One that another program runs now is left to it.

        Raises:
            HermesError: the log cannot be read or written.
        """
        before = await self._recorder.load()
        if not before:
            started = self._started()
            if self.options.branch_of:
                started |= await self._branch(self.options.branch_of)
            await self._recorder.record("started", started)
        self._count(before)
        if self._recorder.history.open:
            with contextlib.suppress(TurnHeld):
                async with self._held():
                    pass
        return before

    def _count(self, events: Sequence[Event]) -> None:
        counted = [_usage(event) for event in events if event.kind in ("assistant", "compacted", "spent")]
        self.usage = total([self.usage, *counted])

    async def _branch(self, other: str) -> dict[str, object]:
        """What another conversation has recorded, as the beginning of this one; the other is left as it is."""
        loop = asyncio.get_running_loop()
        events = await loop.run_in_executor(self._log.executor, self._log.events, other)
        history = History(events)
        history.cut(BRANCHED, UNANSWERED)
        branch: dict[str, object] = {
            "history": [record_of(message) for message in history.messages[1:]],
            "branch_of": {"conversation": other, "upto": events[-1].number if events else 0},
        }
        if events and events[0].data.get("target") == self.place:
            branch["system"] = events[0].data["system"]
        return branch

    @contextlib.asynccontextmanager
    async def _held(self) -> AsyncGenerator[None]:
        """Hold the turn: no other program has it meanwhile, and what others added before is read first.

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
            await settled(renewing)
            await to_its_end(self._recorder.release())

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

    def _started(self) -> dict[str, object]:
        record: dict[str, object] = {
            "target": self.place,
            "model": self.model.name,
            "scripted": self.model.scripted,
            "parent": self.options.parent,
            "version": _version(),
            "system": system_prompt(self.place, self.options.instructions),
        }
        if self.options.history:
            record["history"] = [record_of(message) for message in self.options.history]
        return record

    async def ask(self, request: str, listener: Callable[[Update], None] | None = None) -> Answer:
        """Answer ``request``. ``listener`` is told of everything as it happens; it must not block.

        A cancelled caller, `interrupt` and the time limit leave nothing running, and the record says so.

        Raises:
            ModelError: no model gave a reply; what was done until then stays done, and is recorded.
            UsageError: another turn goes on; `TurnHeld` where another program runs it.
            TurnLost: another program took this turn over.
            HermesError: the log cannot be written.
        """
        if self._task is not None:
            raise UsageError("this conversation is busy with another request", remedy="wait for it, or interrupt it")
        tell = listener or _nobody
        self._context.request, self._context.model, self._context.notify = request, self.model.name, tell
        turn = self._next(tell)
        self._turn, self._task = turn, asyncio.create_task(self._run(turn, request, tell))
        self._reason = ""
        try:
            await asyncio.wait([self._task], timeout=self.options.time_limit_s)
            if not self._task.done():
                self.interrupt(TIME_LIMIT)
            answer = await self._result(self._task, turn)
        except asyncio.CancelledError:
            _cancel(self._task)
            await settled(self._task)  # until then something may run
            if not self._task.cancelled():
                self._task.exception()  # looked at, so that asyncio does not complain of it
            raise
        finally:
            self._turn, self._task = None, None
            self.usage = total([self.usage, *turn.usages])
        tell(Ended(answer))
        return answer

    async def compact(self, listener: Callable[[Update], None] | None = None) -> bool:
        """Make what the model reads shorter now; gives whether anything was gained. The record keeps all of it.

        Raises:
            UsageError: a turn goes on; `TurnHeld` where another program runs it.
            HermesError: the log cannot be written.
        """
        if self._task is not None:
            raise UsageError("this conversation is busy with a request", remedy="wait for it, or interrupt it")
        turn = self._next(listener or _nobody)
        try:
            async with self._held():
                return await turn.compact(force=True)
        finally:
            self.usage = total([self.usage, *turn.usages])

    def _next(self, tell: Callable[[Update], None]) -> Turn:
        return Turn(
            self.model,
            self._specs,
            self._acting,
            self._recorder,
            self.options,
            tell,
            auxiliary=self._models.auxiliary,
            compactor=self._compactor,
        )

    async def _run(self, turn: Turn, request: str, tell: Callable[[Update], None]) -> Answer:
        async with self._held():
            try:
                return await turn.run(request)
            except TurnLost:
                self._recorder.drop_notes()
                raise
            except asyncio.CancelledError:
                if self._lost is not None:
                    self._recorder.drop_notes()
                    raise self._lost from None
                await to_its_end(self._record_interruption(turn, tell))
                raise

    async def _record_interruption(self, turn: Turn, tell: Callable[[Update], None]) -> None:
        """Record it; at the time limit with the program's list of the turn, as no last word can be had."""
        if not self._recorder.history.open:
            return
        if self._reason == TIME_LIMIT:
            ended = f"the time limit of {self.options.time_limit_s:g} s"
            text = await turn.report(ended, why="had no time left")
            tell(Text(text))
            turn.said = f"{turn.said}\n\n{text}".lstrip()
        await self._recorder.record("interrupted", {"by": self._reason or "cancelled", "content": turn.said})

    async def _result(self, task: asyncio.Task[Answer], turn: Turn) -> Answer:
        if await settled(task):
            raise asyncio.CancelledError
        if not task.cancelled():
            return task.result()
        return turn.answer(turn.said, "stopped" if self._reason == TIME_LIMIT else "interrupted")

    def interrupt(self, by: str = "the person") -> None:
        """End the running turn, if there is one: what runs is stopped, and `ask` gives what was said so far."""
        if self._task is not None and not self._task.done():
            self._reason = by
            _cancel(self._task)

    async def turn(self, request: str) -> AsyncGenerator[Update]:
        """The same as `ask`, as an iterator whose last item is `Ended`. To cancel or close it is to interrupt."""
        updates: asyncio.Queue[Update | None] = asyncio.Queue()
        asking = asyncio.create_task(self.ask(request, updates.put_nowait))
        asking.add_done_callback(lambda _: updates.put_nowait(None))
        try:
            while (update := await updates.get()) is not None:
                yield update
            await asking
        finally:
            _cancel(asking)
            cancelled = await settled(asking)
            if not asking.cancelled():
                asking.exception()  # it is raised above, or nobody is there any more to hear of it
        if cancelled:
            raise asyncio.CancelledError

    @property
    def background(self) -> bool:
        """Whether something was started in the background that ends with this conversation."""
        return self._context.background

    async def runs_in_background(self) -> bool:
        """Whether some of that still runs.

        Raises:
            PlaceError: the place is lost.
        """
        return self.background and await self._context.workspace.runs_in_background()

    async def end_background(self) -> list[str]:
        """End that, as the conversation ends, and record it; gives a line for each command that still ran."""
        ended = await self._context.end_background()
        if ended:
            with contextlib.suppress(HermesError):  # another program holds the conversation
                await self._recorder.record("ended", {"reason": "the conversation was left", "background": ended})
        return ended

    def _spent(self, usage: Usage) -> None:
        """A tool asked a model by itself: it is a part of what the turn took."""
        self._recorder.note("spent", {"usage": usage_record(usage)})
        if self._turn is not None:
            self._turn.usages.append(usage)

    def _clean(self, text: str) -> str:
        return self._models.redactor.text(text)


def _cancel(task: asyncio.Task[Answer]) -> None:
    """Tell it to end, once: to be told again would cut short what ends the processes."""
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


def _nobody(update: Update) -> None:
    """Nobody listens."""
