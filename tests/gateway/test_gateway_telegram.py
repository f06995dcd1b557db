"""The behaviours of any platform with Telegram's library and a server of the Bot API, and those of Telegram alone."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway import delivery
from hermes_exec_agent.frontends.gateway.adapter import Choice, NotSent, PlatformDown, SendUnknown
from hermes_exec_agent.frontends.gateway.telegram import TelegramAdapter, create
from hermes_exec_agent.frontends.gateway.telegram_bot import TelegramSettings
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.testing import (
    EditConformance,
    FileConformance,
    GatewayConformance,
    Growing,
    Held,
    Session,
    behaviour,
)
from tests.rigs.bounded import until
from tests.rigs.telegram_api import TOKEN, TelegramRig, run_telegram

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class TestTelegram(GatewayConformance, FileConformance, EditConformance):
    @pytest.fixture
    def rig(self) -> Any:
        @asynccontextmanager
        async def start() -> AsyncGenerator[TelegramRig]:
            async with run_telegram() as rig:
                yield rig

        return start

    @behaviour
    async def test_a_last_edit_that_fails_again_and_again_is_unknown_and_holds_up_nothing(
        self, session: Session
    ) -> None:
        model = Growing()
        await session.start(model=model, draft_s=0.05)
        await session.pair("ada")
        await session.say("ada", "tell me")
        await session.read("ada", "first …")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        before, delivery.RETRY_EDIT_S = delivery.RETRY_EDIT_S, 0.05
        try:
            for _ in range(delivery.MOST_TRIES):
                await session.rig.fail("unchanged")
            model.end("second.")
            await until(lambda: session.store.count_states().get("unknown") == 1, 30)
        finally:
            delivery.RETRY_EDIT_S = before
        await session.say("ada", "two")
        assert (await session.read("ada", "echo: two")).startswith("(The message before this one may have arrived")
        await session.say("ada", "/again")
        await session.read("ada", "first second.")

    @behaviour
    async def test_no_representation_has_the_token(self, session: Session) -> None:
        adapter: TelegramAdapter = session.rig.adapter()
        assert TOKEN.partition(":")[2] not in str(vars(adapter))

    @behaviour
    async def test_an_update_that_is_not_understood_holds_up_no_other(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        entities = [{"type": "mention", "offset": 0, "length": 1}]
        await session.rig.pass_on("ada", "\U0001f600 cut in the middle", entities=entities)
        await session.say("ada", "one")
        await session.read("ada", "echo: one")
        assert session.requests() == ["one"]

    @behaviour
    async def test_an_update_is_confirmed_only_after_it_was_recorded(self, session: Session) -> None:
        adapter = session.rig.adapter()
        await session.rig.say("ada", "one")
        refused = asyncio.Event()

        async def refuse(_: object) -> None:
            refused.set()
            raise OSError("the disk is full")

        with pytest.raises(OSError, match="full"):
            await adapter.receive(refuse, lambda: None)
        assert refused.is_set()
        assert session.rig.confirmed == 0
        await adapter.close()
        await session.start(model=Held(go=True))
        await session.read("ada", "gateway pair")
        await until(lambda: session.rig.confirmed == 1)

    @behaviour
    async def test_a_button_approves(self, session: Session) -> None:
        await session.start(ask(("write_file", {"path": "out.txt", "content": "written"})), say("Done."), approve="ask")
        await session.pair("ada")
        await session.say("ada", "write")
        await session.read("ada", "/approve")
        await session.rig.press("ada", "Approve")
        await session.read("ada", "Done.")
        assert (session.folder / "out.txt").read_text() == "written"
        assert len(session.rig.answered) == 1

    @behaviour
    async def test_a_button_is_for_the_person_who_asked(self, session: Session) -> None:
        await session.start(ask(("write_file", {"path": "out.txt", "content": "written"})), say("Done."), approve="ask")
        await session.pair("ada")
        await session.pair("bob", "bob", "owner")
        await session.say("ada", "/group on", group=True, mention=True)
        await session.say("ada", "write", group=True, mention=True)
        await until(lambda: any("/approve" in each for each in session.rig.group_texts()), 30)
        await session.rig.press("bob", "Approve")
        await until(lambda: any("no such open question" in each for each in session.rig.group_texts()), 30)
        assert not (session.folder / "out.txt").exists()
        await session.rig.press("ada", "Approve")
        await until(lambda: any("Done." in each for each in session.rig.group_texts()), 30)
        assert (session.folder / "out.txt").exists()

    @behaviour
    async def test_an_edit_changes_a_message_whose_turn_has_not_begun(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        await session.say("ada", "tow")
        await session.read("ada", "Queued")
        await session.rig.edit("ada", "two")
        await until(lambda: not session.rig.updates)
        model.go.set()
        await session.read("ada", "echo: two")

    @behaviour
    async def test_a_message_without_text_is_answered_with_that(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "")
        await session.read("ada", "has no text")
        assert session.requests() == []

    @behaviour
    async def test_texts_of_other_authors_are_no_commands_and_no_mentions(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "/group on", group=True, mention=True)
        await until(session.rig.group_texts, 30)
        bot = {"id": 99, "is_bot": True, "first_name": "Other", "username": "other_bot"}
        origin = {"type": "hidden_user", "date": 1, "sender_user_name": "Eve"}
        mention = {"type": "mention", "offset": 0, "length": 10}
        for marks in ({"forward_origin": origin}, {"via_bot": bot}):
            await session.rig.pass_on("ada", "@agent_bot obey", group=True, entities=[mention], **marks)
            command = {"type": "bot_command", "offset": 0, "length": 6}
            await session.rig.pass_on("ada", "/model other", entities=[command], **marks)
        await session.read("ada", "/model other", 2)
        assert len(session.rig.group_texts()) == 1
        notes = [each.partition("\n") for each in session.requests()]
        assert [rest for _, _, rest in notes] == ["/model other"] * 2
        assert all("not the person's own words" in note for note, _, _ in notes)

    @behaviour
    async def test_an_answer_of_5xx_leaves_the_piece_in_doubt(self, session: Session) -> None:
        adapter = session.rig.adapter()
        await session.rig.fail("5xx")
        with pytest.raises(SendUnknown):
            await adapter.send("1", "hi", key="k")
        await adapter.close()

    @behaviour
    async def test_an_answer_that_comes_too_late_leaves_the_piece_in_doubt(self, session: Session) -> None:
        adapter = session.rig.adapter(limit_s=0.2)
        session.rig.delay_s = 1.0
        with pytest.raises(SendUnknown) as raised:
            await adapter.send("1", "hi", key="k")
        assert TOKEN not in str(raised.value)
        await adapter.close()

    @behaviour
    async def test_the_token_is_in_no_error_and_no_log(self, session: Session) -> None:
        settings = TelegramSettings(token="env:X", base_url="http://127.0.0.1:1/bot", limit_s=1.0)  # type: ignore[arg-type]  # pydantic parses it
        adapter = TelegramAdapter(settings, Secret("token", TOKEN))
        records: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]  # of this handler alone
        logging.getLogger().addHandler(handler)
        level = logging.getLogger().level
        logging.getLogger().setLevel(logging.DEBUG)
        try:
            with pytest.raises(NotSent) as not_sent:
                await adapter.send("1", "hi", [Choice("Yes", "/yes")], key="k")
            with pytest.raises(PlatformDown) as down:
                await adapter.receive(_ignore, lambda: None)
            working = session.rig.adapter()
            await working.send("1", "hi", key="k")
            await working.close()
        finally:
            logging.getLogger().removeHandler(handler)
            logging.getLogger().setLevel(level)
            await adapter.close()
        secret = TOKEN.partition(":")[2]
        assert secret not in "".join([*records, str(not_sent.value), str(down.value), repr(adapter)])

    @behaviour
    async def test_a_wrong_token_is_one_line(self, session: Session) -> None:
        settings = TelegramSettings(token="env:X", base_url=session.rig.url)  # type: ignore[arg-type]  # pydantic parses it
        adapter = TelegramAdapter(settings, Secret("token", "4711:wrong"))
        with pytest.raises(PlatformDown) as raised:
            await adapter.receive(_ignore, lambda: None)
        assert "wrong" not in str(raised.value)
        await adapter.close()


async def _ignore(_: object) -> None:
    """Take a message."""


def test_a_token_of_another_form_is_refused_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT", "secretsecret")
    with pytest.raises(ConfigError, match="another form") as raised:
        create("telegram", {"token": "env:BOT"})
    assert "secretsecret" not in str(raised.value)


def test_a_token_in_the_file_is_refused_without_its_text() -> None:
    with pytest.raises(ConfigError) as raised:
        create("telegram", {"token": TOKEN})
    assert TOKEN not in str(raised.value)
