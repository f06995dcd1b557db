"""A conversation whose program was killed goes on: nothing is forgotten, and nothing is claimed or done twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.frontends.chat.export import to_messages
from hermes_exec_agent.models import ScriptedModel, ask, say
from hermes_exec_agent.runtime.history import MessageHistory
from tests.rigs.breadth import thorough
from tests.rigs.endpoint import ScriptedEndpoint, Streamed, find_message_fault

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events import EventLog
    from tests.runtime.conftest import Talk

PROGRAM = """
import asyncio, sys
from pathlib import Path
import hermes_exec
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.runtime import Conversation
from hermes_exec_agent.models import Models
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.tools.tool import Context
from tests.runtime.conftest import Nobody, shell

async def main(url, path):
    async with await hermes_exec.open("local", lease_s=1) as terminal:
        conversation = Conversation(
            models=Models(Endpoint("m", base_url=url)), tools=[shell()],
            context=Context(terminal, "local", Nobody(), "c"), log=EventLog(Path(path)),
        )
        await conversation.begin()
        await conversation.ask("do it")

asyncio.run(main(*sys.argv[1:]))
"""


def killed(rig: ScriptedEndpoint, log: EventLog, moment: Path | None) -> None:
    """A program that talks to ``rig``, killed once ``moment`` is there, or in the middle of a reply."""
    environ = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, rig.url, log.path], env=environ)
    try:
        if moment is None:
            assert rig.hanging.wait(50)
        else:
            while not moment.exists():
                assert program.poll() is None
                time.sleep(0.05)
    finally:
        program.kill()
        program.wait()


@thorough
def test_a_call_that_was_running_is_of_unknown_outcome(talk: Talk, log: EventLog, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    command = f"echo once >> {marker}; exec sleep 600"
    with ScriptedEndpoint([ask(("terminal", {"command": "echo before"}), ("terminal", {"command": command}))]) as rig:
        killed(rig, log, marker)
    before = [event.kind for event in log.events("c")]
    assert before == ["started", "user", "assistant", "call", "result", "call"]

    async def whole() -> None:
        async with talk([say("I see.")], resume="c") as conversation:
            await conversation.ask("what happened?")
            model = conversation.model
            assert isinstance(model, ScriptedModel)
            sent = model.requests[0].messages
        assert not find_message_fault([message.to_wire() for message in sent])
        results = [message.content for message in sent if message.role == "tool"]
        assert "before" in results[0]
        assert results[1].startswith("unknown:")

    asyncio.run(whole())
    assert marker.read_text() == "once\n"
    assert [event.kind for event in log.events("c")][6:] == ["interrupted", "user", "assistant"]


@thorough
def test_a_program_killed_while_the_model_answered_goes_on(talk: Talk, log: EventLog) -> None:
    with ScriptedEndpoint([Streamed(say("half an answer"), hang="half")]) as rig:
        killed(rig, log, None)

    async def whole() -> None:
        async with talk(["a whole one"], resume="c") as conversation:
            assert (await conversation.ask("again")).text == "a whole one"
            assert [message.role for message in conversation.messages[1:]] == ["user", "assistant"] * 2

    asyncio.run(whole())


@pytest.mark.parametrize("kept", range(1, 9))
def test_any_beginning_of_a_record_can_be_gone_on_with(talk: Talk, log: EventLog, kept: int) -> None:
    """As if the program had been killed right after that event."""

    async def record() -> list[tuple[str, dict[str, object]]]:
        calls = ask(("terminal", {"command": "true"}), ("terminal", {"command": "false"}))
        async with talk([calls, "done"]) as conversation:
            await conversation.ask("go")
            return [(event.kind, event.data) for event in log.events(conversation.id)]

    async def go_on() -> None:
        async with talk(["here I am"], resume="cut") as conversation:
            assert (await conversation.ask("again")).text == "here I am"
            assert not find_message_fault([message.to_wire() for message in conversation.messages[:-1]])
            assert conversation.messages == MessageHistory(log.events("cut")).messages

    for kind, data in asyncio.run(record())[:kept]:
        log.append("cut", kind, data)  # type: ignore[arg-type]  # a kind as it was read
    exported = to_messages(log.events("cut"))
    assert not find_message_fault([*exported, {"role": "user"}])
    if kept > 1:
        assert exported[-1]["role"] == "assistant"
    asyncio.run(go_on())
