"""Journals in folders of the tests' own, and conversations that use them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import pytest

import hermes_exec
from hermes_exec.errors import Unsupported
from hermes_exec_agent.memory.entries import Entry
from hermes_exec_agent.memory.journal import Journal
from hermes_exec_agent.memory.tool import MemoryTool
from hermes_exec_agent.models import Models
from hermes_exec_agent.runtime import Conversation
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.shell import TerminalTool
from hermes_exec_agent.tools.tool import Approvals, Context

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.memory.entries import Target
    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.tools.tool import Tool

Talk: TypeAlias = "Callable[..., AbstractAsyncContextManager[Conversation]]"


class Person:
    """Approves the tools in ``approved`` alone, and answers questions with ``answer``."""

    def __init__(self, approved: Sequence[str] = (), answer: str = "") -> None:
        self.approved = approved
        self.answer = answer
        self.asked: list[str] = []

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        self.asked.append(f"{tool}: {summary}")
        return tool in self.approved

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        if not self.answer:
            raise Unsupported("nobody is there")
        return self.answer


def add(journal: Journal, *texts: str, target: Target = "memory") -> None:
    new = [Entry(text) for text in texts]
    journal.write(target, lambda entries: [*entries, *new], who="person", why="test")


def write_settings(monkeypatch: pytest.MonkeyPatch, folder: Path, memory: str) -> None:
    """Use a configuration whose section ``[memory]`` has these lines, and a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.delenv("HERMES_EXEC_PERSON", raising=False)
    (folder / "config/hermes_exec").mkdir(parents=True, exist_ok=True)
    (folder / "config/hermes_exec/hermes.toml").write_text(f"[memory]\n{memory}\n")


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path / "conversations.sqlite")


@pytest.fixture
def journal(tmp_path: Path, log: EventLog) -> Journal:
    return Journal(tmp_path / "memory", log, {"memory": 2200, "user": 1375})


@pytest.fixture
def talk(log: EventLog, journal: Journal, tmp_path: Path) -> Talk:
    """``async with talk(model, person, told) as conversation`` with a journal, over a local terminal."""

    @asynccontextmanager
    async def talking(
        model: Model | Models, person: Person | None = None, told: list[str] | None = None, mode: str = "allow"
    ) -> AsyncGenerator[Conversation]:
        (tmp_path / "work").mkdir(exist_ok=True)
        async with await hermes_exec.open("local", cwd=str(tmp_path / "work")) as terminal:
            approvals = Approvals("ask" if mode == "ask" else "allow")
            context = Context(terminal, "local", person or Person(), "", approvals=approvals, journal=journal)
            if told is not None:
                context.tell = told.append
            models = model if isinstance(model, Models) else Models(model)
            tools: list[Tool] = [TerminalTool(), MemoryTool()]
            conversation = Conversation(models=models, tools=tools, context=context, log=log)
            await conversation.begin()
            try:
                yield conversation
            finally:
                await context.close()

    return talking
