"""A program that stood still during its turn, and woke up when another one had gone on with the conversation."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from hermes_exec_agent.models import ask, say
from hermes_exec_agent.runtime.events import TurnHeld
from tests.rigs.bounded import PATIENCE_S, wait_until
from tests.rigs.endpoint import ScriptedEndpoint
from tests.rigs.processes import with_mark

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.runtime.events import EventLog
    from tests.runtime.conftest import Talk

PROGRAM = """
import asyncio, sys
from pathlib import Path
import hermes_exec
from hermes_exec_agent.runtime.events import EventLog, TurnLost
from hermes_exec_agent.runtime import Conversation, Options
from hermes_exec_agent.models import Models
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.tools.tool import Context
from tests.runtime.conftest import Nobody, shell

async def main(url, path):
    async with await hermes_exec.open("local") as terminal:
        conversation = Conversation(
            models=Models(Endpoint("m", base_url=url)), tools=[shell()],
            context=Context(terminal, "local", Nobody(), "c"), log=EventLog(Path(path)),
            options=Options(turn_lease_s=1.0),
        )
        await conversation.begin()
        try:
            print(await conversation.ask("do it"))
        except TurnLost as error:
            print(error)

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_program_that_wakes_up_after_its_turn_was_taken_over_records_nothing_more(
    talk: Talk, log: EventLog, tmp_path: Path
) -> None:
    mark = f"sleep 6{os.getpid()}.{time.monotonic_ns() % 10**9}"
    environ = {**os.environ, "PYTHONPATH": ":".join(sys.path)}

    async def go_on() -> None:
        async with talk([say("I see.")], resume="c") as conversation:
            refused = 0
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    try:
                        await conversation.ask("what happened?")
                    except TurnHeld as error:
                        assert f"process {program.pid} on" in str(error)  # noqa: PT017  it is raised often
                        refused += 1
                        await asyncio.sleep(0.05)
                    else:
                        break
            assert refused
            (result,) = [message.content for message in conversation.messages if message.role == "tool"]
            assert result.startswith("unknown:")

    with ScriptedEndpoint([ask(("terminal", {"command": mark}))]) as rig:
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, rig.url, log.path], env=environ, stdout=subprocess.PIPE, text=True
        )
        try:
            wait_until(lambda: with_mark(mark.replace(" ", "\0")))
            program.send_signal(signal.SIGSTOP)
            asyncio.run(go_on())
            before = list(log.export("c"))
            program.send_signal(signal.SIGCONT)
            said, _ = program.communicate(timeout=PATIENCE_S)
        finally:
            program.kill()
            program.communicate()
    assert said.count("\n") == 1
    assert said.startswith("conversation c: this turn ends, because another program took the conversation over")
    assert not with_mark(mark.replace(" ", "\0"))
    assert list(log.export("c")) == before
    assert [event.kind for event in log.events("c")][-3:] == ["interrupted", "user", "assistant"]
