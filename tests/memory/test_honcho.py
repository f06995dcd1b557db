"""Honcho as the provider of user models: its real client against a server over real sockets, faults included."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec.config.settings import MemorySettings
from hermes_exec.errors import ConfigError, HermesError
from hermes_exec_agent.memory.claims import ClaimStore
from hermes_exec_agent.memory.honcho import HonchoUserModel
from hermes_exec_agent.memory.persons import Participant
from hermes_exec_agent.memory.user_model import UNKNOWN, create_user_model
from hermes_exec_agent.models import Models, ScriptedModel, ask, say
from hermes_exec_agent.runtime import open_conversation
from tests.memory.conftest import Person, write_settings
from tests.rigs.honcho_server import HonchoServer

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.runtime.events import EventLog
    from tests.rigs.honcho_server import Fault

KEY = "hch-rig-0123456789abcdefABCDEF"
LIMIT_S = 0.6


def write_words(log: EventLog, conversation: str, *words: str) -> None:
    log.append(conversation, "started", {"target": "local", "person": "ops"})
    for each in words:
        log.append(conversation, "user", {"content": each})
        log.append(conversation, "result", {"id": "1", "name": "terminal", "content": "output of a tool"})
        log.append(conversation, "assistant", {"content": "the agent's words"})


@pytest.fixture
def ops(log: EventLog, journal: Journal) -> ClaimStore:
    return ClaimStore(log, journal.of_person("ops"))


def test_a_person_is_one_peer_and_only_their_own_words_are_sent_once(log: EventLog, ops: ClaimStore) -> None:
    secret = "my key is AKIA" + "Z7Q3M8K2P5R9T4W6"
    write_words(log, "c1", "I like short reviews.\n\nnotes.md:\n```\nfile text\n```", secret)
    write_words(log, "c2", "I work at night.")

    async def whole() -> None:
        async with HonchoServer(KEY) as rig:
            model = HonchoUserModel(ops, rig.url, Secret("honcho_key", KEY))
            assert (await model.ask("what do they like?")).text == UNKNOWN
            for conversation in ("c1", "c2", "c1"):
                await model.record(log.events(conversation))
            assert [(each["peer_id"], each["session_id"], each["content"]) for each in rig.messages] == [
                ("ops", "c1", "I like short reviews."),
                ("ops", "c2", "I work at night."),
            ]
            log.append("c1", "user", {"content": "And I like tea."})
            await model.record(log.events("c1"))
            assert rig.messages[-1]["content"] == "And I like tea."
            assert set(rig.peers) == {"ops"}
            answer = await model.ask("what do they like?")
            assert answer.text == "They said: And I like tea."
            assert [each.text for each in answer.claims] == ["And I like tea."]
            assert [each.text for each in await model.claims()] == [each["content"] for each in rig.messages]
            owner = HonchoUserModel(ClaimStore(log, ops.journal.of_person("")), rig.url, Secret("honcho_key", KEY))
            assert await owner.claims() == []
            assert rig.peers[-1] == "owner"

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("silent", "no answer within 0.6 s"),
        ("dripping", "no answer within 0.6 s"),
        ("other JSON", "an answer of another form"),
        ("no JSON", "the connection failed"),
        ("refusing", "status 401. Try: check honcho_key"),
        ("failing", "status 503"),
    ],
)
def test_a_fault_is_one_line_in_bounded_time_without_the_key_and_the_words_are_sent_later(
    log: EventLog, ops: ClaimStore, caplog: pytest.LogCaptureFixture, fault: Fault, message: str
) -> None:
    write_words(log, "c1", "I like short reviews.")

    async def whole() -> None:
        async with HonchoServer(KEY) as rig:
            rig.fault = fault
            model = HonchoUserModel(ops, rig.url, Secret("honcho_key", KEY), limit_s=LIMIT_S)
            for call in (model.ask("what?"), model.record(log.events("c1"))):
                began = time.monotonic()
                with pytest.raises(HermesError, match=message) as caught:
                    await call
                assert time.monotonic() - began < LIMIT_S + 10
                chain = f"{caught.value!r} {caught.value} {caught.value.__context__}"
                assert KEY not in chain
            sent = len(rig.requests)
            with pytest.raises(HermesError, match="failed repeatedly"):
                await model.ask("what?")
            assert len(rig.requests) == sent
            rig.fault = ""
            later = HonchoUserModel(ops, rig.url.replace("127.0.0.1", "localhost"), Secret("honcho_key", KEY))
            await later.record(log.events("c1"))
            assert [each["content"] for each in rig.messages] == ["I like short reviews."]
            assert KEY not in repr(model)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(whole())
    assert KEY not in caplog.text


@pytest.mark.parametrize("fault", ["", "silent", "refusing", "down"])
def test_a_turn_is_answered_whatever_the_server_does(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("hermes_exec_agent.memory.honcho.LIMIT_S", LIMIT_S)
    monkeypatch.setenv("HONCHO_KEY", KEY)

    async def whole() -> float:
        async with HonchoServer(KEY) as rig:
            url = "http://127.0.0.1:9" if fault == "down" else rig.url
            lines = "user_profile_enabled = true", 'user_model = "honcho"', 'honcho_key = "env:HONCHO_KEY"'
            write_settings(monkeypatch, tmp_path, "\n".join([*lines, f'honcho_url = "{url}"']))
            rig.fault = "silent" if fault == "silent" else "refusing" if fault == "refusing" else ""
            models = Models(ScriptedModel([ask(("user_ask", {"question": "what?"})), say("done")]))
            began = time.monotonic()
            async with open_conversation(
                "local", models=models, person=Person(), log=log, participant=Participant("ops")
            ) as conversation:
                assert (await conversation.ask("I like tea.")).outcome == "answered"
                (result,) = [each.content for each in conversation.messages if each.role == "tool"]
            assert ('"ok": true' in result) is (fault == "")
            assert [each["content"] for each in rig.messages] == (["I like tea."] if not fault else [])
            return time.monotonic() - began

    assert asyncio.run(whole()) < 10


def test_two_providers_or_half_of_one_are_errors_of_the_configuration(log: EventLog) -> None:
    for settings, message in (
        (MemorySettings(honcho_url="http://h"), "one provider is used at a time"),
        (MemorySettings(user_model="honcho"), "needs honcho_url"),
    ):
        with pytest.raises(ConfigError, match=message):
            create_user_model(log, settings, environ={})
