"""The person of a request: by header or field, one conversation each, and the owner if a request names none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest

from hermes_exec_agent.memory.persons import Participant, read_participant
from hermes_exec_agent.models import say
from tests.http.test_server_completions import HELLO, client
from tests.http.test_server_conversations import conversation_of

if TYPE_CHECKING:
    from tests.http.conftest import Serve


def test_a_conversation_is_continued_by_its_own_person_alone(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERMES_EXEC_PERSON", raising=False)
    served = serve(say("One."), say("Two."), say("Three."))
    with client(served) as here:

        def create(body: dict[str, str], **headers: str) -> Any:
            return here.chat.completions.create(model="main", messages=HELLO, extra_body=body, extra_headers=headers)

        ops = conversation_of(create({"person": "ops"}))
        owner = conversation_of(create({}))
        assert read_participant(served.log, ops["conversation"]) == Participant("ops")
        assert read_participant(served.log, owner["conversation"]) == Participant()
        last = served.log.last(ops["conversation"])
        for body, headers in (
            (ops, {}),
            (ops | {"person": "lab"}, {}),
            (ops | {"person": "ops"}, {"X-Hermes-Person": "lab"}),
            (owner | {"person": "ops"}, {}),
            ({"person": "../x"}, {}),
            ({"conversation": "memory"}, {}),
        ):
            with pytest.raises(openai.BadRequestError):
                create(body, **headers)
        assert served.log.last(ops["conversation"]) == last
        done = create(ops, **{"X-Hermes-Person": "ops"})
    assert done.choices[0].message.content == "Three."
