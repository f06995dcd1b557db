"""Run a script in the target that calls tools: one turn of the model, many calls."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from pydantic import Field

from hermes_exec_agent.models.messages import ToolCall
from hermes_exec_agent.tools.base import BaseTool, ToolArguments
from hermes_exec_agent.tools.dispatch import perform
from hermes_exec_agent.tools.prepared import ToolTraits
from hermes_exec_agent.tools.target_python import build_argv
from hermes_exec_agent.tools.tool import Stopwatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec.result import Result
    from hermes_exec.terminal.stream import Stream
    from hermes_exec_agent.tools.envelope import Envelope
    from hermes_exec_agent.tools.provenance import PartOrigin
    from hermes_exec_agent.tools.tool import Context, Tool

MOST_CALLS = 200
"""Tool calls of one script."""
_LONGEST_LINE = 8 << 20
_KEPT = 4 << 20
_HALF = _KEPT // 2


class ExecuteCodeArguments(ToolArguments):
    """Run a Python script in the target that calls tools, for many calls with logic between them.

    tools.read_file(path="a") returns the result as a dict, or raises tools.ToolFailed. Print what you want to see.
    """

    code: str = Field(min_length=1)
    timeout: int = Field(300, ge=1, le=3600, description="Seconds")


class ExecuteCode(BaseTool[ExecuteCodeArguments]):
    """Runs scripts in the target."""

    name = "execute_code"
    position = 70
    callable_from_scripts = False
    arguments_type = ExecuteCodeArguments

    def summary(self, args: ExecuteCodeArguments) -> str:
        """Return the script."""
        return args.code

    async def run(self, args: ExecuteCodeArguments, context: Context) -> Envelope:
        """Run the script and answer its calls. When it ends, or is cancelled, nothing of it is left running."""
        workspace = context.workspace
        folder = await workspace.cwd()
        await context.begin_command(folder)
        stream = context.terminal.stream(
            build_argv(context.terminal, "code", "-u"), interactive=True, timeout=args.timeout, cwd=folder,
            env=workspace.env,
        )  # fmt: skip
        talk = _ScriptSession([tool for tool in context.tools if _is_callable(tool)], context)
        async with stream:
            with Stopwatch() as watch:
                result = await talk.serve(stream, args.code)
        text, reference = await workspace.shorten(talk.printed)
        envelope = await workspace.envelope(result, folder)
        note = f"{talk.calls} {'call' if talk.calls == 1 else 'calls'} of tools" if talk.calls else ""
        return dataclasses.replace(
            envelope,
            output=text,
            output_ref=reference,
            truncated=bool(reference),
            duration_s=max(envelope.duration_s - watch.paused_s, 0.0),
            note="; ".join(filter(None, [envelope.note, note])),
            origins=tuple(talk.origins),
        )


def _is_callable(tool: Tool) -> bool:
    return not isinstance(tool, ToolTraits) or tool.callable_from_scripts


class _ScriptSession:
    """The calls of one script. The script's output is untrusted, like a model's."""

    def __init__(self, tools: Sequence[Tool], context: Context) -> None:
        self.calls = 0
        self.origins: dict[PartOrigin, None] = {}
        """Untrusted skills whose text the script was given, in order."""
        self._tools = {tool.spec.name: tool for tool in tools}
        self._context = context
        self._head = bytearray()
        self._tail = bytearray()
        self._line = bytearray()

    @property
    def printed(self) -> str:
        """The script's output, without the middle if it is long."""
        return (self._head + self._tail).decode("utf-8", "replace")

    async def serve(self, stream: Stream, code: str) -> Result:
        """Send the script, and answer calls until it ends."""
        parameters = {name: list(tool.spec.parameters["properties"]) for name, tool in self._tools.items()}
        await stream.write(json.dumps({"code": code, "tools": parameters}) + "\n")
        async for event in stream:
            if event.kind == "stderr":
                self._print(event.data)
            elif event.kind == "stdout":
                await self._take(event.data, stream)
            elif event.result is not None:
                return event.result
        return await stream.result()

    def _print(self, data: bytes) -> None:
        room = max(0, _HALF - len(self._head))
        self._head += data[:room]
        self._tail += data[room:]
        del self._tail[: max(0, len(self._tail) - _HALF)]

    async def _take(self, data: bytes, stream: Stream) -> None:
        self._line += data
        while (end := self._line.find(b"\n")) >= 0:
            line = bytes(self._line[:end])
            del self._line[: end + 1]
            answer = await self._answer(line)
            await stream.write(json.dumps(answer) + "\n")
        if len(self._line) > _LONGEST_LINE:
            self._line.clear()  # no call is that long

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            fields: Any = json.loads(line)
            call = ToolCall(f"code-{self.calls}", str(fields["tool"]), json.dumps(fields["arguments"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            return _refusal("this is not a call of a tool")
        self.calls += 1
        if self.calls > MOST_CALLS:
            return _refusal(f"a script calls tools {MOST_CALLS} times at most")
        envelope = await perform(self._tools.values(), call, self._context)
        self.origins |= dict.fromkeys(envelope.origins)
        answer: dict[str, Any] = json.loads(envelope.text())
        return answer


def _refusal(why: str) -> dict[str, Any]:
    return {"ok": False, "error": {"type": "arguments", "message": why, "retryable": False}}
