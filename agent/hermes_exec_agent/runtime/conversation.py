"""One conversation: requests and answers over one terminal, each event recorded as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from hermes_exec._async import shield_to_completion, wait_done
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.learning.outcomes import record_task
from hermes_exec_agent.models.protocol import Usage, check_images, sum_usage
from hermes_exec_agent.runtime.compaction import Compactor
from hermes_exec_agent.runtime.context_use import measure_context
from hermes_exec_agent.runtime.cost_meter import CostMeter
from hermes_exec_agent.runtime.events.log import new_id
from hermes_exec_agent.runtime.events.turn_lock import TurnHeld, TurnLost
from hermes_exec_agent.runtime.history import TIME_LIMIT, EventRecorder
from hermes_exec_agent.runtime.options import Options
from hermes_exec_agent.runtime.request_notices import Inbox, RequestNotices
from hermes_exec_agent.runtime.start_record import create_start_record, read_branch
from hermes_exec_agent.runtime.token_record import TokenRecorder
from hermes_exec_agent.runtime.tool_executor import ToolExecutor
from hermes_exec_agent.runtime.tool_schemas import record_schemas
from hermes_exec_agent.runtime.turn import Turn
from hermes_exec_agent.runtime.updates import Ended, Text
from hermes_exec_agent.tools.skill_recall import SkillRecall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from hermes_exec import Terminal
    from hermes_exec_agent.learning.review_queue import ReviewRules
    from hermes_exec_agent.memory.persons import Participant
    from hermes_exec_agent.models.catalog import Models
    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Model, ToolSpec
    from hermes_exec_agent.runtime.context_use import ContextUse
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog
    from hermes_exec_agent.runtime.hooks import HooksOfTurn
    from hermes_exec_agent.runtime.rollback import RollbackReport, RollbackStep
    from hermes_exec_agent.runtime.updates import Answer, Update
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
        self._spent = Usage()
        self._models = models
        self._specs = tuple(tool.spec for tool in tools)
        self._log = log
        self._context = context
        self._recorder = EventRecorder(log, context.conversation)
        self._inbox = Inbox()
        context.record, context.spend = self._recorder.note, self._count_usage
        context.notify, context.remind = _ignore_update, self._inbox.add_notice
        if not self.options.parent and (self.options.most_cost or self.options.most_cost_day):
            context.meter = CostMeter(log, turn=self.options.most_cost, day=self.options.most_cost_day)
        context.list_requests = self._list_requests
        self.list_prompts = context.list_prompts
        """Returns a line for each prompt of the servers, as far as they answer soon."""
        self._checkpoints = None if self.options.parent else context.checkpoints
        if self._checkpoints is not None:
            self._checkpoints.begin(self._recorder.record)
        self._executor = ToolExecutor(tools, context, record=self._recorder.record, clean=self._redact)
        self._compactor = Compactor()
        self._tokens = TokenRecorder(self._redact)
        self._schemas = ""
        self._task: asyncio.Task[Answer] | None = None
        self._turn: Turn | None = None
        self._reason = ""
        self._lost: TurnLost | None = None
        has_skills = any(spec.name == "skill_view" for spec in self._specs)
        recall = SkillRecall(context) if has_skills else None
        self._notices = RequestNotices(context, log, self._inbox, recall, is_delegated=bool(self.options.parent))

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
    def usage(self) -> Usage:
        """Of all turns, with those before a resumption and the one that runs."""
        return sum_usage([self._spent, *(self._turn.usages if self._turn is not None else ())])

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
    def images(self) -> tuple[Image, ...]:
        """The images of the latest request."""
        return self._recorder.history.images

    @property
    def messages(self) -> list[Message]:
        """The conversation as the model reads it."""
        return self._recorder.history.messages

    @property
    def todo(self) -> list[str]:
        """The lines of the model's to-do list."""
        from hermes_exec_agent.tools.planning import list_todo

        return list_todo(self._context.tools)

    def measure_context(self) -> ContextUse:
        """Return the parts of the model's next request, in tokens."""
        window = self.options.window or self.model.window
        return measure_context(
            self.messages,
            self._specs,
            place=self.place,
            instructions=self.options.instructions,
            window=min(window, self._compactor.window or window),
            scale=self._compactor.scale,
        )

    def set_model(self, name: str) -> None:
        """Use another model from the next turn on.

        Raises:
            ConfigError: no model has that name.
        """
        self._models = self._context.models = self._models.with_main(name)

    async def begin(self) -> list[Event]:
        """Begin the conversation, or resume it from the log; return the events recorded before.

        If the program was killed during a turn, the record ends that turn: its running calls have an unknown outcome,
        and the model is notified. A turn that runs in another program is left alone.

        Raises:
            HermesError: the log cannot be read or written.
        """
        loop = asyncio.get_running_loop()
        before = await self._recorder.load()
        inherited, self._context.provenance = self._context.provenance, self._recorder.history.provenance
        if not before:
            remembered = await self._notices.read_journal(inherited)
            started = create_start_record(self._context, self.options, self.model, remembered) | inherited.to_record()
            if other := self.options.branch_of:
                started |= await loop.run_in_executor(self._log.executor, read_branch, self._log, other, self.place)
            await self._recorder.record("started", started)
        self._schemas = await self._record_schemas()
        self._count(before)
        self._notices.begin(before)
        if self._recorder.history.open:
            with contextlib.suppress(TurnHeld):
                async with self._hold_turn():
                    pass
        return before

    async def _record_schemas(self) -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._log.executor, record_schemas, self._log, self._specs)

    def _count(self, events: Sequence[Event]) -> None:
        spent = (each for each in events if each.kind in ("assistant", "compacted", "spent"))
        self._spent = sum_usage([self._spent, *(Usage.from_record(each.data.get("usage") or {}) for each in spent)])

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

    async def ask(
        self, request: str, listener: Callable[[Update], None] | None = None, *, images: Sequence[Image] = ()
    ) -> Answer:
        """Answer ``request``. ``listener`` is called with each update and must not block.

        ``images`` count as text from outside for the memory and for skills.
        If the caller is cancelled, `interrupt` is called or the time limit expires, nothing is left running, and the
        record has the interruption.

        The answer and the updates have the model's text unchanged. A caller that renders it as Markdown passes it
        through ``links_to_text(answer.text, self.hosts)`` first, as its links and images may carry data away.

        Raises:
            ModelError: no model replied; completed calls stay recorded.
            UsageError: another turn runs, `TurnHeld` if another program runs it; or the model takes no images.
            BudgetSpent: a budget of dollars is spent.
            HookRefused: a hook blocks the request; nothing was recorded.
            TurnLost: another program took this turn over.
            HermesError: the log cannot be written.
        """
        self._refuse_if_busy()
        if images:
            check_images(images, self.model)
        tell = listener or _ignore_update
        self._add_new_tools()
        self._context.request, self._context.model, self._context.notify = request, self.model.name, tell
        turn = self._create_turn(tell)
        self._turn, self._task = turn, asyncio.create_task(self._run(turn, request, images, tell))
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
            self._context.notify = _ignore_update  # delegated tasks may run on
            self._spent = sum_usage([self._spent, *turn.usages])
            if self._context.longterm is not None:
                self._context.longterm.index_soon()
        tell(Ended(answer))
        return answer

    def _refuse_if_busy(self) -> None:
        if self._task is not None:
            raise UsageError("this conversation is busy with a request", remedy="wait for it, or interrupt it")

    async def check_budget(self) -> None:
        """Check that the budgets of dollars allow a turn, before anything is prepared for it.

        Raises:
            BudgetSpent: they do not.
        """
        if self._context.meter is not None:
            await self._context.meter.check(self.model.name)

    async def rewind(self, turns: int = 1) -> list[str]:
        """Take back the latest requests with all that followed; return them, the oldest first.

        The model no longer reads them. The record keeps them, and what their calls did stays done.

        Raises:
            UsageError: there are fewer requests that can be taken back, or a turn runs.
            HermesError: the log cannot be written.
        """
        self._refuse_if_busy()
        async with self._hold_turn():
            requests = self._recorder.history.requests
            if not 1 <= turns <= len(requests):
                known = f"only the latest {len(requests)} can be taken back" if requests else "none can be taken back"
                why = "earlier ones are gone from the model's context, a part of its summary, or older than this branch"
                raise UsageError(f"{turns} request{'s' * (turns != 1)}: {known}; {why}")
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
        self._refuse_if_busy()
        turn = self._create_turn(listener or _ignore_update)
        try:
            async with self._hold_turn():
                return await turn.compact(force=True, manual=True)
        finally:
            self._spent = sum_usage([self._spent, *turn.usages])

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
            inbox=self._inbox,
            meter=self._context.meter,
            hooks=self._hooks_of_turn(),
        )

    def _hooks_of_turn(self) -> HooksOfTurn | None:
        hooks = self._context.hooks
        return None if hooks is None else hooks.of_turn(self._context, is_delegated=bool(self.options.parent))

    async def list_steps(self) -> list[RollbackStep]:
        """Return the turns of this conversation, with the files that they changed in its target."""
        from hermes_exec_agent.runtime.rollback import list_steps

        return list_steps(await self._recorder.read_since(0), self.terminal.target)

    async def rollback(self, number: int, *, force: bool = False) -> RollbackReport:
        """Restore the files that turn ``number`` and later ones changed; see `rollback.rollback`.

        Raises:
            UsageError: a turn runs, there is no such turn, or files would be lost without ``force``.
            HermesError: the target failed, or the log cannot be written.
        """
        from hermes_exec_agent.runtime.rollback import rollback

        self._refuse_if_busy()
        async with self._hold_turn():
            events = await self._recorder.read_since(0)
            return await rollback(events, self.terminal, number, self._recorder.record, force=force)

    async def _run(self, turn: Turn, request: str, images: Sequence[Image], tell: Callable[[Update], None]) -> Answer:
        if self._context.meter is not None and not self.options.parent:
            await self._context.meter.begin_turn(self.model.name)
        async with self._hold_turn():
            if self._specs and not self._schemas:
                turn.schemas = self._schemas = await self._record_schemas()
            try:
                answer = await self._run_held(turn, request, images, tell)
            except BaseException:
                await self._end_checkpoints()
                raise
            try:
                await self._end_checkpoints()
            except asyncio.CancelledError:  # the answer is complete; what goes on in the background ends
                await shield_to_completion(self._context.end_tasks(), limit_s=None)
            return answer

    async def _end_checkpoints(self) -> None:
        if self._checkpoints is not None and self._lost is None:
            await shield_to_completion(self._checkpoints.end_turn(), limit_s=None)

    async def _run_held(
        self, turn: Turn, request: str, images: Sequence[Image], tell: Callable[[Update], None]
    ) -> Answer:
        try:
            parts = await self._notices.find(request, self.messages, images)
            answer = await turn.run(request, parts, images)
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
            await shield_to_completion(self._context.end_tasks(), limit_s=None)
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

    @property
    def is_busy(self) -> bool:
        """Whether a turn runs."""
        return self._task is not None

    def steer(self, words: str) -> None:
        """Let the model read words of the person during the turn: after the calls that run, before its next reply.

        Raises:
            UsageError: no turn runs.
        """
        if self._task is None:
            raise UsageError("no turn runs", remedy="send the words as a request")
        self._inbox.add_words(words)

    def take_steering(self) -> list[str]:
        """Return the words that the last turn ended without reading, once."""
        return self._inbox.take_words()

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
        """Whether processes or tasks were started in the background that end with this conversation."""
        return self._context.background

    async def runs_in_background(self) -> bool:
        """Whether one of these processes still runs.

        Raises:
            PlaceError: the connection to the target is lost.
        """
        if self._context.has_running_tasks:
            return True
        return self.background and await self._context.workspace.runs_in_background()

    async def list_running(self) -> list[str]:
        """List the processes and tasks in the background that still run, one line each."""
        return await self._executor.list_running()

    async def stop_background(self) -> list[str]:
        """End the processes and tasks that would end with the conversation, and tell the model; return a line each."""
        ended = await self._context.stop_background()
        if ended:
            self._inbox.add_notice("\n".join(["The person ended what ran in the background:", *ended]))
        return ended

    async def end_background(self) -> list[str]:
        """End these processes with the conversation, and record it; return a line for each that still ran."""
        ended = await self._context.end_background()
        if ended:
            with contextlib.suppress(HermesError):  # another program holds the conversation
                await self._recorder.record("ended", {"reason": "the conversation was left", "background": ended})
        return ended

    def _count_usage(self, usage: Usage, conversation: str = "") -> None:
        """Count the usage of a model that a tool asked, or of a delegated task, which may end after its turn."""
        whose = {"conversation": conversation} if conversation else {}
        self._recorder.note("spent", {"usage": usage.to_record(), **whose})
        if self._context.meter is not None and not conversation:  # a delegated task counts its own replies
            self._context.meter.add(usage, self.model.name, scripted=self.model.scripted)
        if self._turn is not None:
            self._turn.usages.append(usage)
        else:
            self._spent = sum_usage([self._spent, usage])

    def _list_requests(self) -> list[str]:
        earlier = [message.content for message in self.options.history if message.role == "user"]
        return earlier + self._recorder.history.requests

    def _redact(self, text: str) -> str:
        return self._models.redactor.redact(text)


def _cancel(task: asyncio.Task[Answer]) -> None:
    """Cancel the turn once: a second cancellation would cut short the code that ends its processes."""
    if not task.cancelling():
        task.cancel()


def _ignore_update(update: Update) -> None:
    """Ignore an update."""
