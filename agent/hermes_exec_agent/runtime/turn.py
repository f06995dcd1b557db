"""One turn: ask the model, run its tool calls and return their results, until it answers or is stopped."""

from __future__ import annotations

import secrets
import threading
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from hermes_exec_agent.errors import ContextTooLong, ModelError
from hermes_exec_agent.models.protocol import Reply, Retried, estimate_tool_tokens, sum_usage
from hermes_exec_agent.runtime.guardrails import GuardrailAction, GuardrailMonitor, Guardrails, ObservedCall
from hermes_exec_agent.runtime.history import to_record
from hermes_exec_agent.runtime.options import BUDGET
from hermes_exec_agent.runtime.request_notices import Inbox
from hermes_exec_agent.runtime.token_record import TokenRecorder
from hermes_exec_agent.runtime.turn_report import format_report, is_call_as_text
from hermes_exec_agent.runtime.updates import Answer, Compacted, Replied, Steered, Text, Thought, Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.models.messages import Message, ToolCall
    from hermes_exec_agent.models.protocol import Model, ToolChoice, ToolSpec, Usage
    from hermes_exec_agent.runtime.compaction import Compactor
    from hermes_exec_agent.runtime.cost_meter import CostMeter
    from hermes_exec_agent.runtime.history import EventRecorder
    from hermes_exec_agent.runtime.options import Options
    from hermes_exec_agent.runtime.tool_executor import ExecutedCall, ToolExecutor
    from hermes_exec_agent.runtime.updates import Outcome, Update


_EMPTY = 2
"""How often a reply without text and calls is requested again."""
_BUDGET = "The budget of {} step{} for this request is spent."
_SPENT = "{} Call no more tools. Say now, in plain words, what was done, what was found, and what is left to do."
_SILENT = {"length": "was cut at its greatest length", "filtered": "was filtered by its provider"}
_GO_ON = "A hook of the person wants you to go on, and says: {}"
_STOPPED = (
    "{} This request is ended here. Call no more tools. Say now what was done, what failed, and what is left to do."
)


class TurnHooks(Protocol):
    """The hooks that a turn runs."""

    async def check_stop(self, text: str, stops: int) -> str:
        """Return why a turn has to continue after the answer ``text``; empty if it may end."""
        ...

    async def check_compaction(self, *, manual: bool) -> str:
        """Return why the conversation may not be shortened; empty if it may."""
        ...


class Budget:
    """A thread-safe counter between zero and its initial value."""

    def __init__(self, limit: int) -> None:
        """Start with ``limit`` replies."""
        self.limit = limit
        self._left = limit
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """The replies left."""
        return self._left

    def take(self) -> bool:
        """Take one; False if none is left."""
        with self._lock:
            if self._left <= 0:
                return False
            self._left -= 1
            return True

    def refund(self) -> None:
        """Return one: a reply that only started a program with many calls is free."""
        with self._lock:
            self._left = min(self._left + 1, self.limit)


class Turn:
    """One request until its answer."""

    def __init__(  # noqa: PLR0913  each part of a conversation
        self,
        model: Model,
        tools: Sequence[ToolSpec],
        acting: ToolExecutor,
        recorder: EventRecorder,
        options: Options,
        tell: Callable[[Update], None],
        *,
        auxiliary: Model,
        compactor: Compactor,
        schemas: str = "",
        tokens: TokenRecorder | None = None,
        inbox: Inbox | None = None,
        meter: CostMeter | None = None,
        hooks: TurnHooks | None = None,
    ) -> None:
        """``schemas`` is the digest of the tools in the log; ``tokens`` packs those of the conversation's calls.

        The model reads what is in ``inbox`` before each of its replies. ``meter`` counts what they cost.
        """
        self._hooks = hooks
        self._model = model
        self.schemas = schemas
        self._tokens = tokens or TokenRecorder(acting.clean)
        self._inbox = inbox or Inbox()
        self._meter = meter
        self._auxiliary = auxiliary
        self._compactor = compactor
        self._tool_tokens = estimate_tool_tokens(tools)
        self._tools = tools
        self._executor = acting
        self._recorder = recorder
        self._options = options
        self._tell = tell
        self._budget = Budget(options.budget or BUDGET)
        self._guard = GuardrailMonitor(
            options.guardrails or Guardrails(), stops=options.unattended, patient=options.patient
        )
        self.usages: list[Usage] = []
        self.said = ""
        """The text of a reply that is not complete yet."""
        self.request = 0
        """The number of the request's event; 0 before it is recorded."""
        self._steps = 0
        self._calls = 0

    async def run(
        self, request: str, parts: Sequence[Mapping[str, object]] = (), images: Sequence[Image] = ()
    ) -> Answer:
        """Answer ``request``; ``parts`` are notices of the program for the model, recorded with it, as are ``images``.

        Raises:
            ModelError: no model replied; the failure is recorded.
        """
        asked: dict[str, object] = {"content": request}
        if parts:
            asked["parts"] = [dict(each) for each in parts]
        if images:
            asked["images"] = [each.to_record() for each in images]
        self.request = (await self._recorder.record("user", asked)).number
        try:
            return await self._answer()
        except ModelError as error:
            await self._recorder.record("failed", {"error": str(error)})
            raise

    async def _answer(self) -> Answer:
        stops = 0
        while self._budget.take():
            if self._steps and self._meter is not None and (ended := await self._meter.find_end()):
                if self._options.parent:  # the delegating turn has the last word, which costs once
                    return await self._end_with_list("budget", "cost", ended, why="may not be asked again")
                return await self._last_word("budget", "cost", ended, _SPENT)
            await self._deliver()
            reply = await self._record_reply()
            calls = reply.message.tool_calls
            if not calls and self._budget.left and await self._is_continued(reply, stops):
                stops += 1
                continue
            if not calls:
                return await self._end(reply)
            acted = await self._executor.run(calls, self._tell, cut=reply.finish == "length")
            self._calls += len(acted)
            if all(each.call.name in self._options.refunded and each.envelope.ok for each in acted):
                self._budget.refund()
            verdict = self._judge(acted)
            if verdict.stop:
                return await self._last_word("stopped", verdict.reason, verdict.content, _STOPPED)
            if verdict.content:
                await self._warn(verdict.reason, verdict.content)
        ended = _BUDGET.format(self._budget.limit, "s" * (self._budget.limit != 1))
        return await self._last_word("budget", "budget", ended, _SPENT)

    async def _deliver(self) -> None:
        """Record what the model reads meanwhile besides its results."""
        for notice in self._inbox.take_notices():
            await self._recorder.record("warning", {"reason": "program", "content": notice})
        for words in self._inbox.take_words():
            await self._recorder.record("steered", {"content": words})
            self._tell(Steered(words))

    async def _is_continued(self, reply: Reply, stops: int) -> bool:
        """Return whether a hook lets the turn continue after an answer; the model receives its reason."""
        text = reply.message.content
        if self._hooks is None or reply.finish != "stop" or not text.strip():
            return False
        reason = await self._hooks.check_stop(text, stops)
        if reason:
            await self._warn("hook", _GO_ON.format(self._executor.clean(reason)))
        return bool(reason)

    async def _end(self, reply: Reply) -> Answer:
        outcome: Outcome = "answered"
        if reply.finish in ("length", "content_filter"):
            outcome = "length" if reply.finish == "length" else "filtered"
        elif not reply.message.content.strip():
            outcome = "empty"
        if self._calls and not reply.message.content.strip():
            why = _SILENT.get(outcome, "said nothing")
            return await self._end_with_list(outcome, outcome, f"the model {why}", why=why)
        if outcome != "answered":
            await self._recorder.record("ended", {"reason": outcome})
        return self.answer(reply.message.content, outcome)

    def answer(self, text: str, outcome: Outcome) -> Answer:
        """Return the answer of this turn."""
        return Answer(text, outcome, sum_usage(self.usages), self._steps, self._calls)

    def _judge(self, acted: Sequence[ExecutedCall]) -> GuardrailAction:
        verdicts = [
            self._guard.observe(ObservedCall(each.call.name, each.call.arguments, each.envelope, each.changes))
            for each in acted
        ]
        return max(verdicts, key=lambda verdict: (verdict.stop, bool(verdict.content)), default=GuardrailAction())

    async def _warn(self, reason: str, content: str, shown: str = "") -> None:
        """Record a warning for the model, and show it, or ``shown`` without the orders to the model."""
        await self._recorder.record("warning", {"reason": reason, "content": content})
        self._tell(Warned(reason, shown or content))

    async def _last_word(self, outcome: Outcome, reason: str, ended: str, notice: str) -> Answer:
        """Request a summary. Calls in it do not run; if it has some, or there is none, the program's list follows.

        The tools stay in the request, as endpoints cache its beginning.
        """
        await self._warn(reason, notice.format(ended), ended)
        try:
            message = (await self._record_reply("none")).message
        except ModelError as error:
            self._tell(Warned("summary", f"the model wrote no summary: {error}"))
            why = f"could not be asked ({error})"
            return await self._end_with_list(outcome, reason, ended, why=why)
        if message.tool_calls or is_call_as_text(message.content):
            return await self._end_with_list(outcome, reason, ended, why="went on calling tools", message=message)
        if not message.content.strip():
            return await self._end_with_list(outcome, reason, ended, why="said nothing")
        await self._recorder.record("ended", {"reason": reason})
        return self.answer(message.content, outcome)

    async def _end_with_list(
        self, outcome: Outcome, reason: str, ended: str, *, why: str, message: Message | None = None
    ) -> Answer:
        """End with the program's list of the turn, after the text of the model's last ``message``."""
        text = await self.report(ended, why=why, refused=message.tool_calls if message else ())
        await self._recorder.record("ended", {"reason": reason, "content": text})
        self._tell(Text(text))
        last = message.content.strip() if message else ""
        return self.answer(f"{last}\n\n{text}" if last else text, outcome)

    async def report(self, ended: str, *, why: str, refused: Sequence[ToolCall] = ()) -> str:
        """Return the program's list of this turn; see `format_report`."""
        running = await self._executor.list_running()
        events = await self._recorder.read_since(self.request)
        request = self._recorder.history.request
        text = format_report(events, request=request, ended=ended, why=why, refused=refused, running=running)
        return self._executor.clean(text)

    async def _record_reply(self, tool_choice: ToolChoice | None = None) -> Reply:
        """Request a reply, record it, and count it."""
        await self.compact()
        reply = await self._request_reply(tool_choice)
        prompt = self._recorder.history.messages
        for _ in range(_EMPTY):
            if reply.message.content.strip() or reply.message.tool_calls:
                break
            reply = await self._stream_reply(tool_choice)
        message = reply.message
        calls = self._own_ids(message)
        message = replace(message, tool_calls=calls)
        reply = replace(reply, message=message)
        record: dict[str, object] = {
            "tool_calls": [],
            **to_record(message),
            "finish": reply.finish,
            "model": reply.model,
            "usage": reply.usage.to_record(),
            **self._trace_record(reply, prompt),
        }
        if calls:
            self._recorder.note("assistant", record)  # the first call's event follows at once
        else:
            await self._recorder.record("assistant", record)
        self.said = ""
        self._tell(Replied(reply))
        return reply

    def _trace_record(self, reply: Reply, prompt: Sequence[Message]) -> dict[str, object]:
        """Return the fields of an assistant's event that describe its request."""
        record: dict[str, object] = {"schemas": self.schemas} if self.schemas else {}
        if (trace := reply.trace) is not None:
            record |= {"sampling": trace.sampling} if trace.sampling else {}
            record |= {"request_id": self._executor.clean(trace.request_id)} if trace.request_id else {}
            if trace.tokens is not None:
                record["tokens"] = self._tokens.pack(trace.tokens, prompt, reply.message)
        return record

    async def _request_reply(self, tool_choice: ToolChoice | None) -> Reply:
        """Request a reply; if the endpoint finds the conversation too long, shorten it and retry once."""
        try:
            return await self._stream_reply(tool_choice)
        except ContextTooLong as error:
            self._compactor.window = error.window
            if not await self.compact(force=True):
                raise
            return await self._stream_reply(tool_choice)

    async def compact(self, *, force: bool = False, manual: bool = False) -> bool:
        """Shorten the conversation if it fills the window, or if ``force``; return whether it was shortened.

        ``manual``: a person wants it.
        """

        async def permit() -> bool:
            reason = await self._hooks.check_compaction(manual=manual) if self._hooks else ""
            if reason:
                self._tell(Warned("hook", f"a hook prevents that the conversation is shortened: {reason}"))
            return not reason

        history = self._recorder.history
        found = await self._compactor.shorten(
            history.messages,
            request=history.request,
            window=self._options.window or self._model.window,
            tool_tokens=self._tool_tokens,
            auxiliary=self._auxiliary,
            force=force,
            permit=permit,
        )
        if found is None:
            return False
        record: dict[str, object] = {
            "upto": self._recorder.last,
            "messages": [to_record(message) for message in found.messages[1:]],
            "how": found.how,
            "before": found.before,
            "after": found.after,
        }
        if found.usage is not None:
            self._count(found.usage, self._auxiliary.name)
            record["usage"] = found.usage.to_record()
        await self._recorder.record("compacted", record)
        self._tell(Compacted(found.before, found.after, found.how))
        return True

    async def _stream_reply(self, tool_choice: ToolChoice | None) -> Reply:
        messages = self._recorder.history.messages
        stream = self._model.stream(messages, self._tools, max_tokens=self._options.max_tokens, tool_choice=tool_choice)
        self._steps += 1
        async with aclosing(stream) as items:
            async for item in items:
                match item:
                    case Reply():
                        self._count(item.usage, item.model or self._model.name)
                        self._compactor.measure(messages, item.usage, self._tool_tokens)
                        return item
                    case Text():
                        self.said += item.text
                        self._tell(item)
                    case Thought():
                        self._tell(item)
                    case Retried():
                        self.said = ""
                        self._tell(item)
        raise ModelError(f"{self._model.name}: the stream ended without a reply")

    def _count(self, usage: Usage, model: str) -> None:
        self.usages.append(usage)
        if self._meter is not None:
            self._meter.add(usage, model, scripted=self._model.scripted)

    def _own_ids(self, message: Message) -> tuple[ToolCall, ...]:
        """Return the calls with ids that are unique in the conversation; some endpoints restart at 0 each time."""
        known = set(self._recorder.history.ids)
        calls: list[ToolCall] = []
        for call in message.tool_calls:
            own = (
                call
                if call.id not in known
                else replace(call, id=f"{call.id}_{secrets.token_hex(4)}", given_id=call.id)
            )
            known.add(own.id)
            calls.append(own)
        return tuple(calls)
