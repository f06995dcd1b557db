"""A task over endpoints that refuse what their real kind refuses: each gets its reasoning back, and no other's."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.models import ask, load_models, say
from hermes_exec_agent.runtime import Compacted, Retried, Thought
from hermes_exec_agent.runtime.events import SearchFilter
from tests.rigs.endpoint import KEY, ScriptedEndpoint, Status
from tests.rigs.strict import KINDS, DeepSeek, Gemini, Groq, OpenRouter, Strict, Vllm
from tests.runtime.conftest import shows

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_agent.models import Models
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.runtime import Update
    from hermes_exec_agent.runtime.events import EventLog
    from tests.rigs.endpoint import Answer, Written
    from tests.runtime.conftest import Talk

LOOK = shows("look", "x" * 1_500)


def table(rig: ScriptedEndpoint, kind: Strict, **more: Any) -> dict[str, Any]:
    """What a file says of the model behind a rig."""
    key = {"key": "env:RIG_KEY"}
    return {"provider": kind.provider, "model": kind.model, "base_url": rig.url, **key, **more}


def loaded(**tables: dict[str, Any]) -> Models:
    return load_models({"RIG_KEY": KEY}, tables)


def looks(count: int) -> Answer:
    return ask(*(("look", {"n": number}) for number in range(count)))


def answers(*written: Answer) -> Callable[[dict[str, Any]], Answer]:
    """These, one after another, but for a summary, which is asked for without tools."""
    left = iter(written)
    return lambda body: next(left) if body.get("tools") else "They looked."


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_of_six_calls_with_a_resumption_and_a_compaction_passes(
    talk: Talk, log: EventLog, kind: type[Strict]
) -> None:
    told: list[Update] = []
    strict = kind()
    script = answers(looks(1), looks(2), say("Half."), looks(1), looks(1), looks(1), say("All."))

    async def hold(request: str, resume: str = "") -> tuple[str, str]:
        models = loaded(main=table(rig, strict))
        try:
            async with talk(models.main, [LOOK], models=models, resume=resume, window=1_000) as conversation:
                return (await conversation.ask(request, told.append)).text, conversation.id
        finally:
            await models.close()

    with ScriptedEndpoint([script], forever=True, strict=strict) as rig:
        first, conversation = asyncio.run(hold("look"))
        second, _ = asyncio.run(hold("go on", conversation))
    assert not rig.complaints
    assert (first, second) == ("Half.", "All.")
    assert [update.how for update in told if isinstance(update, Compacted)].count("summarised") >= 1
    calls = [call for event in log.events(conversation) for call in event.data.get("tool_calls", ())]
    assert sum(event.kind == "result" for event in log.events(conversation)) == len(calls) == 6
    if strict.secrets:
        asked = [json.dumps(body) for body in rig.requests[1:] if body.get("tools")]
        assert all(any(secret in body for secret in strict.secrets) for body in asked)
        # What the second reply thought came back in the first turn, after the resumption, and after a compaction there.
        assert sum(strict.secrets[1] in body for body in asked) >= 3


@pytest.mark.parametrize(("first", "second"), list(itertools.pairwise((*KINDS, KINDS[0]))))
def test_a_fallback_in_the_middle_of_a_task_tells_no_endpoint_what_another_one_thought(
    talk: Talk, first: type[Strict], second: type[Strict]
) -> None:
    one, other = first(), second()
    broke = Status(402, {"error": {"message": "no credit"}})
    with (
        ScriptedEndpoint([looks(2), broke, looks(1), say("Done.")], strict=one) as main,
        ScriptedEndpoint([looks(2), looks(1), broke], strict=other) as box,
    ):

        async def whole() -> str:
            models = loaded(main=table(main, one, fallbacks=["box"]), box=table(box, other))
            try:
                async with talk(models.main, [LOOK], models=models) as conversation:
                    return (await conversation.ask("look")).text
            finally:
                await models.close()

        assert asyncio.run(whole()) == "Done."
    assert not main.complaints + box.complaints
    sent = json.dumps(main.requests), json.dumps(box.requests)
    assert not [secret for secret in other.secrets if secret in sent[0]]
    assert not [secret for secret in one.secrets if secret in sent[1]]


def test_what_an_endpoint_documents_for_messages_of_others_is_sent(talk: Talk) -> None:
    broke = Status(402, {"error": {"message": "no credit"}})
    with (
        ScriptedEndpoint([looks(2), broke, say("Done.")], strict=DeepSeek()) as main,
        ScriptedEndpoint([looks(1), broke], strict=Gemini()) as box,
    ):

        async def whole() -> None:
            models = loaded(main=table(main, DeepSeek(), fallbacks=["box"]), box=table(box, Gemini()))
            try:
                async with talk(models.main, [LOOK], models=models) as conversation:
                    await conversation.ask("look")
            finally:
                await models.close()

        asyncio.run(whole())
    foreign = box.requests[0]["messages"][2]
    assert "reasoning_content" not in foreign
    signed = [call.get("extra_content") for call in foreign["tool_calls"]]
    assert signed == [{"google": {"thought_signature": "skip_thought_signature_validator"}}, None]
    mixed = [each for each in main.requests[-1]["messages"] if each["role"] == "assistant"]
    assert [each["reasoning_content"] != "" for each in mixed] == [True, False]
    assert "extra_content" not in json.dumps(main.requests)


def test_a_model_that_is_chosen_for_a_while_reads_nothing_of_the_other_ones_thoughts(talk: Talk) -> None:
    one, other = OpenRouter(), Vllm()
    with (
        ScriptedEndpoint([looks(1), say("One."), looks(1), say("Three.")], strict=one) as main,
        ScriptedEndpoint([looks(1), say("Two.")], strict=other) as box,
    ):

        async def whole() -> list[str]:
            models = loaded(main=table(main, one), box=table(box, other))
            said: list[str] = []
            try:
                async with talk(models.main, [LOOK], models=models) as conversation:
                    for name in ("main", "box", "main"):
                        conversation.set_model(name)
                        said.append((await conversation.ask("look")).text)
                    return said
            finally:
                await models.close()

        assert asyncio.run(whole()) == ["One.", "Two.", "Three."]
    assert not main.complaints + box.complaints
    assert one.secrets[0] in json.dumps(main.requests[-1])
    assert not [secret for secret in other.secrets if secret in json.dumps(main.requests)]
    assert not [secret for secret in one.secrets if secret in json.dumps(box.requests)]


class Gateway(Vllm):
    """Sends reasoning, and refuses it."""

    def wrong(self, body: dict[str, Any]) -> Status | None:
        """In the words of Mistral."""
        loc = ["body", "messages", 2, "assistant", "reasoning"]
        detail = [{"type": "extra_forbidden", "loc": loc, "msg": "Extra inputs are not permitted", "input": "x"}]
        found = any("reasoning" in message for message in body["messages"])
        return Status(422, {"object": "error", "message": {"detail": detail}}) if found else None

    def refuse(self, body: dict[str, Any]) -> Status | None:
        return self.wrong(body)


class Relay(DeepSeek):
    """DeepSeek behind an address that nobody knows."""

    provider = "custom"

    def sign(self, message: Message, thought: str) -> Message:
        return message if "no thought" in message.content else super().sign(message, thought)

    def refuse(self, body: dict[str, Any]) -> Status | None:
        return self.wrong(body)


async def ask_to_look(talk: Talk, rig: ScriptedEndpoint, strict: Strict, told: list[Update]) -> Any:
    """One request in a new conversation with the endpoint; its updates go to ``told``."""
    models = loaded(main=table(rig, strict))
    try:
        async with talk(models.main, [LOOK], models=models) as conversation:
            return await conversation.ask("look", told.append)
    finally:
        await models.close()


@pytest.mark.parametrize("kind", [Gateway, Relay])
def test_an_endpoint_that_speaks_otherwise_than_it_seems_is_heeded_and_nothing_runs_twice(
    talk: Talk, kind: type[Strict]
) -> None:
    told: list[Update] = []
    strict = kind()
    plain = ask(("look", {}), text="no thought")
    with ScriptedEndpoint([plain, looks(1), looks(1), looks(1), say("Done.")], forever=True, strict=strict) as rig:
        answer = asyncio.run(ask_to_look(talk, rig, strict, told))
    assert answer.outcome == "answered"
    assert len(rig.complaints) == 1
    assert [update.wait_s for update in told if isinstance(update, Retried)] == [0.0]


def test_thoughts_are_told_as_they_come_and_are_no_part_of_the_answer(talk: Talk, log: EventLog) -> None:
    told: list[Update] = []
    strict = DeepSeek()
    with ScriptedEndpoint([looks(1), say("I saw it.")], strict=strict) as rig:
        answer = asyncio.run(ask_to_look(talk, rig, strict, told))
    assert (answer.text, answer.usage.reasoning, answer.usage.completion) == ("I saw it.", 8, 18)
    assert "".join(each.text for each in told if isinstance(each, Thought)).count("grüße, I look first") == 2
    assert log.search("grüße") == []
    found = log.search("look first", wanted=SearchFilter(frozenset({"thoughts"})))
    assert [(each.kind, "grüße" in each.snippet) for each in found] == [("assistant", True)] * 2


def test_ids_that_an_endpoint_uses_again_go_back_to_it_as_they_were(talk: Talk) -> None:
    same: list[Written] = [ask(("look", {}), ("look", {"n": 1}))] * 2
    with ScriptedEndpoint([*same, say("Done.")]) as rig:

        async def whole() -> None:
            models = loaded(main=table(rig, Groq()))
            try:
                async with talk(models.main, [LOOK], models=models) as conversation:
                    await conversation.ask("look")
                    ids = [call.id for message in conversation.messages for call in message.tool_calls]
                    assert len(set(ids)) == 4
            finally:
                await models.close()

        asyncio.run(whole())
    assert not rig.complaints
    sent = rig.requests[-1]["messages"]
    assert sent[2]["tool_calls"] == sent[5]["tool_calls"]
    assert [each["tool_call_id"] for each in sent[3:5]] == [each["tool_call_id"] for each in sent[6:8]]
