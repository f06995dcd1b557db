"""The reader of server-sent events, and the requests that a client sends."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec_agent.errors import ModelError, ModelRefused
from hermes_exec_agent.models import complete
from hermes_exec_agent.models.assembly import ReplyTooLong
from hermes_exec_agent.models.endpoint import Endpoint, Patience
from hermes_exec_agent.models.http_api import EventReader
from hermes_exec_agent.models.messages import Message
from tests.rigs.endpoint import KEY, ScriptedEndpoint, Status

HELLO = (Message("user", "hello"),)
STREAM = b': a comment\r\n\r\nevent: x\r\ndata:{"a":\r\ndata: 1}\r\n\r\n\r\ndata: 2\n\rdata: 3\r\rid: 4\n\ndata: cut'


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_events_are_read_however_lines_end_and_wherever_they_are_cut(size: int) -> None:
    reader = EventReader()
    found = [data for at in range(0, len(STREAM), size) for data in reader.feed(STREAM[at : at + size])]
    assert found == [b'{"a":\n1}', b"2", b"3"]


def test_an_event_without_an_end_is_given_up() -> None:
    reader = EventReader()
    assert list(reader.feed(b"data: ")) == []
    endless = (data for _ in range(80) for data in reader.feed(b"x" * (1 << 20)))
    with pytest.raises(ReplyTooLong):
        next(endless)


def test_comments_do_not_count_for_the_length_of_an_event() -> None:
    reader = EventReader()
    for _ in range(80):
        assert list(reader.feed(b":" + b"x" * (1 << 20) + b"\n")) == []
    assert list(reader.feed(b"data: 1\n\n")) == [b"1"]


def ask(url: str, key: str = KEY, *, whole: bool = False) -> Any:
    async def once() -> Any:
        model = Endpoint("m", base_url=url, key=Secret("OPENAI_API_KEY", key), patience=Patience(attempts=1))
        model.whole = whole
        try:
            return (await complete(model, HELLO)).message.content
        finally:
            await model.close()

    return asyncio.run(once())


def test_a_key_that_no_header_can_contain_is_refused_without_being_shown() -> None:
    with ScriptedEndpoint(["ok"]) as rig, pytest.raises(ModelRefused, match="look at OPENAI_API_KEY") as caught:
        ask(rig.url, "sk-first\nsk-second")
    assert "sk-" not in str(caught.value)
    assert not rig.requests


def test_connections_are_used_again() -> None:
    async def twice(url: str) -> None:
        model = Endpoint("m", base_url=url)
        try:
            for _ in range(3):
                await complete(model, HELLO)
        finally:
            await model.close()

    with ScriptedEndpoint(["a", "b", "c"]) as rig:
        asyncio.run(twice(rig.url))
    assert len(set(rig.ports)) == 1


@pytest.mark.parametrize("whole", [False, True])
def test_a_redirect_to_another_origin_gets_no_key(whole: bool) -> None:
    with ScriptedEndpoint(["there"]) as other:
        moved = Status(307, {}, {"location": f"{other.url}/chat/completions".replace("127.0.0.1", "localhost")})
        with ScriptedEndpoint([moved]) as rig:
            assert ask(rig.url, whole=whole) == "there"
    assert rig.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in other.headers[0]
    assert KEY not in json.dumps([other.headers, other.requests])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Status(200, {"error": {"message": "the provider is down"}}), "the provider is down"),
        (Status(200, b"<html>Log in</html>", {"content-type": "text/html"}), "a web page instead of a reply"),
        (Status(200, [1]), "JSON of another shape"),
        (Status(200, b'{"choices": '), "not JSON"),
    ],
)
def test_a_whole_reply_that_is_none_is_explained(answer: Status, message: str) -> None:
    with ScriptedEndpoint([answer]) as rig, pytest.raises(ModelError, match=message):
        ask(rig.url, whole=True)
