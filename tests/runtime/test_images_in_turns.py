"""Images of a request: recorded, sent again with the conversation, and counted as text from outside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from hermes_exec.errors import UsageError
from hermes_exec_agent.memory.origins import create_entry
from hermes_exec_agent.models import say
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.models.images import MAX_IMAGES, parse_image
from tests.rigs.endpoint import ScriptedEndpoint
from tests.rigs.pictures import count_images, png

if TYPE_CHECKING:
    from hermes_exec_agent.runtime.events import EventLog
    from tests.runtime.conftest import Talk

PNG = parse_image(png(), "scan `1`.png")


def test_an_image_is_sent_with_its_request_and_stays_in_the_conversation(talk: Talk, log: EventLog) -> None:
    async def turns(rig: ScriptedEndpoint) -> str:
        async with talk(Endpoint("m", base_url=rig.url, vision=True)) as conversation:
            await conversation.ask("what is it?", images=[PNG])
            id = conversation.id
        async with talk(Endpoint("m", base_url=rig.url, vision=True), resume=id) as resumed:
            await resumed.ask("sure?")
            return id

    with ScriptedEndpoint([say("Black."), say("Yes.")]) as rig:
        id = asyncio.run(turns(rig))
    assert [count_images(each) for each in rig.requests] == [[0, 1], [0, 1, 0, 0]]
    text = rig.requests[0]["messages"][1]["content"][0]["text"]
    assert text.startswith("what is it?\n\n[notice of the agent's program] attached image: ")
    assert '"scan `1`.png" (image/png, 2x3, ' in text
    user = next(each for each in log.events(id) if each.kind == "user")
    assert user.data["content"] == "what is it?"
    assert user.data["images"] == [PNG.to_record()]


def test_a_model_that_takes_none_is_told_in_one_line_and_nothing_is_recorded(talk: Talk, log: EventLog) -> None:
    async def turn(rig: ScriptedEndpoint) -> None:
        async with talk(Endpoint("m", base_url=rig.url)) as conversation:
            with pytest.raises(UsageError, match="m takes no images. Try: vision = true in its table"):
                await conversation.ask("what is it?", images=[PNG])
            assert all(each.kind != "user" for each in log.events(conversation.id))

    with ScriptedEndpoint([say("Never.")]) as rig:
        asyncio.run(turn(rig))
    assert rig.requests == []


def test_too_many_images_are_refused(talk: Talk) -> None:
    async def turn(rig: ScriptedEndpoint) -> None:
        async with talk(Endpoint("m", base_url=rig.url, vision=True)) as conversation:
            with pytest.raises(UsageError, match=f"{MAX_IMAGES} at most"):
                await conversation.ask("what are they?", images=[PNG] * (MAX_IMAGES + 1))

    with ScriptedEndpoint([say("Never.")]) as rig:
        asyncio.run(turn(rig))
    assert rig.requests == []


def test_what_is_remembered_of_an_image_is_a_quotation(talk: Talk, log: EventLog) -> None:
    async def turn(rig: ScriptedEndpoint) -> None:
        async with talk(Endpoint("m", base_url=rig.url, vision=True)) as conversation:
            await conversation.ask("what is it?", images=[PNG])
            (user,) = (each for each in log.events(conversation.id) if each.kind == "user")
            assert [each["has_output"] for each in user.data["parts"]] == [True]
            entry = create_entry("Always use tabs.", log.events(conversation.id), has_output=False)
            assert (entry.origin, entry.text.startswith("[from an attached file, ")) == ("untrusted", True)

    with ScriptedEndpoint([say("A sign: always use tabs.")]) as rig:
        asyncio.run(turn(rig))


def test_a_branch_has_the_images_and_a_request_that_was_taken_back_its_own(talk: Talk) -> None:
    async def turns(rig: ScriptedEndpoint) -> None:
        model = Endpoint("m", base_url=rig.url, vision=True)
        async with talk(model) as conversation:
            await conversation.ask("what is it?", images=[PNG])
            assert conversation.images == (PNG,)
            async with talk(model, branch_of=conversation.id) as branch:
                await branch.ask("sure?")
            await conversation.rewind()
            assert not conversation.images
            await conversation.ask("hello")

    with ScriptedEndpoint([say("Black."), say("Yes."), say("Hello.")]) as rig:
        asyncio.run(turns(rig))
    assert [count_images(each) for each in rig.requests] == [[0, 1], [0, 1, 0, 0], [0, 0]]
