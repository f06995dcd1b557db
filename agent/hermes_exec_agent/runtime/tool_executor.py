"""Run a model's tool calls in order; each is recorded before it runs, and its result before it is shown."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from hermes_exec_agent.runtime.updates import CallEnded, CallStarted
from hermes_exec_agent.tools.dispatch import resolve
from hermes_exec_agent.tools.dispatch import run as do
from hermes_exec_agent.tools.envelope import Failure, failure_envelope
from hermes_exec_agent.tools.provenance import describe_source
from hermes_exec_agent.tools.tool import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hermes_exec_agent.models.messages import ToolCall
    from hermes_exec_agent.runtime.events.event import Kind
    from hermes_exec_agent.runtime.updates import Update
    from hermes_exec_agent.tools.dispatch import ResolvedCall
    from hermes_exec_agent.tools.envelope import Envelope
    from hermes_exec_agent.tools.tool import Context, Tool

_SIDE_BY_SIDE = 8
"""Calls that run at once."""
_CUT = (
    "the reply was cut at its limit, so that this call may not be whole; nothing of it ran. Ask again, for less at once"
)


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """A call and its result."""

    call: ToolCall
    """With the name and arguments of the tool that ran."""
    envelope: Envelope
    changes: bool


class ToolExecutor:
    """Runs the tool calls of one conversation."""

    def __init__(
        self,
        tools: Sequence[Tool],
        context: Context,
        *,
        record: Callable[[Kind, dict[str, Any]], Awaitable[object]],
        clean: Callable[[str], str],
    ) -> None:
        """``record`` appends an event; ``clean`` removes keys from a tool's output."""
        self._tools = {tool.spec.name: tool for tool in tools}
        self._context = context
        self._record = record
        self.clean = clean
        self._cut = ""

    def add(self, tools: Sequence[Tool]) -> None:
        """Add tools."""
        self._tools |= {tool.spec.name: tool for tool in tools}

    async def run(
        self, calls: Sequence[ToolCall], tell: Callable[[Update], None], *, cut: bool = False
    ) -> list[ExecutedCall]:
        """Run the calls in order; neighbours that change nothing run concurrently.

        ``cut``: the reply was truncated, so that its last call does not run.
        When this returns or raises, no call still runs.
        """
        self._cut = calls[-1].id if cut else ""
        done: list[ExecutedCall] = []
        resolved = [resolve(self._tools, call) for call in calls]
        for together, group in groupby(resolved, lambda each: not each.changes):
            if together:
                done += await self._side_by_side(list(group), tell)
            else:
                done += [await self._one(each, tell) for each in group]
        return done

    async def list_running(self) -> list[str]:
        """List the background processes and tasks of this conversation that still run, one line each."""
        return await self._context.list_running()

    async def _side_by_side(self, calls: Sequence[ResolvedCall], tell: Callable[[Update], None]) -> list[ExecutedCall]:
        room = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def one(resolved: ResolvedCall) -> ExecutedCall:
            async with room:
                return await self._one(resolved, tell)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(each)) for each in calls]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _one(self, resolved: ResolvedCall, tell: Callable[[Update], None]) -> ExecutedCall:
        call = resolved.call
        data: dict[str, Any] = {"id": call.id, "name": call.name}
        if resolved.is_rewritten:
            written = {"name": resolved.written.name, "arguments": resolved.written.arguments}
            data |= {"arguments": call.arguments, "written": written}
        if resolved.changes:
            data |= self._context.provenance.sources_record(self._context.conversation)
        await self._record("call", data)
        tell(CallStarted(call))
        known = len(self._context.provenance.strangers)
        with Stopwatch() as watch:
            envelope = await self._call(resolved)
        duration_s = watch.elapsed_s
        content = self.clean(resolved.annotate(envelope).text())
        result: dict[str, Any] = {"id": call.id, "name": call.name, "content": content}
        if envelope.origins:
            result["origins"] = [each.to_record() for each in envelope.origins]
        if envelope.output and (source := describe_source(call.name, resolved.arguments, self.clean)):
            result["source"] = source
        if more := list(self._context.provenance.strangers)[known:]:
            result["strangers"] = more
        await self._record("result", {**result, "duration_s": round(duration_s, 4)})
        tell(CallEnded(call, envelope, duration_s))
        return ExecutedCall(call, envelope, resolved.changes)

    async def _call(self, resolved: ResolvedCall) -> Envelope:
        if resolved.call.id == self._cut:
            return failure_envelope(self._context.place, Failure("arguments", _CUT))
        return await do(resolved, self._context)
