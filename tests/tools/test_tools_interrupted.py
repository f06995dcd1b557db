"""A turn with the real tools is interrupted at some moment: nothing of it runs on, and the next turn knows all."""

from __future__ import annotations

import asyncio
import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models import Models, ScriptedModel, ask
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.runtime import Conversation, open_conversation
from hermes_exec_agent.runtime.events.log import EventLog
from hermes_exec_agent.runtime.history import MessageHistory
from hermes_exec_agent.tools.tool import Approvals
from tests.rigs.bounded import until, within
from tests.rigs.endpoint import find_message_fault
from tests.rigs.processes import runs
from tests.tools.conftest import Nobody, agent_in

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path


pytestmark = pytest.mark.timeout(600)
run = within(500)
_SCRIPT = "import subprocess, tools\ntools.write_file(path='made', content='x')\nsubprocess.run(['sleep', {!r}])\n"


class Work:
    """What the model asks for in a turn: some calls that end, and some that do not."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.mark = f"600.{os.getpid()}{seed:06}"
        self._folder = folder

    def models(self) -> Models:
        return Models(ScriptedModel([self._reply] * 100))

    def _reply(self, messages: Sequence[Message], _: Any) -> Any:
        last = messages[-1]
        if last.role == "tool":
            return "Done."
        if last.content.startswith("sub"):
            return ask(("terminal", {"command": f"sleep {self.mark}"}))
        if last.content == "where":
            return ask(
                ("terminal", {"command": "pwd"}),
                ("write_file", {"path": "here", "content": "it"}),
                ("terminal", {"command": "cat here"}),
            )
        return ask(*self.random.sample(self._calls(), 4)) if last.content == "work" else "Fine."

    def _calls(self) -> list[tuple[str, dict[str, Any]]]:
        other = self._folder / f"other{self.random.randrange(3)}"
        return [
            ("terminal", {"command": f"mkdir -p {other}; cd {other}; sleep {self.mark}"}),
            ("terminal", {"command": f"mkdir -p {other}; cd {other}"}),
            ("terminal", {"command": f"sleep {self.mark}", "background": True}),
            ("write_file", {"path": "written", "content": "it"}),
            ("read_file", {"path": "written"}),
            ("search_files", {"pattern": "it"}),
            ("execute_code", {"code": _SCRIPT.format(self.mark)}),
            ("delegate_task", {"goal": "sub"}),
        ]


def opened(work: Work, log: EventLog, folder: Path, resume: str = "") -> AbstractAsyncContextManager[Conversation]:
    return open_conversation(
        "local", models=work.models(), person=Nobody(), log=log, cwd=str(folder), resume=resume,
        approvals=Approvals("allow"),
    )  # fmt: skip


async def interrupted(conversation: Conversation, work: Work) -> None:
    """At a moment that the seed chooses: some steps of the loop, or some time, after the turn began."""
    asking = asyncio.create_task(conversation.ask("work"))
    if work.random.random() < 0.4:
        for _ in range(work.random.randrange(1, 150)):
            await asyncio.sleep(0)
    else:
        await asyncio.sleep(work.random.random() * 1.5)
    end = work.random.choice([conversation.interrupt, asking.cancel])
    end()
    for _ in range(work.random.randrange(3)):
        await asyncio.sleep(0)
        asking.cancel()
    _, pending = await asyncio.wait([asking], timeout=30)
    assert not pending, "it goes on"


def jobs_of(log: EventLog, id: str) -> list[str]:
    """What was started in the background, and the model was told of."""
    results = [json.loads(event.data["content"]) for event in log.events(id) if event.kind == "result"]
    return [each["session_id"] for each in results if each.get("session_id")]


def whole(log: EventLog, conversation: Conversation) -> None:
    events = log.events(conversation.id)
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    asked = [call["id"] for event in events if event.kind == "assistant" for call in event.data["tool_calls"]]
    for kind in ("call", "result"):
        told = [event.data["id"] for event in events if event.kind == kind]
        assert len(told) == len(set(told)), f"a {kind} is recorded twice"
        assert set(told) <= set(asked)
    next_one = [*conversation.messages, Message("user", "next")]
    assert not find_message_fault([message.to_wire() for message in next_one])
    assert MessageHistory(events).messages == conversation.messages
    assert len([json.loads(line) for line in log.export(conversation.id)]) == len(events)


async def where(conversation: Conversation) -> None:
    """The tools for files are where the shell is."""
    await conversation.ask("where")
    results = [each.content for each in conversation.messages if each.role == "tool"]
    told = [json.loads(each) for each in results[-3:]]
    assert told[2]["output"] == "it", told


async def scenario(seed: int, folder: Path) -> None:
    work = Work(seed, folder)
    with EventLog(folder / "log.sqlite") as log:
        async with opened(work, log, folder) as conversation:
            for _ in range(3):
                await interrupted(conversation, work)
                for id in jobs_of(log, conversation.id):
                    await (await conversation.terminal.job(id)).kill()
                assert not runs(work.mark), "something goes on"
                await where(conversation)
                whole(log, conversation)
        async with opened(work, log, folder, conversation.id) as again:
            whole(log, again)
            await where(again)
            assert (await again.ask("hello")).text == "Fine."


@pytest.mark.parametrize("seed", range(6))
def test_whenever_a_turn_is_interrupted_nothing_runs_on_and_the_next_one_works(seed: int, tmp_path: Path) -> None:
    run(scenario(seed, tmp_path))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_the_same_at_many_more_moments(seed: int, tmp_path: Path) -> None:
    run(scenario(seed, tmp_path))


def test_after_an_interrupt_files_are_where_the_shell_is(tmp_path: Path) -> None:
    """The command that is interrupted has changed the folder before."""
    (tmp_path / "inner").mkdir()

    async def main() -> None:
        async with agent_in("local") as agent:
            await agent("terminal", command=f"cd {tmp_path}")
            cut = asyncio.create_task(agent("terminal", command="cd inner; touch began; sleep 600"))
            await until((tmp_path / "inner" / "began").exists)
            cut.cancel()
            await asyncio.wait([cut])
            there = (await agent("terminal", command="true"))["cwd"]
            await agent("terminal", command=f"cd {tmp_path}")
            (tmp_path / "inner" / "began").unlink()
            cut = asyncio.create_task(agent("terminal", command="cd inner; touch began; sleep 600"))
            await until((tmp_path / "inner" / "began").exists)
            cut.cancel()
            await asyncio.wait([cut])
            await agent("write_file", path="file", content="it")
            assert (tmp_path / "file").exists() == (there == str(tmp_path)), there

    run(main())


def test_a_first_call_that_is_cancelled_leaves_the_folder_known(tmp_path: Path) -> None:
    """At one moment after another while the shell is made."""

    async def main() -> None:
        async with agent_in("local") as agent:
            begins = (await agent.context.terminal.run("pwd")).stdout_text.strip()
            cut = done = 0
            while not done:
                own = agent.context.fork()
                first = asyncio.create_task(own.workspace.path(str(tmp_path)))
                await asyncio.wait([first], timeout=0.0003 * cut)
                done += first.done()
                first.cancel()
                await asyncio.wait([first])
                assert await own.workspace.path("file") == f"{begins}/file"
                await own.close()
                cut += 1
            assert cut > 1

    run(main())


def test_what_was_being_started_in_the_background_is_gone_though_it_is_cancelled_twice(tmp_path: Path) -> None:
    """At one moment after another; whoever cancelled was never told its id."""

    async def main() -> None:
        async with agent_in("local") as agent:
            await agent("terminal", command="true")
            for moment in range(80):
                mark = f"600.{os.getpid()}{moment:02}"
                start = asyncio.create_task(agent("terminal", command=f"sleep {mark}", background=True))
                await asyncio.wait([start], timeout=0.0003 * (moment % 16))
                for _ in range(moment // 16):
                    start.cancel()
                    await asyncio.sleep(0)
                start.cancel()
                await asyncio.wait([start])
                assert not start.cancelled() or not runs(mark)
            await agent.context.end_background()

    run(main())
