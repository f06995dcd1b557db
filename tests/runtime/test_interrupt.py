"""A turn that is interrupted, at whatever point, leaves nothing running and a conversation that can go on."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hermes_exec_agent.models import Models, ScriptedModel, ask, say
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.runtime import CallStarted, Ended, Text
from tests.rigs.endpoint import ScriptedEndpoint, Streamed, find_message_fault
from tests.rigs.processes import alive

if TYPE_CHECKING:
    from hermes_exec_agent.runtime import Conversation, Update
    from hermes_exec_agent.runtime.events import EventLog
    from tests.runtime.conftest import Talk


def endless(pid_file: Path) -> tuple[str, dict[str, str]]:
    """A command that says who it is and does not end."""
    return "terminal", {"command": f"sh -c 'echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600'"}


async def began(pid_file: Path) -> int:
    while not pid_file.exists():
        await asyncio.sleep(0.02)
    return int(pid_file.read_text())


def script(conversation: Conversation) -> ScriptedModel:
    model = conversation.model
    assert isinstance(model, ScriptedModel)
    return model


def test_an_interrupted_command_is_gone_when_the_turn_has_ended(talk: Talk, tmp_path: Path, log: EventLog) -> None:
    async def whole() -> None:
        async with talk([ask(endless(tmp_path / "pid"), text="I wait."), "what next?"]) as conversation:
            asking = asyncio.create_task(conversation.ask("wait"))
            pid = await began(tmp_path / "pid")
            conversation.interrupt()
            answer = await asking
            assert not alive(pid)
            assert answer.outcome == "interrupted"
            assert log.events(conversation.id)[-1].kind == "interrupted"
            assert (await conversation.ask("go on")).text == "what next?"
            sent = script(conversation).requests[1].messages
            assert not find_message_fault([message.to_wire() for message in sent])
            assert "interrupted" in sent[3].content

    asyncio.run(whole())


def test_a_cancelled_caller_leaves_nothing_running(talk: Talk, tmp_path: Path, log: EventLog) -> None:
    async def whole() -> None:
        async with talk([ask(endless(tmp_path / "pid"))]) as conversation:
            asking = asyncio.create_task(conversation.ask("wait"))
            pid = await began(tmp_path / "pid")
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert not alive(pid)
            assert log.events(conversation.id)[-1].data["by"] == "cancelled"

    asyncio.run(whole())


def test_to_be_cancelled_again_and_again_ends_it_no_less(talk: Talk, tmp_path: Path, log: EventLog) -> None:
    async def whole() -> None:
        async with talk([ask(endless(tmp_path / "pid"))] * 10) as conversation:
            for times in range(1, 10):
                asking = asyncio.create_task(conversation.ask("wait"))
                pid = await began(tmp_path / "pid")
                (tmp_path / "pid").unlink()
                for _ in range(times):
                    conversation.interrupt()
                    asking.cancel()
                    await asyncio.sleep(0)
                await asyncio.wait([asking])
                assert not alive(pid)
                assert log.events(conversation.id)[-1].kind == "interrupted"

    asyncio.run(whole())


def test_leaving_the_iterator_is_an_interrupt(talk: Talk, tmp_path: Path, log: EventLog) -> None:
    async def whole() -> None:
        async with talk([ask(endless(tmp_path / "pid"))]) as conversation:
            async with aclosing(conversation.turn("wait")) as updates:
                async for update in updates:
                    if isinstance(update, CallStarted):
                        await began(tmp_path / "pid")
                        break
            assert not alive(await began(tmp_path / "pid"))
            assert log.events(conversation.id)[-1].kind == "interrupted"

    asyncio.run(whole())


def test_the_time_limit_of_a_turn_stops_what_runs(talk: Talk, tmp_path: Path) -> None:
    async def whole() -> None:
        async with talk([ask(endless(tmp_path / "pid"))], time_limit_s=3.0) as conversation:
            answer = await conversation.ask("wait")
            assert answer.outcome == "stopped"
            assert "Stopped: the time limit of 3 s\n\n" in answer.text
            assert "\n\nStopped before its end:\n\n- terminal  " in answer.text
            assert conversation.messages[-1].content == f"{answer.text}\n\n(The time limit of this turn ended it.)"
            assert not (tmp_path / "pid").exists() or not alive(int((tmp_path / "pid").read_text()))

    asyncio.run(whole())


def test_what_was_said_before_an_interrupt_is_known_afterwards(talk: Talk) -> None:
    """While the endpoint hangs in the middle of its reply."""

    async def whole(rig: ScriptedEndpoint) -> None:
        model = Endpoint("m", base_url=rig.url)
        async with talk(model) as conversation:
            heard = asyncio.Event()

            def listen(update: Update) -> None:
                if isinstance(update, Text):
                    heard.set()

            asking = asyncio.create_task(conversation.ask("tell me", listen))
            await heard.wait()
            conversation.interrupt()
            answer = await asking
            assert (answer.text, answer.outcome) == ("Once upo", "interrupted")
            assert conversation.messages[-1].content.startswith("Once upo")
        await model.close()

    with ScriptedEndpoint([Streamed(say("Once upon a time"), hang="Once upo")]) as rig:
        asyncio.run(whole(rig))
        assert rig.left.wait(30)


@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_it_can_be_interrupted_at_any_moment(talk: Talk, log: EventLog, steps: int) -> None:
    """After any number of the loop's steps: the record is whole, and the conversation goes on."""

    async def whole() -> None:
        replies = [ask(("terminal", {"command": "echo a"}), ("terminal", {"command": "echo b"})), "first answer"]
        async with talk([*replies, *["second answer"] * 3]) as conversation:
            asking = asyncio.create_task(conversation.ask("one"))
            for _ in range(steps):
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            assert (await conversation.ask("two")).outcome == "answered"
            sent = script(conversation).requests[-1].messages
            assert not find_message_fault([message.to_wire() for message in sent])
            assert (await conversation.terminal.run("echo fine")).stdout == b"fine\n"
            numbers = [event.number for event in log.events(conversation.id)]
            assert numbers == list(range(1, len(numbers) + 1))

    asyncio.run(whole())


def test_an_interrupt_without_a_turn_does_nothing(talk: Talk) -> None:
    async def whole() -> None:
        async with talk(["here"]) as conversation:
            conversation.interrupt()
            assert (await conversation.ask("hello")).text == "here"
            conversation.interrupt()
            assert conversation.messages[-1].content == "here"

    asyncio.run(whole())


def test_models_can_be_changed_between_turns(talk: Talk) -> None:
    async def whole() -> None:
        models = Models(ScriptedModel(["one"], name="a"), named={"b": ScriptedModel(["two"], name="b")})
        async with talk([], models=models) as conversation:
            await conversation.ask("hello")
            conversation.set_model("b")
            assert conversation.models.get("main").name == "b"
            context = conversation._context  # pyright: ignore[reportPrivateUsage]  that of the tools
            assert context.models is conversation.models
            assert [type(update) async for update in conversation.turn("again")][-1] is Ended
            assert conversation.messages[-1].content == "two"

    asyncio.run(whole())
