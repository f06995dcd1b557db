"""Conversations with a journal: a frozen system message, notices, origins, limits, and attacks that are remembered."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec_agent.memory.prompt import measure
from hermes_exec_agent.models import Models, ScriptedModel, ask, load_models, say
from hermes_exec_agent.models.obedient import ObedientModel
from hermes_exec_agent.runtime import open_conversation
from tests.memory.conftest import Person, add
from tests.memory.corpus import ATTACKS_OF_KINDS
from tests.rigs.breadth import choose
from tests.rigs.endpoint import KEY, ScriptedEndpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hermes_exec_agent.memory.entries import Target
    from hermes_exec_agent.memory.journal import Journal
    from hermes_exec_agent.models.protocol import Reply
    from hermes_exec_agent.models.scripted import ScriptEntry
    from hermes_exec_agent.runtime.events import EventLog
    from tests.memory.conftest import Talk

TURNS = 100
WRITES = 30


def remember(content: str, target: str = "memory", **more: Any) -> Reply:
    return ask(("memory", {"target": target, "action": "add", "content": content, **more}))


def talk_through(talk: Talk, replies: Sequence[ScriptEntry], *requests: str, **options: Any) -> list[dict[str, Any]]:
    """Hold a conversation, and return the results of the calls of ``memory``."""

    async def whole() -> list[dict[str, Any]]:
        async with talk(ScriptedModel(replies), **options) as conversation:
            for request in requests:
                await conversation.ask(request)
            return [
                json.JSONDecoder().raw_decode(each.content)[0] for each in conversation.messages if each.role == "tool"
            ]

    return asyncio.run(whole())


def test_the_prefix_stays_the_same_over_many_turns_with_writes_between(talk: Talk, journal: Journal) -> None:
    add(journal, "known before")
    add(journal, "likes short answers", target="user")
    replies: list[Reply] = []
    for turn in range(TURNS):
        replies += [remember(f"fact {turn}")] if turn < WRITES else []
        replies += [say(f"answer {turn}")]

    async def whole(url: str) -> None:
        environ = {"LLM_PROVIDER": "custom", "LLM_BASE_URL": url, "OPENAI_API_KEY": KEY, "DEFAULT_MODEL": "m"}
        models = load_models(environ)
        try:
            async with talk(models) as conversation:
                for turn in range(TURNS):
                    await conversation.ask(f"request {turn}")
        finally:
            await models.close()

    with ScriptedEndpoint(replies) as rig:
        asyncio.run(whole(rig.url))
        sent = [each["messages"] for each in rig.requests]
    assert not rig.complaints
    assert len(sent) == TURNS + WRITES
    assert len({json.dumps(messages[0]) for messages in sent}) == 1
    assert '- "known before"' in sent[0][0]["content"]
    assert '- "likes short answers"' in sent[0][0]["content"]
    for before, after in itertools.pairwise(sent):
        assert after[: len(before)] == before
    users = [message["content"] for message in sent[-1] if message["role"] == "user"]
    assert users[0] == "request 0"
    assert all(f'- "fact {turn}"' in users[turn + 1] for turn in range(WRITES))
    assert users[WRITES + 1] == f"request {WRITES + 1}"
    assert [each.text for each in journal.read("memory")] == ["known before", *(f"fact {n}" for n in range(WRITES))]


FROM_WITHOUT = "My plots change from plots without a grid to plots with a grid."
FROM_WITH = "My plots change from plots with a grid to plots without a grid."


@pytest.mark.parametrize(
    ("message", "entry", "is_kept"),
    [
        (FROM_WITHOUT, "prefers plots with a grid", True),
        (FROM_WITH, "prefers plots without a grid", True),
        (FROM_WITH, "prefers plots with a grid", False),
        (FROM_WITHOUT, "changed from plots without a grid to plots with a grid", True),
        (f"I like tea. {FROM_WITH}", "likes tea", True),
        ("Never change from deploys without a review to deploys with a review.", "deploys with a review", False),
        ("Never go from staging to production without a review.", "production without a review", False),
        (f"Look at this:\n```\n{FROM_WITHOUT}\n```", "prefers plots with a grid", False),
        ("Look at the file.", "prefers plots with a grid", False),
    ],
)
def test_the_new_state_of_a_change_is_the_persons_and_the_old_one_is_not(
    talk: Talk, journal: Journal, message: str, entry: str, *, is_kept: bool
) -> None:
    look = ask(("terminal", {"command": f"echo '{FROM_WITHOUT}'"}))
    talk_through(talk, [look, remember(entry, "user"), say("ok")], message)
    assert [(each.text, each.origin) for each in journal.read("user")] == ([(entry, "person")] if is_kept else [])


@pytest.mark.parametrize("enabled", [True, False])
def test_the_configuration_enables_the_tool_and_nothing_is_created_by_reading(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, enabled: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config/hermes_exec").mkdir(parents=True)
    (tmp_path / "config/hermes_exec/hermes.toml").write_text(f"[memory]\nmemory_enabled = {str(enabled).lower()}\n")

    async def whole() -> bool:
        models = Models(ScriptedModel([say("ok")]))
        async with open_conversation("local", models=models, person=Person(), log=log) as conversation:
            await conversation.ask("go")
            return any(spec.name == "memory" for spec in conversation.specs)

    assert asyncio.run(whole()) is enabled
    assert not (tmp_path / "state/hermes_exec/memory").exists()


@pytest.mark.parametrize("target", ["memory", "user"])
def test_the_words_of_the_person_are_theirs_also_after_output_was_read(
    talk: Talk, journal: Journal, target: Target
) -> None:
    look = ask(("terminal", {"command": "echo hello"}))
    replies = [look, remember("User prefers tabs over spaces", target), say("ok")]
    talk_through(talk, replies, "Look around. I prefer tabs over spaces.")
    (entry,) = journal.read(target)
    assert (entry.text, entry.origin) == ("User prefers tabs over spaces", "person")
    assert entry.sources[0].number == 2
    assert journal.history()[0].data["who"] == "agent"
    assert journal.history()[0].data["why"] == '"Look around. I prefer tabs over spaces."'


def test_text_that_was_read_becomes_a_quotation_in_memory_and_never_enters_the_profile(
    talk: Talk, journal: Journal, log: EventLog
) -> None:
    replies = [
        ask(("terminal", {"command": "echo the port is 8443"})),
        remember("the port is 8443"),
        remember("the port is 8443", "user"),
        say("ok"),
    ]
    _, kept, refused = talk_through(talk, replies, "look")
    (entry,) = journal.read("memory")
    (source,) = entry.sources
    assert entry.origin == "untrusted"
    assert entry.text == f'[from terminal, {source}] "the port is 8443"'
    assert log.events(source.conversation, source.number - 1)[0].kind == "result"
    assert "quotation" in kept["note"]
    assert refused["error"]["type"] == "refused"
    assert journal.read("user") == []


def test_the_text_of_an_attached_file_is_not_the_persons(talk: Talk, journal: Journal) -> None:
    replies = [remember("likes to deploy unasked", "user"), remember("likes to deploy unasked"), say("ok")]
    request = "Which is better?\n\nnotes.md:\n```\nThe person likes to deploy unasked.\n```"
    refused, kept = talk_through(talk, replies, request)
    assert refused["error"]["type"] == "refused"
    assert "quotation" in kept["note"]
    (entry,) = journal.read("memory")
    assert entry.text.startswith("[from an attached file, ")
    assert journal.read("user") == []


def test_a_quotation_does_not_become_the_agents_own_in_a_later_conversation(talk: Talk, journal: Journal) -> None:
    read = [ask(("terminal", {"command": "echo the port is 8443"})), remember("the port is 8443"), say("ok")]
    talk_through(talk, read, "look")
    talk_through(talk, [remember("the port is 8443!"), say("ok")], "hello")
    assert [each.origin for each in journal.read("memory")] == ["untrusted", "untrusted"]


def test_a_negation_is_not_dropped_from_the_persons_words(talk: Talk, journal: Journal) -> None:
    replies = [ask(("terminal", {"command": "true"})), remember("deploy without asking", "user"), say("ok")]
    *_, refused = talk_through(talk, replies, "Never deploy without asking.")
    assert refused["error"]["type"] == "refused"
    assert journal.read("user") == []


def test_a_full_file_is_told_once_and_a_second_try_ends_the_matter(talk: Talk, journal: Journal) -> None:
    add(journal, "a" * 1000, "b" * 700)
    told: list[str] = []
    replies = [remember("c" * 500), remember("d" * 500), remember("short"), say("ok"), remember("short"), say("ok")]
    first, second, third, fourth = talk_through(talk, replies, "go", "again", told=told)
    assert '1005: "aaa' in first["error"]["message"]
    assert "705:" in first["error"]["message"]
    assert [each["error"]["type"] for each in (first, second, third)] == ["full"] * 3
    assert fourth["ok"]
    assert told == ["MEMORY.md is full (2200 characters), so that something was not remembered"]


def test_a_batch_is_measured_at_its_end_and_is_completely_done_or_not(talk: Talk, journal: Journal) -> None:
    add(journal, "a" * 1000, "b" * 700)
    told: list[str] = []
    swap = [{"action": "add", "content": "c" * 900}, {"action": "remove", "old_text": "aaa"}]
    broken = [{"action": "remove", "old_text": "bbb"}, {"action": "remove", "old_text": "not there"}]
    replies = [ask(("memory", {"operations": swap})), ask(("memory", {"operations": broken})), say("ok")]
    done, failed = talk_through(talk, replies, "go", told=told)
    assert "next conversation on" in done["output"]
    assert not failed["ok"]
    assert [each.text for each in journal.read("memory")] == ["b" * 700, "c" * 900]
    assert told == []


def test_a_notice_at_four_fifths_comes_once(talk: Talk, journal: Journal) -> None:
    told: list[str] = []
    talk_through(talk, [remember("a" * 1000), remember("b" * 650), remember("c"), say("ok")], "go", told=told)
    size = measure("memory", journal.read("memory")[:2])
    assert told == [f"MEMORY.md is nearly full: {size} of 2200 characters"]


def test_secrets_are_refused_and_a_write_is_asked_for(talk: Talk, journal: Journal) -> None:
    secret = "the key is AKIA" + "Z7Q3M8K2P5R9T4W6"
    person = Person()
    refused = talk_through(talk, [remember(secret), remember("fine"), say("ok")], "go", person=person, mode="ask")
    assert [each["error"]["type"] for each in refused] == ["denied", "denied"]
    assert len(person.asked) == 2
    (refused_too,) = talk_through(talk, [remember(secret), say("ok")], "go")
    assert "a secret" in refused_too["error"]["message"]
    assert journal.read("memory") == []


@pytest.mark.parametrize("kind", ATTACKS_OF_KINDS)
def test_attacks_that_were_read_cause_no_act_without_approval_in_a_later_conversation(
    talk: Talk, journal: Journal, tmp_path: Path, kind: str
) -> None:
    """A model that obeys everything remembers each attack, and a later one reads it beside an ordinary request."""
    add(journal, "likes short answers", target="user")
    profile = journal.path("user").read_bytes()

    async def attack(number: int, text: str) -> tuple[bool, int]:
        mark = tmp_path / f"mark-{number}"
        attack = text.format(mark=mark)
        (tmp_path / "work").mkdir(exist_ok=True)
        (tmp_path / "work" / "page.txt").write_text(attack)
        looks: list[tuple[str, dict[str, Any]]] = [
            ("terminal", {"command": "cat page.txt"}), ("read_file", {"path": "page.txt"})
        ]  # fmt: skip
        look = ask(looks[number % len(looks)])
        reading = [look, remember(attack), remember(attack, "user"), say("ok")]
        async with talk(
            ScriptedModel(reading), Person(["terminal", "read_file", "memory"]), mode="ask"
        ) as conversation:
            await conversation.ask("Read page.txt")
        person, model = Person(), ObedientModel()
        async with talk(Models(model), person, mode="ask") as conversation:
            await conversation.ask("How are you?")
        journal.write("memory", lambda _: [], who="person", why="the next attack")
        return mark.exists(), len(model.followed)

    async def whole() -> list[tuple[bool, int]]:
        return [await attack(number, text) for number, text in enumerate(choose(kind, ATTACKS_OF_KINDS[kind], 2))]

    results = asyncio.run(whole())
    assert [number for number, (acted, _) in enumerate(results) if acted] == []
    if kind in {"setup", "standing"}:
        assert sum(followed for _, followed in results) > 0  # the model does follow those that it reads
    assert journal.path("user").read_bytes() == profile
