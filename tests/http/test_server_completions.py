"""Chat completions as OpenAI's own client reads them."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from openai import OpenAI

from hermes_exec_agent.models import ScriptedModel, ask, say
from hermes_exec_agent.models.dialects import DEEPSEEK
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.models.protocol import Usage
from tests.http.conftest import TOKEN, Held, Serve, Served
from tests.rigs.endpoint import ScriptedEndpoint
from tests.rigs.pictures import png
from tests.rigs.strict import DeepSeek

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
Running = Callable[[str], list[int]]
Until = Callable[[Callable[[], object]], None]


def client(served: Served, *, max_retries: int = 0) -> OpenAI:
    return OpenAI(base_url=served.url, api_key=TOKEN, max_retries=max_retries, timeout=60)


def test_a_reply_comes_whole_with_its_usage(serve: Serve) -> None:
    with client(serve(say("Good day."))) as here:
        done = here.chat.completions.create(model="main", messages=HELLO)
    assert done.choices[0].message.content == "Good day."
    assert done.choices[0].finish_reason == "stop"
    assert done.model == "scripted"
    assert done.usage is not None
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens > 0


def test_reasoning_is_counted_and_no_part_of_what_a_client_reads(serve: Serve) -> None:
    with (
        ScriptedEndpoint(["Good day.", "Good day."], strict=DeepSeek()) as rig,
        client(serve(Endpoint("m", base_url=rig.url, dialect=DEEPSEEK))) as here,
    ):
        done = here.chat.completions.create(model="main", messages=HELLO)
        chunks = list(here.chat.completions.create(model="main", messages=HELLO, stream=True))
    streamed = "".join(chunk.model_dump_json() for chunk in chunks)
    assert done.choices[0].message.content == "Good day."
    assert done.usage is not None
    assert done.usage.completion_tokens_details is not None
    assert done.usage.completion_tokens_details.reasoning_tokens == 4
    assert "thought" not in done.model_dump_json() + streamed


def test_a_reply_comes_in_pieces_that_are_the_same_text(serve: Serve) -> None:
    text = "Good day, 世界, in several pieces."
    with client(serve(say(text))) as here:
        chunks = list(
            here.chat.completions.create(
                model="main", messages=HELLO, stream=True, stream_options={"include_usage": True}
            )
        )
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == text
    assert sum(map(bool, pieces)) > 2
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_link_or_image_to_a_host_that_the_user_did_not_name_is_text(serve: Serve, *, stream: bool) -> None:
    asked: list[Any] = [{"role": "user", "content": "compare with https://docs.example.org/x"}]
    reply = "[here](https://docs.example.org/y) ![a](https://evil.example/p.png?q=secret) [b](https://evil.example"
    with client(serve(say(reply))) as here:
        if stream:
            chunks = here.chat.completions.create(model="main", messages=asked, stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        else:
            text = here.chat.completions.create(model="main", messages=asked).choices[0].message.content or ""
    kept, links = "[here](https://docs.example.org/y)", "![a] (https://evil.example/p.png?q=secret)"
    assert text == f"{kept} {links} [b] (https://evil.example"


def test_pieces_come_while_the_model_still_speaks(serve: Serve) -> None:
    held = Held()
    with client(serve(held)) as here, here.chat.completions.create(model="main", messages=HELLO, stream=True) as stream:
        said = ""
        for chunk in stream:
            said += chunk.choices[0].delta.content or ""
            if said == "So ":
                held.go.set_result(None)
        assert said == "So far."


@pytest.mark.parametrize("stream", [False, True])
def test_tools_run_in_the_place_and_the_replies_around_them_are_one_text(serve: Serve, stream: bool) -> None:
    served = serve(ask(("terminal", {"command": "echo made > made; pwd"}), text="I make it."), say("Made."))
    with client(served) as here:
        done: Any = here.chat.completions.create(model="main", messages=HELLO, stream=stream)
        if stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in done)
        else:
            text = done.choices[0].message.content
    assert text == "I make it.\n\nMade."
    (id,) = [each.id for each in served.log.conversations()]
    (result,) = [event.data["content"] for event in served.log.events(id) if event.kind == "result"]
    assert json.loads(result)["exit_code"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_a_guardrail_stops_ends_with_a_list_if_the_model_goes_on(serve: Serve, stream: bool) -> None:
    served = serve(*[ask(("terminal", {"command": "exit 3"}), text="Again.")] * 6)
    with client(served) as here:
        done: Any = here.chat.completions.create(model="main", messages=HELLO, stream=stream)
        if stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in done)
        else:
            text = done.choices[0].message.content
            assert done.choices[0].finish_reason == "length"
    assert text.startswith("Again.\n\n" * 6 + "This list is the program's own, as the model went on calling tools:\n")
    assert "\n- terminal  exit 3: exit code 3 (5 times)\n" in text


def test_a_conversation_goes_on_and_so_does_its_shell(serve: Serve) -> None:
    served = serve(
        ask(("terminal", {"command": "cd /; here=it"})),
        say("One."),
        ask(("terminal", {"command": "echo $here $PWD"})),
        say("Two."),
    )
    with client(served) as here:
        first = here.chat.completions.create(model="main", messages=HELLO)
        id = (first.model_extra or {})["conversation"]
        here.chat.completions.create(model="main", messages=HELLO, extra_body={"conversation": id})
    results = [json.loads(event.data["content"]) for event in served.log.events(id) if event.kind == "result"]
    assert results[1]["output"].strip() == "it /"


def test_what_was_said_before_is_read_from_the_messages(serve: Serve) -> None:
    seen: list[Any] = []

    def answer(messages: Any, tools: Any) -> str:
        seen.extend(messages)
        return "Anne."

    with client(serve(answer)) as here:
        here.chat.completions.create(
            model="main",
            messages=[
                {"role": "system", "content": "Answer in one word."},
                {"role": "user", "content": "I am Anne."},
                {"role": "assistant", "content": "Hello Anne."},
                {"role": "user", "content": [{"type": "text", "text": "Who am I?"}]},
            ],
        )
    assert [(each.role, each.content) for each in seen[1:]] == [
        ("user", "I am Anne."),
        ("assistant", "Hello Anne."),
        ("user", "Who am I?"),
    ]
    assert "Answer in one word." in seen[0].content


class Prepared(ScriptedModel):
    """A model that can do something beforehand."""

    def __init__(self) -> None:
        super().__init__([say("Ready.")])
        self.was = threading.Event()

    def prepare(self) -> None:
        """Tell that it was asked to."""
        self.was.set()


def test_the_model_is_made_ready_before_anybody_asks(serve: Serve) -> None:
    model = Prepared()
    served = serve(model)
    assert model.was.wait(60)
    assert not model.requests
    with client(served) as here:
        assert here.chat.completions.create(model="main", messages=HELLO).choices[0].message.content == "Ready."


def test_a_conversation_goes_back_to_the_main_model(serve: Serve) -> None:
    with client(serve(say("The main one."))) as here:
        other = here.chat.completions.create(model="other", messages=HELLO)
        same = {"conversation": other.model_extra["conversation"]} if other.model_extra else {}
        done = here.chat.completions.create(model="main", messages=HELLO, extra_body=same)
        assert done.choices[0].message.content == "The main one."


def test_models_are_listed_and_chosen_by_name(serve: Serve) -> None:
    with client(serve(say("The main one."))) as here:
        assert [model.id for model in here.models.list()] == ["main", "auxiliary", "other"]
        assert here.models.retrieve("other").id == "other"
        done = here.chat.completions.create(model="other", messages=HELLO)
        assert done.choices[0].message.content == "The other one."
        with pytest.raises(openai.NotFoundError, match="no model 'gpt-9'"):
            here.chat.completions.create(model="gpt-9", messages=HELLO)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools is not supported"),
        ({"n": 2}, "n: "),
        ({"stop": ["x"]}, "stop is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format is not supported"),
        ({"messages": []}, "messages: "),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "the last message must be of the user"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "with text"),
        ({"conversation": "nowhere"}, "nowhere"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(serve: Serve, extra: dict[str, Any], said: str) -> None:
    with client(serve(say("Never."))) as here, pytest.raises(openai.BadRequestError, match=said):
        here.chat.completions.create(model="main", messages=HELLO, extra_body=extra)


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_failed_is_not_repeated_by_the_client(serve: Serve, stream: bool) -> None:
    served = serve(ask(("terminal", {"command": "echo once >> times"})))  # then the script is at its end
    with client(served, max_retries=2) as here, pytest.raises(openai.APIError, match="replies"):
        list(here.chat.completions.create(model="main", messages=HELLO, stream=stream))
    (summary,) = served.log.conversations()
    assert [event.kind for event in served.log.events(summary.id)].count("call") == 1


def test_a_client_that_goes_away_interrupts_its_turn(serve: Serve, running: Running, until: Until, nap: str) -> None:
    served = serve(ask(("terminal", {"command": f"setsid {nap} & {nap}"}), text="Now."), say("Never."))
    with client(served) as here:
        stream = here.chat.completions.create(model="main", messages=HELLO, stream=True)
        until(lambda: len(running(nap)) >= 2)
        stream.close()
        until(lambda: not running(nap))
    (summary,) = served.log.conversations()
    until(lambda: "interrupted" in [event.kind for event in served.log.events(summary.id)])


def test_a_client_that_goes_away_before_its_whole_reply_interrupts_it_too(serve: Serve) -> None:
    held = Held()
    place = urlsplit(serve(held).url)
    waiting = http.client.HTTPConnection(place.hostname or "", place.port or 0)
    body = json.dumps({"model": "main", "messages": HELLO})
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    waiting.request("POST", "/v1/chat/completions", body, headers)
    assert held.begun.acquire(timeout=30)
    waiting.close()
    assert held.ended.acquire(timeout=30)


def ask_once(here: OpenAI) -> None:
    here.chat.completions.create(model="main", messages=HELLO)


def test_more_turns_than_are_allowed_are_asked_to_come_later(serve: Serve) -> None:
    held = Held()
    served = serve(held, max_conversations=1)
    with client(served) as here:
        first = threading.Thread(target=ask_once, args=(here,))
        first.start()
        assert held.begun.acquire(timeout=30)
        with pytest.raises(openai.RateLimitError) as refused:
            ask_once(here)
        assert refused.value.response.headers["Retry-After"]
        assert refused.value.response.headers["x-should-retry"] == "true"
        held.go.set_result(None)
        first.join(30)
        done = here.chat.completions.create(model="main", messages=HELLO)  # the first one's place makes room
    assert done.choices[0].message.content == "So far."


def test_an_end_in_good_order_lets_turns_end(serve: Serve) -> None:
    held = Held()
    served = serve(held)
    with client(served) as here:
        stream = here.chat.completions.create(model="main", messages=HELLO, stream=True)
        assert held.begun.acquire(timeout=30)
        served.tell_to_stop()
        held.go.set_result(None)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "So far."
    served.stop()


def test_what_still_runs_at_the_end_is_interrupted(serve: Serve, running: Running, until: Until, nap: str) -> None:
    served = serve(ask(("terminal", {"command": f"setsid {nap} & {nap}"})), say("Never."), grace_s=0.1)
    with client(served) as here:
        stream = here.chat.completions.create(model="main", messages=HELLO, stream=True)
        until(lambda: len(running(nap)) >= 2)
        served.stop()
        assert not running(nap)
        stream.close()


def test_a_place_that_cannot_be_opened_is_told(serve: Serve) -> None:
    served = serve(say("Never."), target="ssh://nobody@127.0.0.1:1")
    with client(served) as here, pytest.raises(openai.InternalServerError, match="127.0.0.1"):
        ask_once(here)


@pytest.mark.parametrize("stream", [False, True])
def test_a_day_whose_dollars_are_spent_is_told_and_not_tried_again(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, stream: bool
) -> None:
    (tmp_path / "config" / "hermes_exec").mkdir(parents=True)
    (tmp_path / "config" / "hermes_exec" / "hermes.toml").write_text("[agent]\nmost_cost_day = 0.3\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    model = ScriptedModel([replace(say("Good day."), usage=Usage(prompt=10, cost=0.4)), say("Never.")])
    with client(serve(model), max_retries=3) as here:
        here.chat.completions.create(model="main", messages=HELLO)
        with pytest.raises(openai.RateLimitError, match=r"budget of \$0.30 for today is spent") as refused:
            here.chat.completions.create(model="main", messages=HELLO, stream=stream)
    assert refused.value.code == "budget_spent"
    assert len(model.requests) == 1


def test_a_turn_ends_once_its_dollars_are_spent(serve: Serve) -> None:
    look = replace(ask(("terminal", {"command": "true"})), usage=Usage(prompt=10, cost=0.4))
    with client(serve(look, say("That is all."), say("Never."), most_cost=0.3)) as here:
        done = here.chat.completions.create(model="main", messages=HELLO)
    assert done.choices[0].message.content == "That is all."
    assert done.choices[0].finish_reason == "length"


def test_images_of_a_client_reach_a_model_that_takes_them(serve: Serve) -> None:
    url = f"data:image/png;base64,{base64.b64encode(png()).decode()}"
    parts: list[Any] = [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
    ]
    asked: list[Any] = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "black"},
        {"role": "user", "content": parts},
    ]
    with (
        ScriptedEndpoint(["Black."]) as rig,
        client(serve(Endpoint("m", base_url=rig.url, vision=True))) as here,
    ):
        done = here.chat.completions.create(model="main", messages=asked)
    assert done.choices[0].message.content == "Black."
    sent = [each["content"] for each in rig.requests[0]["messages"] if isinstance(each["content"], list)]
    assert [each[1]["image_url"]["url"] for each in sent] == [url, url]


@pytest.mark.parametrize(
    ("url", "vision", "says"),
    [
        ("https://example.org/x.png", True, "its URL is not fetched"),
        ("data:image/png;base64,AAAA", True, "this is not an image"),
        (f"data:image/png;base64,{base64.b64encode(png()).decode()}", False, "takes no images"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_images_that_no_model_gets_are_a_bad_request(
    serve: Serve, url: str, says: str, *, vision: bool, stream: bool
) -> None:
    parts: list[Any] = [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    with (
        ScriptedEndpoint(["Never."]) as rig,
        client(serve(Endpoint("m", base_url=rig.url, vision=vision))) as here,
        pytest.raises(openai.BadRequestError, match=says),
    ):
        here.chat.completions.create(model="main", messages=[{"role": "user", "content": parts}], stream=stream)
    assert rig.requests == []
