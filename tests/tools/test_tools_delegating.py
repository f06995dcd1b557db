"""A task handed to another conversation is done in the same place, apart from this one, and ends with it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hermes_exec
from hermes_exec_agent.models.catalog import Models
from hermes_exec_agent.models.scripted import ScriptedModel, ask, say
from hermes_exec_agent.runtime import CallEnded, Conversation, Delegated
from hermes_exec_agent.runtime.delegation import Delegator
from hermes_exec_agent.runtime.events.log import EventLog
from hermes_exec_agent.tools.tool import Approvals, Context
from hermes_exec_agent.tools.toolset import create_tools
from tests.rigs.processes import alive
from tests.tools.conftest import Nobody

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.runtime import Update
    from hermes_exec_agent.tools.tool import Person

pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def conversation(
    folder: Path, replies: list[Any], person: Person | None = None, named: dict[str, Model] | None = None
) -> AsyncGenerator[tuple[Conversation, ScriptedModel, EventLog]]:
    model = ScriptedModel(replies)
    models = Models(model, named=named)
    with EventLog(folder / "log.sqlite") as log:
        async with hermes_exec.open("local", cwd=str(folder)) as terminal:
            approvals = Approvals("allow" if person is None else "ask")
            context = Context(
                terminal, "local", person or Nobody(), "", model="scripted", approvals=approvals, models=models,
                delegate=Delegator(models, log),
            )  # fmt: skip
            made = Conversation(models=models, tools=create_tools(context), context=context, log=log)
            await made.begin()
            try:
                yield made, model, log
            finally:
                await context.close()


def last(model: ScriptedModel) -> str:
    return model.requests[-1].messages[-1].content


def test_a_task_is_done_in_a_shell_of_its_own_and_only_its_last_word_comes_back(tmp_path: Path) -> None:
    replies = [
        ask(("terminal", {"command": "cd /usr; mine=1"})),
        ask(("delegate_task", {"goal": "Look around.", "context": "The answer is in $mine."})),
        ask(("terminal", {"command": "cd /tmp; echo ${mine-none} $HERMES_EXEC_AGENT; seq 9999"})),
        say("It is none."),
        ask(("terminal", {"command": "pwd"})),
        say("Done."),
    ]

    async def held() -> tuple[Any, ScriptedModel, list[Any]]:
        async with conversation(tmp_path, replies) as (talk, model, log):
            return await talk.ask("Go."), model, log.conversations()

    answer, model, listed = asyncio.run(held())
    assert answer.text == "Done."
    first_of_child = model.requests[2]
    assert [each.content for each in first_of_child.messages if each.role == "user"] == [
        "Look around.\n\nThe answer is in $mine."
    ]
    names = {tool.name for tool in first_of_child.tools}
    assert not {"delegate_task", "clarify"} & names
    assert "delegate_task" in {tool.name for tool in model.requests[0].tools}
    assert "none scripted" in model.requests[3].messages[-1].content
    assert "It is none." in model.requests[4].messages[-1].content
    assert '"output": "/usr\\n"' in last(model)
    kept = json.loads(model.requests[3].messages[-1].content)
    assert not Path(kept["output_ref"]).exists()  # it went with the conversation that it was an output of
    assert len(listed) == 2
    assert {each.parent for each in listed} == {"", next(each.id for each in listed if not each.parent)}


def test_a_task_is_done_by_the_model_that_the_person_chose(tmp_path: Path) -> None:
    other = ScriptedModel([ask(("delegate_task", {"goal": "Look around."})), say("Looked."), say("Done.")], name="b")

    async def held() -> ScriptedModel:
        async with conversation(tmp_path, [], named={"b": other}) as (talk, model, _):
            talk.set_model("b")
            assert (await talk.ask("Go.")).text == "Done."
            return model

    assert asyncio.run(held()).requests == []
    assert len(other.requests) == 3


class Thinks(Nobody):
    """Takes a while to allow something."""

    def __init__(self) -> None:
        self.thought_s = 0.0

    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:
        began = time.monotonic()
        await asyncio.sleep(1)
        self.thought_s += time.monotonic() - began
        return True


def test_the_time_of_a_call_is_without_that_of_its_approvals(tmp_path: Path) -> None:
    """Also of the calls that a script makes, and of those that a delegated task makes."""
    command = {"command": "true"}
    replies = [
        ask(("terminal", command)),
        ask(("execute_code", {"code": "import tools\ntools.terminal('true')\n"})),
        ask(("delegate_task", {"goal": "Do it."})),
        ask(("terminal", command)),
        say("It is done."),
        say("Done."),
    ]
    person = Thinks()
    told: list[Update] = []

    async def held() -> float:
        async with conversation(tmp_path, replies, person) as (talk, _, _):
            began = time.monotonic()
            await talk.ask("Go.", told.append)
            return time.monotonic() - began

    rest_s = asyncio.run(held()) - person.thought_s
    ended = [update for update in told if isinstance(update, CallEnded)]
    assert [update.call.name for update in ended] == ["terminal", "execute_code", "delegate_task"]
    assert person.thought_s >= 4
    assert sum(update.duration_s for update in ended) <= rest_s
    assert ended[1].envelope.duration_s <= rest_s
    (inner,) = [update.update for update in told if isinstance(update, Delegated)]
    assert isinstance(inner, CallEnded)
    assert (inner.call.name, inner.duration_s <= rest_s) == ("terminal", True)


def test_an_interrupt_ends_what_the_other_conversation_runs(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    replies = [
        ask(("delegate_task", {"goal": "Wait."})),
        ask(("terminal", {"command": f"sh -c 'echo $$ > {fifo}; exec sleep 1000'"})),
    ]

    async def held() -> int:
        async with conversation(tmp_path, replies) as (talk, _, _):
            task = asyncio.ensure_future(talk.ask("Go."))
            pid = int(await asyncio.to_thread(fifo.read_text))
            talk.interrupt()
            assert (await task).outcome == "interrupted"
            return pid

    assert not alive(asyncio.run(held()))


def test_a_task_that_comes_to_no_answer_says_so(tmp_path: Path) -> None:
    looping = ask(("terminal", {"command": "false"}))
    replies: list[Any] = [ask(("delegate_task", {"goal": "Try."})), *[looping] * 60]

    def answer(messages: Any, tools: Any) -> Any:
        """The handed task never learns; whoever handed it on reads what came of it."""
        if any('"type": "unfinished"' in each.content for each in messages):
            assert "- terminal  false: exit code 1 (" in messages[-1].content
            return say("It did not work.")
        return looping

    replies[1:] = [answer] * 60

    async def held() -> Any:
        async with conversation(tmp_path, replies) as (talk, _, _):
            return await talk.ask("Go.")

    assert asyncio.run(held()).text == "It did not work."


def test_a_task_that_was_handed_on_reads_no_secret_either(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("private", encoding="utf-8")
    (tmp_path / "shown").write_text("shown", encoding="utf-8")
    replies = [
        ask(("delegate_task", {"goal": "Look around."})),
        ask(("read_file", {"path": ".env"}), ("read_file", {"path": "shown"})),
        say("I read one of them."),
        say("Done."),
    ]

    async def held() -> list[str]:
        async with conversation(tmp_path, replies) as (talk, model, _):
            await talk.ask("Go.")
            return [each.content for each in model.requests[2].messages[-2:]]

    secret, shown = asyncio.run(held())
    assert json.loads(secret)["error"]["type"] == "denied"
    assert json.loads(shown)["output"] == "1|shown"


def test_the_usage_of_a_delegated_task_counts_for_the_conversation(tmp_path: Path) -> None:
    async def whole() -> None:
        replies = [ask(("delegate_task", {"goal": "Count."})), say("word " * 50), say("Done.")]
        async with conversation(tmp_path, replies) as (made, _, log):
            answer = await made.ask("go")
            (other,) = log.children()[made.id]
            own = [each.data["usage"]["prompt"] for each in log.events(made.id) if each.kind == "assistant"]
            there = [each.data["usage"]["prompt"] for each in log.events(other) if each.kind == "assistant"]
        assert len(there) == 1
        assert answer.usage.prompt == made.usage.prompt == sum(own) + sum(there)

    asyncio.run(whole())
