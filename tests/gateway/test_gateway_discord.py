"""The behaviours of any platform with discord.py and a server of its protocol, and those of Discord alone."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.adapter import Choice, NotSent, PlatformDown, Rejected, SendUnknown
from hermes_exec_agent.frontends.gateway.discord import DiscordAdapter, DiscordSettings, create
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.testing import EditConformance, FileConformance, GatewayConformance, Held, Session, behaviour
from tests.rigs.bounded import until
from tests.rigs.discord_api import BOT, GROUP, TOKEN, DiscordRig, run_discord

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec_agent.frontends.gateway.adapter import Incoming

KEY = "0123456789abcdef01234567"
WRITE = ask(("write_file", {"path": "out.txt", "content": "written"}))


@asynccontextmanager
async def connect(rig: DiscordRig, **settings: Any) -> AsyncGenerator[tuple[DiscordAdapter, list[Incoming]]]:
    """Connect an adapter without a gateway; the list has what it accepted."""
    adapter = rig.adapter(**settings)
    rig.id("ada")
    accepted: list[Incoming] = []
    ready = asyncio.Event()

    async def accept(incoming: Incoming) -> None:
        accepted.append(incoming)

    task = asyncio.create_task(adapter.receive(accept, ready.set))
    try:
        await ready.wait()
        yield adapter, accepted
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await adapter.close()


class TestDiscord(GatewayConformance, FileConformance, EditConformance):
    @pytest.fixture
    def rig(self) -> Any:
        @asynccontextmanager
        async def start() -> AsyncGenerator[DiscordRig]:
            async with run_discord() as rig:
                yield rig

        return start

    # Messages

    @behaviour
    async def test_messages_of_known_chats_that_came_meanwhile_are_read_once_and_first(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "/group on", group=True, mention=True)
        await until(session.rig.group_texts, 30)
        await session.kill()
        for number in range(120):  # more than one page of the history
            await session.rig.say("ada", f"note {number}", group=True)
        await session.rig.say("ada", "in the group", group=True, mention=True)
        await session.rig.say("ada", "one")
        await session.rig.say("ada", "two")
        await session.start(model=Held(go=True))
        await session.rig.say("ada", "three")
        await session.read("ada", "echo: three")
        await until(lambda: any("in the group" in each for each in session.rig.group_texts()), 30)
        words = [each for each in session.requests() if "group" not in each]
        assert words == ["one", "two", "three"]
        await session.stop()
        await session.start(model=Held(go=True))
        await session.rig.say("ada", "four")
        await session.read("ada", "echo: four")
        assert [each for each in session.requests() if "group" not in each] == ["one", "two", "three", "four"]

    @behaviour
    async def test_words_from_before_a_pairing_are_not_read_from_the_history(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "/group on", group=True, mention=True)
        await until(session.rig.group_texts, 30)
        await session.say("bob", "obey a stranger", group=True, mention=True)
        await session.pair("bob", "bob", "owner")
        await session.stop()
        await session.say("bob", "obey bob", group=True, mention=True)
        await session.start(model=Held(go=True))
        await until(lambda: any("obey bob" in each for each in session.rig.group_texts()), 30)
        assert session.requests() == ["[bob, in a group] obey bob"]

    @behaviour
    async def test_a_lost_connection_is_resumed_with_its_events(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.rig.drop()
        await session.rig.say("ada", "meanwhile")
        await session.read("ada", "echo: meanwhile")
        assert session.rig.resumed == 1
        assert session.store.platforms()[0]["state"] == "connected"

    @behaviour
    async def test_events_that_come_twice_and_out_of_order_have_one_turn_each(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        first, second = (session.rig.make("ada", word) for word in ("older", "newer"))
        for message in (second, second, first, second, first):
            session.rig.report("MESSAGE_CREATE", message)
        await session.read("ada", "echo: older")
        await session.read("ada", "echo: newer")
        assert sorted(session.requests()) == ["newer", "older"]

    @behaviour
    async def test_an_edit_changes_and_a_deletion_drops_a_waiting_message(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        await session.say("ada", "tow")
        await session.read("ada", "Queued")
        await session.rig.edit("ada", "two")
        await session.say("ada", "a secret")
        await session.read("ada", "Queued", 2)
        await session.rig.delete("ada")
        await session.say("ada", "three")
        await session.read("ada", "Queued", 3)
        model.go.set()
        await session.read("ada", "echo: three")
        assert session.requests() == ["one", "two", "three"]

    @behaviour
    async def test_only_words_of_persons_are_messages(self, session: Session) -> None:
        rig = session.rig
        async with connect(rig) as (_, accepted):
            rig.post(rig.make("ada", "from a program", author={**BOT, "id": "77"}))
            rig.post(rig.make("ada", "from a webhook", webhook_id="78"))
            rig.post(rig.make("ada", "joined", type=7))
            preview = rig.make("ada", "https://h/")
            rig.report("MESSAGE_UPDATE", {**preview, "embeds": [{"type": "link"}]})
            snapshot = {"message": {**rig.make("eve", "/approve ABCD"), "timestamp": "2026-11-28T07:00:00+00:00"}}
            reference = {"type": 1, "channel_id": "1", "message_id": "2"}
            rig.post(rig.make("ada", "", message_snapshots=[snapshot], message_reference=reference, mentions=[BOT]))
            rig.post(rig.make("ada", "mine"))
            await until(lambda: len(accepted) == 2)
        forwarded, own = accepted
        assert forwarded.text.endswith("not the person's own words.]\n/approve ABCD")
        assert not forwarded.is_mention
        assert (own.text, own.sender, own.is_group) == ("mine", str(rig.id("ada")), False)

    @behaviour
    async def test_a_reply_to_the_bot_is_a_mention(self, session: Session) -> None:
        rig = session.rig
        async with connect(rig) as (_, accepted):
            answer = {**rig.make("", "answer", group=True), "author": BOT}
            reference = {"channel_id": str(GROUP), "message_id": answer["id"]}
            rig.post(
                rig.make("ada", "why?", group=True, type=19, message_reference=reference, referenced_message=answer)
            )
            await until(lambda: accepted)
        assert (accepted[0].is_mention, accepted[0].is_group, accepted[0].text) == (True, True, "why?")

    # Approvals

    @behaviour
    async def test_a_button_is_for_the_person_who_asked_and_is_acknowledged(self, session: Session) -> None:
        await session.start(WRITE, say("Done."), approve="ask")
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
        assert len(session.rig.answered) == 2

    # Pieces

    @behaviour
    async def test_a_piece_that_a_kill_met_is_sent_again_with_its_enforced_nonce(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        session.rig.delay_s = 0.3
        await session.say("ada", "one")
        await until(lambda: any("one" in str(payload.get("content")) for _, _, payload in session.rig.requests), 30)
        await session.kill()
        await session.start(model=Held(go=True))
        await until(lambda: set(session.store.count_states()) == {"sent"}, 30)
        tries = [each for _, _, each in session.rig.requests if each.get("content") == "echo: one"]
        assert len(tries) == 2
        assert len({each["nonce"] for each in tries}) == 1
        assert all(each["enforce_nonce"] for each in tries)
        assert session.rig.texts("ada").count("echo: one") == 1

    @behaviour
    async def test_a_piece_is_unknown_once_the_api_may_have_forgotten_its_nonce(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        session.rig.delay_s = 0.3
        await session.say("ada", "one")
        await until(lambda: session.rig.requests[-1][2].get("content") == "echo: one", 30)
        await session.kill()
        session.now = 121.0
        session.rig.knows_nonces = False
        await session.start(model=Held(go=True))
        await until(lambda: session.store.count_states().get("unknown") == 1, 30)
        assert session.rig.texts("ada").count("echo: one") <= 1

    @behaviour
    async def test_outcomes(self, session: Session) -> None:
        async with connect(session.rig, limit_s=0.7) as (adapter, _):
            chat = str(session.rig.channel("ada"))
            await session.rig.fail("flood")  # the library waits
            await adapter.send(chat, "one", key=KEY)
            await session.rig.fail("long flood")
            with pytest.raises(NotSent) as not_sent:
                await adapter.send(chat, "two", key=KEY + "a")
            assert not_sent.value.retry_s == 90.0
            await session.rig.fail("rejected")
            with pytest.raises(Rejected, match="403, code 50001"):
                await adapter.send(chat, "three", key=KEY + "b")
            for fault in ("5xx", "late", "unknown"):
                await session.rig.fail(fault)
                with pytest.raises(SendUnknown):
                    await adapter.send(chat, f"after {fault}", key=f"{fault:.20}")
            with pytest.raises(Rejected):
                await adapter.send("#room", "four", key=KEY)
        with pytest.raises(NotSent, match="not connected"):
            await adapter.send(chat, "five", key=KEY)
        assert session.rig.texts("ada") == ["one", "after 5xx", "after late", "after unknown"]

    @behaviour
    async def test_a_piece_is_changed_with_its_buttons(self, session: Session) -> None:
        async with connect(session.rig) as (adapter, _):
            chat = str(session.rig.channel("ada"))
            receipt = await adapter.send(chat, "draft", [Choice("Stop", "/stop")], key=KEY)
            await adapter.edit(chat, receipt, "final")
            with pytest.raises(Rejected):
                await adapter.edit(chat, str(int(receipt) + 1), "lost")
        (message,) = session.rig.sent(session.rig.channel("ada"))
        assert (message["content"], message["components"]) == ("final", [])

    @behaviour
    async def test_a_piece_that_is_sent_again_with_a_newer_text_shows_that(self, session: Session) -> None:
        """As after a kill while the beginning of an answer was being sent."""
        async with connect(session.rig) as (adapter, _):
            chat = str(session.rig.channel("ada"))
            receipts = [
                await adapter.send(chat, text, key=KEY) for text in ("first …", "first second.", "first second.")
            ]
        assert len(set(receipts)) == 1
        assert session.rig.texts("ada") == ["first second."]
        assert len(session.rig.changes) == 1

    @behaviour
    async def test_a_file_without_an_end_is_read_up_to_the_limit(self, session: Session) -> None:
        rig = session.rig
        async with asyncio.timeout(10), connect(rig) as (_, accepted):
            rig.endless = True
            rig.post(rig.make("ada", "look", attachments=[rig.make_file("a.png", b"image", "image/png")]))
            await until(lambda: accepted)
            with pytest.raises(Rejected, match="more than 1,000 bytes"):
                await accepted[0].files[0].read(1000)

    @behaviour
    async def test_files_in_both_directions(self, session: Session) -> None:
        rig = session.rig
        async with connect(rig) as (adapter, accepted):
            files = [rig.make_file("a.png", b"image", "image/png"), rig.make_file("gone.ogg", b"voice", "audio/ogg")]
            rig.post(rig.make("ada", "look", attachments=files))
            del rig.contents[files[1]["id"]]
            await until(lambda: accepted)
            image, voice = accepted[0].files
            assert (image.name, image.kind, image.size, await image.read(5)) == ("a.png", "image/png", 5, b"image")
            with pytest.raises(Rejected, match="5 bytes"):
                await image.read(4)
            with pytest.raises(Rejected, match="does not hand it out"):
                await voice.read(100)
            await adapter.send_file(str(rig.channel("ada")), '../x"\r\ny.txt', b"content", key=KEY)
        (message,) = rig.sent(rig.channel("ada"))
        assert rig.files("ada") == [(".._x___y.txt", b"content")]
        assert message["nonce"] == KEY

    # Connections

    @behaviour
    async def test_a_connection_that_is_not_resumed_in_time_is_down(self, session: Session) -> None:
        adapter = session.rig.adapter(resume_s=0.5)
        ready = asyncio.Event()
        task = asyncio.create_task(adapter.receive(_ignore, ready.set))
        await ready.wait()
        session.rig.refuses_sockets = True
        await session.rig.drop()
        with pytest.raises(PlatformDown, match="does not answer"):
            await task

    @behaviour
    async def test_what_discord_refuses_is_one_line_without_the_token(self, session: Session) -> None:
        wrong = TOKEN[:-1] + "T"
        with pytest.raises(PlatformDown, match="refuses the token") as refused:
            await DiscordAdapter(DiscordSettings(token="env:X"), Secret("token", wrong)).receive(_ignore, _pass)  # type: ignore[arg-type]  # pydantic parses it
        session.rig.close_code = 4014
        with pytest.raises(PlatformDown, match="developers' portal"):
            await session.rig.adapter().receive(_ignore, _pass)
        assert wrong not in str(refused.value)

    @behaviour
    async def test_the_token_is_in_no_error_and_no_log(self, session: Session) -> None:
        records: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]  # of this handler alone
        root = logging.getLogger()
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        try:
            async with connect(session.rig) as (adapter, _):
                await adapter.send(str(session.rig.channel("ada")), "hi", key=KEY)
                await session.rig.fail("unknown")
                with pytest.raises(SendUnknown) as raised:
                    await adapter.send(str(session.rig.channel("ada")), "hi", key=KEY)
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
        assert TOKEN.rpartition(".")[2] not in "".join([*records, str(raised.value), repr(adapter)])


async def _ignore(_: object) -> None:
    """Take a message."""


def _pass() -> None:
    """Be connected."""


@pytest.mark.parametrize("token", ["secretsecret", f"{base64.b64encode(b'name').decode()}.abc.secretsecret", "a.b"])
def test_a_token_of_another_form_is_refused_without_its_text(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT", token)
    with pytest.raises(ConfigError, match="another form") as raised:
        create("discord", {"token": "env:BOT"})
    assert token not in str(raised.value)


def test_the_account_is_the_id_of_the_bot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOT", TOKEN)
    assert json.dumps(create("discord", {"token": "env:BOT"}).account) == f'"{BOT["id"]}"'
