"""Conversations over a real terminal, with tools of the tests' own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import hermes_exec
from hermes_exec.errors import Unsupported
from hermes_exec_agent.models import Models, ScriptedModel
from hermes_exec_agent.models.protocol import ToolSpec
from hermes_exec_agent.runtime import Conversation, Options
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.tool import Approvals, Context

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.models.scripted import ScriptEntry
    from hermes_exec_agent.tools.tool import Tool

Do: TypeAlias = "Callable[[dict[str, Any], Context], Any]"
Talk: TypeAlias = "Callable[..., AbstractAsyncContextManager[Conversation]]"


class Nobody:
    """The person is away."""

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        raise Unsupported("nobody is there")

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        raise Unsupported("nobody is there")


class Doing:
    """A tool that does what a test says."""

    def __init__(self, name: str, do: Do, parameters: dict[str, Any] | None = None, *, changes: bool = True) -> None:
        schema = {"type": "object", "properties": parameters or {}, "additionalProperties": False}
        self.spec = ToolSpec(name, f"{name}.", schema)
        self.changes = changes
        self._do = do

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        done = self._do(arguments, context)
        if asyncio.iscoroutine(done):
            done = await done
        return done if isinstance(done, Envelope) else Envelope(ok=True, place=context.place, output=str(done))


def shows(name: str, text: str, *, changes: bool = False) -> Doing:
    """A tool that shows the same each time, whatever it is given."""
    return Doing(name, lambda _, __: text, {"n": {"type": "integer"}, "action": {"type": "string"}}, changes=changes)


async def _shell(arguments: dict[str, Any], context: Context) -> Envelope:
    result = await context.terminal.run(arguments["command"])
    return Envelope(ok=True, place=context.place, output=result.stdout_text, exit_code=result.exit_code)


def shell() -> Tool:
    """Runs commands in the conversation's terminal."""
    return Doing("terminal", _shell, {"command": {"type": "string"}})


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path / "conversations.sqlite")


@pytest.fixture
def talk(log: EventLog, tmp_path: Path) -> Talk:
    """``async with talk(replies, tools, …) as conversation`` over a local terminal."""

    @asynccontextmanager
    async def talking(
        replies: Sequence[ScriptEntry] | Model,
        tools: Sequence[Tool] | None = None,
        *,
        resume: str = "",
        models: Models | None = None,
        approvals: Approvals | None = None,
        **options: Any,
    ) -> AsyncGenerator[Conversation]:
        model = ScriptedModel(replies) if isinstance(replies, Sequence) else replies
        async with await hermes_exec.open("local", cwd=str(tmp_path)) as terminal:
            context = Context(terminal, "local", Nobody(), resume, approvals=approvals or Approvals())
            conversation = Conversation(
                models=models or Models(model),
                tools=[shell()] if tools is None else tools,
                context=context,
                log=log,
                options=Options(**options),
            )
            await conversation.begin()
            yield conversation

    return talking
