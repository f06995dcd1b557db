"""Persons: each conversation reads its own person's file, guests read and write none, and a person is kept."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.load import load_settings
from hermes_exec.errors import ConfigError, UsageError
from hermes_exec_agent.memory.claims import ClaimStore, NewClaim
from hermes_exec_agent.memory.persons import Participant, choose_participant, parse_person
from hermes_exec_agent.models import Models, ScriptedModel, ask, load_models, say
from hermes_exec_agent.runtime import Options, open_conversation
from tests.memory.conftest import Person, add, write_settings
from tests.rigs.endpoint import KEY, ScriptedEndpoint

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.models.protocol import Reply
    from hermes_exec_agent.runtime.events import EventLog

ENABLED = "memory_enabled = true\nuser_profile_enabled = true"
OPS, LAB, GUEST = Participant("ops"), Participant("lab"), Participant(is_guest=True)


@pytest.fixture
def journal(log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journal:
    """The journal of the conversations of this module, which the configuration enables."""
    from hermes_exec_agent.memory.journal import Journal

    write_settings(monkeypatch, tmp_path, ENABLED)
    return Journal.of_user(log, load_settings().memory)


async def hold(
    log: EventLog, models: Models, participant: Participant | None, request: str = "go", **options: Any
) -> str:
    """Hold a conversation of one request, and return its id."""
    async with open_conversation(
        "local", models=models, person=Person(["memory"]), log=log, participant=participant, **options
    ) as conversation:
        await conversation.ask(request)
        return conversation.id


def test_on_the_wire_a_person_sees_their_own_file_and_no_other_one(log: EventLog, journal: Journal) -> None:
    add(journal, "The tests run with make")
    for name, likes in (("", "owner likes tea"), ("ops", "ops likes rye"), ("lab", "lab likes wine")):
        add(journal.of_person(name), likes, target="user")
        ClaimStore(log, journal.of_person(name)).add(NewClaim(f"{name or 'owner'} works at night"))
    asking = ask(("user_ask", {"question": "when do they work, and what do they like?"}))

    def reply(body: dict[str, Any]) -> Reply:
        return asking if body.get("tools") and body["messages"][-1]["role"] == "user" else say("ok")

    people = (Participant(), OPS, LAB, GUEST, Participant("ops", is_guest=True))

    async def whole(url: str) -> None:
        environ = {"LLM_PROVIDER": "custom", "LLM_BASE_URL": url, "OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m"}
        models = load_models(environ)
        try:
            for each in people:
                await hold(log, models, each)
        finally:
            await models.close()

    with ScriptedEndpoint([reply], forever=True) as rig:
        asyncio.run(whole(rig.url))
        sent = [json.dumps(each, ensure_ascii=False) for each in rig.requests if each.get("tools")]
    assert len(sent) == 2 * len(people)
    assert not rig.complaints
    names = ("owner", "ops", "lab")
    for index, each in enumerate(people):
        text = "".join(sent[2 * index : 2 * index + 2])
        own = "" if each.is_guest else each.name or "owner"
        assert [name for name in names if f"{name} likes" in text] == ([own] if own else [])
        assert [name for name in names if f"{name} works" in text] == ([own] if own else [])
        assert ("The tests run with make" in text) is not each.is_guest


def test_what_a_person_tells_is_written_to_their_file_alone_and_a_guest_writes_nothing(
    log: EventLog, journal: Journal
) -> None:
    def remember(target: str, text: str) -> Models:
        return Models(ScriptedModel([ask(("memory", {"target": target, "content": text})), say("ok")]))

    asyncio.run(hold(log, remember("user", "likes rye"), OPS, "I like rye. Remember that."))
    asyncio.run(hold(log, remember("memory", "tests run with make"), OPS, "The tests run with make."))
    before = sorted(path.name for path in journal.folder.rglob("*"))
    for target in ("user", "memory"):
        asyncio.run(hold(log, remember(target, "likes wine"), GUEST, "I like wine."))
    ops = journal.of_person("ops")
    assert ops.path("user") == journal.folder / "people/ops/USER.md"
    assert ops.path("user").read_text() == "likes rye\n"
    assert ops.path("user").parent.stat().st_mode & 0o777 == 0o700
    assert journal.path("memory").read_text() == "tests run with make\n"
    assert not journal.path("user").exists()
    assert sorted(path.name for path in journal.folder.rglob("*")) == before
    assert [each.data["target"] for each in ops.history()] == ["user"]
    (claim,) = ClaimStore(log, ops).claims()
    assert (claim.text, claim.kind, claim.confidence) == ("likes rye", "preference", 1.0)
    assert log.events(claim.evidence[0].conversation)[claim.evidence[0].number - 1].kind == "user"


def test_a_conversation_and_its_branches_keep_their_person(log: EventLog, journal: Journal) -> None:
    add(journal.of_person("ops"), "ops likes rye", target="user")

    def replies() -> Models:
        return Models(ScriptedModel([say("ok")]))

    id = asyncio.run(hold(log, replies(), OPS))
    assert asyncio.run(hold(log, replies(), None, resume=id)) == id
    branch = asyncio.run(hold(log, replies(), None, options=Options(branch_of=id)))
    assert [event.data["person"] for event in log.events(branch) if event.kind == "started"] == ["ops"]
    for other in (Participant(), LAB, Participant("ops", is_guest=True)):
        last = log.last(id)
        with pytest.raises(UsageError, match="is one of ops, not of"):
            asyncio.run(hold(log, replies(), other, resume=id))
        with pytest.raises(UsageError, match="is one of ops, not of"):
            asyncio.run(hold(log, replies(), other, options=Options(branch_of=id)))
        assert log.last(id) == last


def test_the_configuration_names_the_person_and_the_guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_settings(monkeypatch, tmp_path, 'guests = ["carl"]\n[agent]\nperson = "ops"')
    settings = load_settings()
    assert choose_participant(settings, environ={}) == OPS
    assert choose_participant(settings, environ={"HERMES_EXEC_PERSON": "lab"}) == LAB
    assert choose_participant(settings, "owner", environ={"HERMES_EXEC_PERSON": "lab"}) == Participant()
    assert choose_participant(settings, "carl", environ={}) == Participant("carl", is_guest=True)
    with pytest.raises(ConfigError, match="HERMES_EXEC_PERSON"):
        choose_participant(settings, environ={"HERMES_EXEC_PERSON": "../x"})
    for wrong in ("", "Ops", "a b", "../x", "-a", "a" * 65, "a\n", "ä"):
        with pytest.raises(UsageError, match="not a name of a person"):
            parse_person(wrong)


@pytest.mark.parametrize("stream", ["memory", "memory:ops", "claims:ops", "claim"])
def test_a_stream_of_memory_is_no_conversation(log: EventLog, journal: Journal, stream: str) -> None:
    add(journal, "one", target="user")
    add(journal.of_person("ops"), "two", target="user")
    ClaimStore(log, journal.of_person("ops")).add(NewClaim("three"))
    with pytest.raises(UsageError, match="is not a conversation"):
        log.find(stream)
    assert log.conversations() == []
