"""The walks of ARCHITECTURE.md: how many files a command and a turn enter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import hermes_exec
from hermes_exec_agent.models import Models, ScriptedModel, ask
from hermes_exec_agent.runtime import Conversation, Options
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import create_tools
from tests.rigs.walks import Walk
from tests.runtime.conftest import Nobody

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.runtime.events import EventLog


def test_a_command_enters_twelve_files_with_the_audit_the_codec_and_the_channel() -> None:
    async def run() -> Walk:
        with Walk() as walk:
            async with await hermes_exec.open("local") as terminal:
                await terminal.run("true")
                walk.begin()
                await terminal.run("echo hi")
                files = walk.files("hermes_exec") + walk.files("backends")
        apart = {
            "backends/hermes_exec_backends/local/channel.py", "hermes_exec/guest/core/wire.py",
            "hermes_exec/observe/audit.py",
        }  # fmt: skip
        assert apart < set(files)
        assert len(files) <= 12 + len(apart), files
        return walk

    asyncio.run(run())


def test_a_turn_with_one_call_enters_22_files_of_the_agent_with_its_threads(log: EventLog, tmp_path: Path) -> None:
    async def run() -> None:
        call = ask(("terminal", {"command": "echo hi"}))
        with Walk() as walk:
            async with await hermes_exec.open("local", cwd=str(tmp_path)) as terminal:
                context = Context(terminal, "local", Nobody(), "", approvals=Approvals(mode="allow"))
                conversation = Conversation(
                    models=Models(ScriptedModel([call, "Done.", call, "Done."])),
                    tools=create_tools(context),
                    context=context,
                    log=log,
                    options=Options(),
                )
                await conversation.begin()
                await conversation.ask("go")
                walk.begin()
                answer = await conversation.ask("go")
        assert (answer.outcome, answer.calls) == ("answered", 1)
        assert len(walk.files("agent", threads=False)) <= 19, walk.files("agent", threads=False)
        assert len(walk.files("agent")) <= 22, walk.files("agent")

    asyncio.run(run())
