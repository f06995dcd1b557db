"""Responses as OpenAI's own client reads them: whole, streamed, chained, and read again from the log."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import OpenAI

from hermes_exec_agent.models import ask, say
from tests.http.conftest import TOKEN, Serve, Served

WORK = (ask(("terminal", {"command": "echo made > made; pwd"}), text="I make it."), say("Made."))


def client(served: Served) -> OpenAI:
    return OpenAI(base_url=served.url, api_key=TOKEN, max_retries=0, timeout=60)


def shape(response: Any) -> list[tuple[str, str]]:
    """The items of a response, each with its text, its name or its output."""
    found: list[tuple[str, str]] = []
    for item in response.output:
        text = item.content[0].text if item.type == "message" else getattr(item, "name", "") or "output"
        found.append((item.type, text))
    return found


TURN = [
    ("message", "I make it."),
    ("function_call", "terminal"),
    ("function_call_output", "output"),
    ("message", "Made."),
]


def test_a_response_has_the_items_of_its_turn_whole_and_streamed_and_read_again(serve: Serve) -> None:
    with client(serve(*WORK, *WORK)) as here:
        whole = here.responses.create(model="main", input="make it")
        assert (whole.status, whole.output_text, shape(whole)) == ("completed", "I make it.Made.", TURN)
        assert whole.usage is not None
        assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens > 0
        with here.responses.stream(model="main", input="make it") as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_response()
        assert shape(streamed) == TURN
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == len(TURN)
        again = here.responses.retrieve(whole.id)
        assert (again.status, shape(again), again.usage) == ("completed", TURN, whole.usage)
        assert again.output[2] == whole.output[2]


def test_a_response_continues_the_one_before_and_no_older_one(serve: Serve) -> None:
    served = serve(say("One."), say("Two."), say("Three."))
    with client(served) as here:
        first = here.responses.create(model="main", input="one")
        second = here.responses.create(model="main", input="two", previous_response_id=first.id)
        assert (second.output_text, second.previous_response_id) == ("Two.", first.id)
        with pytest.raises(openai.BadRequestError, match="not the latest"):
            here.responses.create(model="main", input="again", previous_response_id=first.id)
    (conversation,) = served.log.conversations()
    assert conversation.turns == 2


def test_messages_of_the_input_are_the_history_and_instructions_are_added(serve: Serve) -> None:
    served = serve(say("Yes."))
    with client(served) as here:
        here.responses.create(
            model="main",
            instructions="Answer in one word.",
            input=[
                {"role": "user", "content": "earlier"},
                {"role": "assistant", "content": "noted"},
                {"role": "user", "content": [{"type": "input_text", "text": "now?"}]},
            ],
        )
    (conversation,) = served.log.conversations()
    started = served.log.events(conversation.id)[0].data
    assert "Answer in one word." in started["system"]
    assert [each["content"] for each in started["history"]] == ["earlier", "noted"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"type": "function", "name": "f", "parameters": {}}]}, "tools is not supported"),
    ({"background": True}, "background is not supported"),
    ({"store": False}, "store: false is not supported"),
    ({"text": {"format": {"type": "json_object"}}}, "text is not supported"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input.0.content.0.type"),
    ({"input": []}, "it should have 1 to"),
    ({"previous_response_id": "resp_nothing_1"}, "nothing"),
    ({"previous_response_id": "x"}, "there is no response"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED)
def test_a_request_that_means_something_else_is_refused(serve: Serve, options: dict[str, Any], why: str) -> None:
    given: Any = {"model": "main", "input": "hello", **options}
    with client(serve(say("No."))) as here, pytest.raises(openai.BadRequestError, match=why):
        here.responses.create(**given)


def test_a_response_of_another_person_is_not_found(serve: Serve) -> None:
    with client(serve(say("Mine."))) as here:
        mine = here.responses.create(model="main", input="hello", extra_headers={"X-Hermes-Person": "ada"})
        with pytest.raises(openai.NotFoundError):
            here.responses.retrieve(mine.id)
