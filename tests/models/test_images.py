"""Images are checked by their content and reach the models that take them, in the form of chat completions."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_exec.errors import UsageError
from hermes_exec_agent.models import complete
from hermes_exec_agent.models.endpoint import Endpoint, Patience
from hermes_exec_agent.models.fallback import Fallback
from hermes_exec_agent.models.images import (
    MAX_BYTES,
    MAX_SIDE,
    image_of_record,
    parse_data_url,
    parse_image,
)
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import estimate_tokens, takes_images
from hermes_exec_agent.models.settings import load_models
from tests.rigs.endpoint import ScriptedEndpoint, Status
from tests.rigs.pictures import gif, jpeg, png, webp

if TYPE_CHECKING:
    from collections.abc import Sequence

PNG = parse_image(png(), "x.png")
PART = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png()).decode()}"}}
MESSAGES = (Message("user", "what is it?", images=(PNG,)), Message("assistant", "black"), Message("user", "sure?"))


@pytest.mark.parametrize(
    ("content", "kind", "size"),
    [
        (png(), "image/png", (2, 3)),
        (gif(), "image/gif", (4, 5)),
        (jpeg(), "image/jpeg", (6, 7)),
        (webp("VP8 "), "image/webp", (8, 9)),
        (webp("VP8L"), "image/webp", (8, 9)),
        (webp("VP8X"), "image/webp", (8, 9)),
    ],
)
def test_the_type_and_the_size_are_read_from_the_content(content: bytes, kind: str, size: tuple[int, int]) -> None:
    found = parse_image(content, "anything.txt")
    assert (found.media_type, (found.width, found.height)) == (kind, size)
    assert base64.b64decode(found.data) == content
    assert image_of_record(found.to_record()) == found


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<svg onload=alert(1)>", "this is not an image"),
        (b"", "this is not an image"),
        (b"MZ\x90", "this is not an image"),
        (b"\x89PNG\r\n\x1a\nnothing of it", "this is not an image"),
        (png()[:20], "this is not an image"),
        (b"\xff\xd8\xff\xda", "this is not an image"),
        (png(MAX_SIDE + 1, 1), f"{MAX_SIDE + 1}x1 pixels"),
        (gif(0, 5), "0x5 pixels"),
        (png() + bytes(MAX_BYTES), "at most 3,750,000"),
    ],
)
def test_what_is_no_image_of_these_types_and_sizes_is_refused(content: bytes, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_image(content, "x.png")


@given(st.sampled_from([png(), gif(), jpeg(), webp("VP8 "), webp("VP8L"), webp("VP8X")]), st.data())
def test_no_damaged_image_is_more_than_refused(content: bytes, data: st.DataObject) -> None:
    cut = content[: data.draw(st.integers(0, len(content)))] + data.draw(st.binary(max_size=40))
    with contextlib.suppress(UsageError):
        parse_image(cut, "x")


@pytest.mark.parametrize(
    "url", ["https://example.org/x.png", "file:///etc/passwd", "data:image/png,abc", "data:image/png;base64,§"]
)
def test_no_url_of_an_image_is_fetched(url: str) -> None:
    with pytest.raises(UsageError):
        parse_data_url(url, "image 1")


def bodies(rigs: Sequence[ScriptedEndpoint], *models: Endpoint) -> list[dict[str, Any]]:
    async def asked() -> None:
        model = Fallback(models)
        try:
            await complete(model, MESSAGES)
        finally:
            await model.close()

    asyncio.run(asked())
    return [each for rig in rigs for each in rig.requests]


def test_an_endpoint_that_takes_images_receives_them_after_the_text() -> None:
    with ScriptedEndpoint(["Black."]) as rig:
        (body,) = bodies([rig], Endpoint("m", base_url=rig.url, vision=True))
    assert body["messages"][0] == {"role": "user", "content": [{"type": "text", "text": "what is it?"}, PART]}
    assert body["messages"][2] == {"role": "user", "content": "sure?"}


def test_one_that_takes_none_receives_a_line_instead() -> None:
    with ScriptedEndpoint(["Black."]) as rig:
        (body,) = bodies([rig], Endpoint("m", base_url=rig.url))
    assert body["messages"][0]["content"] == (
        "what is it?\n\n[The images of this message are left out, as this model takes none.]"
    )


def test_the_mark_for_a_cache_is_at_the_text() -> None:
    async def asked(rig: ScriptedEndpoint) -> None:
        await complete(
            Endpoint("m", base_url=rig.url, vision=True, marks_cache=True), [Message("system", "s"), *MESSAGES]
        )

    with ScriptedEndpoint(["Black."]) as rig:
        asyncio.run(asked(rig))
    text, image = rig.requests[0]["messages"][1]["content"]
    assert text == {"type": "text", "text": "what is it?", "cache_control": {"type": "ephemeral"}}
    assert image == PART


def test_a_model_that_takes_images_is_asked_before_one_that_takes_none() -> None:
    soon = Patience(attempts=1)
    with ScriptedEndpoint(["Blind."]) as blind, ScriptedEndpoint([Status(500)]) as seeing:
        found = bodies(
            [seeing, blind],
            Endpoint("blind", base_url=blind.url, patience=soon),
            Endpoint("seeing", base_url=seeing.url, vision=True, patience=soon),
        )
    assert [each["model"] for each in found] == ["seeing", "blind"]
    assert isinstance(found[0]["messages"][0]["content"], list)
    assert isinstance(found[1]["messages"][0]["content"], str)


def test_an_image_counts_in_the_estimate_of_a_prompt() -> None:
    small, large = (parse_image(png(side, side), "x") for side in (30, 2000))
    none = estimate_tokens(Message("user", "hello"))
    assert estimate_tokens(Message("user", "hello", images=(small,))) - none == 2
    assert estimate_tokens(Message("user", "hello", images=(large, large))) - none == 3200


def test_the_table_of_a_model_says_whether_it_takes_images() -> None:
    table = {"provider": "custom", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    models = load_models({}, {"main": {**table, "fallbacks": ["eyes"]}, "eyes": {**table, "vision": True}, "b": table})
    assert {name: takes_images(models.get(name)) for name in ("main", "eyes", "b")} == {
        "main": True, "eyes": True, "b": False,
    }  # fmt: skip
