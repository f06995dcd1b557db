"""The behaviours of any platform with Slack's library and a server of its protocols, and those of Slack alone."""

from __future__ import annotations

import asyncio
import io
import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.web.async_client import AsyncWebClient

from hermes_exec.config.secrets import Secret
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.adapter import Choice, NotSent, PlatformDown, Rejected, SendUnknown
from hermes_exec_agent.frontends.gateway.listener import Listener
from hermes_exec_agent.frontends.gateway.slack import SlackAdapter, create
from hermes_exec_agent.frontends.gateway.slack_messages import parse_payload, read_text
from hermes_exec_agent.frontends.gateway.slack_sender import SlackSettings
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.testing import EditConformance, FileConformance, GatewayConformance, Held, Session, behaviour
from tests.rigs.bounded import until
from tests.rigs.log_lines import record_log
from tests.rigs.slack_api import APP_TOKEN, ME, ROOM, SIGNING, TOKEN, SlackRig, sign

if TYPE_CHECKING:
    from hermes_exec_agent.frontends.gateway.adapter import Incoming

HOSTILE = "<!channel> <!here> <@UEVE> @channel @here @everyone <https://h/|<!channel>> **<!channel>** `<!here>`"
WRITE = ("write_file", {"path": "out.txt", "content": "written"})


class TestSlack(GatewayConformance, FileConformance, EditConformance):
    @pytest.fixture
    def rig(self) -> Any:
        return lambda: SlackRig().run()

    # Pieces in doubt

    @behaviour
    async def test_a_piece_in_doubt_that_arrived_is_found_and_one_that_did_not_is_sent(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        for fault, word in (("unknown", "one"), ("lost", "two")):
            await until(lambda: set(session.store.count_states()) == {"sent"})
            await session.rig.fail(fault)
            await session.say("ada", word)
            await session.read("ada", f"echo: {word}")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        assert [each for each in session.rig.texts("ada") if "echo" in each] == ["echo: one", "echo: two"]
        assert session.rig.calls.count("conversations.history") >= 2

    @behaviour
    async def test_a_piece_that_cannot_be_looked_up_is_unknown_until_again(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        session.rig.blind = True
        await session.rig.fail("lost")
        await session.say("ada", "one")
        await until(lambda: session.store.count_states().get("unknown") == 1, 60)
        await session.say("ada", "/again")
        await session.read("ada", "echo: one")
        await session.say("ada", "/again")
        await session.read("ada", "No message to you is in doubt.")
        assert session.requests() == ["one"]

    @behaviour
    async def test_a_piece_is_looked_up_in_a_long_history_and_as_often_as_slack_allows(self, session: Session) -> None:
        await session.rig.say("ada", "hello")
        session.rig.channels["DADA"] += [session.rig.make("ada", f"old {number}") for number in range(40)]
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        session.rig.history_s = 1.0
        for fault, word in (("lost", "one"), ("unknown", "two")):
            await session.rig.fail(fault)
            await session.say("ada", word)
            await session.read("ada", f"echo: {word}")
            await until(lambda: set(session.store.count_states()) == {"sent"})
        assert [each for each in session.rig.texts("ada") if "echo" in each] == ["echo: one", "echo: two"]

    @behaviour
    async def test_a_kill_while_a_piece_is_sent_neither_loses_nor_doubles_it(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        session.rig.delay_s = 0.3
        await session.say("ada", "one")
        await until(lambda: session.store.count_states().get("sending") == 1)
        await session.kill()
        session.rig.delay_s = 0.0
        await session.start(model=Held(go=True))
        await session.read("ada", "echo: one")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        assert sum("echo: one" in each for each in session.rig.texts("ada")) == 1

    # Receiving

    @behaviour
    async def test_an_event_is_acknowledged_only_after_it_was_recorded(self, session: Session) -> None:
        await session.rig.say("ada", "one")
        refused = asyncio.Event()

        async def refuse(_: object) -> None:
            refused.set()
            raise OSError("the disk is full")

        with pytest.raises(PlatformDown):
            await session.rig.adapter().receive(refuse, lambda: None)
        assert refused.is_set()
        assert not session.rig.acknowledged
        await session.start(model=Held(go=True))
        await session.read("ada", "gateway pair")
        await until(lambda: not session.rig.events)

    @behaviour
    async def test_duplicates_and_the_second_event_of_a_mention_change_nothing(self, session: Session) -> None:
        session.rig.duplicates = True
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "/group on", group=True, mention=True)
        await session.say("ada", "one", group=True, mention=True)
        await session.say("ada", "two")
        await session.read("ada", "echo: two")
        await until(lambda: any("echo" in each for each in session.rig.group_texts()))
        await until(lambda: not session.rig.events)
        assert len(session.requests()) == 2

    @behaviour
    async def test_an_event_that_was_not_acknowledged_before_a_cut_has_one_turn(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "one")
        await session.rig.cut()
        await session.say("ada", "two")
        await session.read("ada", "echo: two")
        assert session.requests() == ["one", "two"]

    @behaviour
    async def test_messages_of_a_long_absence_have_one_turn_each_in_their_order(self, session: Session) -> None:
        rig = session.rig
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "/group on", group=True, mention=True)
        await until(lambda: len(session.rig.group_texts()) == 1)
        await session.stop()
        root = await rig.say("ada", "one", group=True, mention=True)
        for number in range(5):  # more than a page
            await session.say("ada", f"direct {number}")
        await rig.say("ada", "two", group=True, mention=True, thread=root["ts"])
        await rig.say("bob", "a stranger", group=True, mention=True)
        await rig.say("ada", "no mention", group=True)
        rig.events.clear()  # Slack has given them up
        await session.say("ada", "direct 5")  # and delivers this one, which is in the history, too
        rig.history_s = 0.2  # and allows few looks
        await session.start(model=Held(go=True))
        await session.read("ada", "echo: direct 5")
        await until(lambda: len(session.requests()) == 8, 30)
        direct = [each for each in session.requests() if each.startswith("direct")]
        assert direct == [f"direct {number}" for number in range(6)]
        assert sorted(each for each in session.requests() if each not in direct) == [
            "[owner, in a group] one",
            "[owner, in a group] two",
        ]
        await until(
            lambda: any(each.get("thread_ts") == root["ts"] for each in rig.channels[ROOM] if each["user"] == ME)
        )

    @behaviour
    async def test_a_history_that_cannot_be_read_hinders_no_new_message(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.stop()
        session.rig.blind = True
        with record_log() as lines:
            await session.start(model=Held(go=True))
        assert any("not searched for missed messages" in each and "missing_scope" in each for each in lines)
        await session.say("ada", "one")
        await session.read("ada", "echo: one")

    @behaviour
    async def test_a_connection_is_replaced_when_slack_asks_for_that(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        before = session.rig.connections
        await session.rig.refresh()
        await until(lambda: session.rig.connections == before + 1)
        await session.say("ada", "still there?")
        await session.read("ada", "echo: still there?")
        assert session.store.platforms()[0]["state"] == "connected"

    @behaviour
    async def test_edits_and_deletions_count_until_the_turn_begins(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        await session.say("ada", "tow")
        await session.read("ada", "Queued")
        await session.rig.edit("ada", "two")
        await session.say("ada", "three")
        await session.read("ada", "Queued; 2")
        await session.rig.delete("ada")
        await until(lambda: not session.rig.events)
        model.go.set()
        await session.read("ada", "echo: two")
        await session.say("ada", "four")
        await session.read("ada", "echo: four")
        assert session.requests() == ["one", "two", "four"]

    @behaviour
    async def test_a_mention_in_a_thread_is_answered_there(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "/group on", group=True, mention=True)
        await until(session.rig.group_texts)
        root = await session.rig.say("ada", "unrelated", group=True)
        await session.rig.say("ada", "why?", group=True, mention=True, thread=root["ts"])
        await until(lambda: any("why?" in each for each in session.rig.group_texts()))
        await until(lambda: set(session.store.count_states()) == {"sent"})
        assert session.rig.channels[ROOM][-1]["thread_ts"] == root["ts"]

    @behaviour
    async def test_a_button_is_for_the_person_who_asked(self, session: Session) -> None:
        await session.start(ask(WRITE), say("Done."), approve="ask")
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
    async def test_a_file_is_read_up_to_the_limit_from_slack_alone(self, session: Session) -> None:
        rig, adapter = session.rig, session.rig.adapter()
        rig.uploads = {"F1": {"content": b"x" * 100}, "F2": {"content": b"", "locked": True}}
        taken: asyncio.Queue[Incoming] = asyncio.Queue()
        receiving = asyncio.create_task(adapter.receive(taken.put, lambda: None))
        addresses = [
            f"{rig.url}/files/F1",
            f"{rig.url}/files/F2",
            "http://files.slack.com/x",
            "https://slack.com.evil/x",
        ]
        files = [{"name": "a.bin", "mimetype": "", "size": 100, "url_private": each} for each in addresses]
        await rig.say("ada", "", files=files, subtype="file_share")
        whole, locked, *foreign = (await taken.get()).files
        assert await whole.read(100) == b"x" * 100
        with pytest.raises(Rejected, match="more than 99 bytes"):
            await whole.read(99)
        with pytest.raises(Rejected, match="files:read"):
            await locked.read(100)
        for each in foreign:
            with pytest.raises(Rejected, match="not sent to"):
                await each.read(100)
        receiving.cancel()

    # Sending

    @behaviour
    async def test_text_of_a_model_notifies_nobody(self, session: Session) -> None:
        await session.start(
            say(HOSTILE), ask(("write_file", {"path": "@channel <!channel>", "content": HOSTILE})), approve="ask"
        )
        await session.pair("ada")
        await session.say("ada", "go")
        await session.read("ada", "@everyone")
        await session.say("ada", "write")
        await session.read("ada", "/approve")
        adapter = session.rig.adapter()
        receipt = await adapter.send("DADA", adapter.render("x"), key="k")
        await adapter.edit("DADA", receipt, adapter.render(HOSTILE))
        assert session.rig.channels["DADA"][-1]["plain"].count("@channel") == 1
        assert session.rig.pings == []
        assert all(each["unfurl_links"] is False for each in session.rig.channels["DADA"] if each["user"] == ME)

    @behaviour
    async def test_an_edit_replaces_text_and_buttons(self, session: Session) -> None:
        rig, adapter = session.rig, session.rig.adapter()
        rig.channels["DADA"] = []
        receipt = await adapter.send("DADA", "one", [Choice("Yes", "/yes")], key="k")
        await adapter.edit("DADA", receipt, "two @channel")
        assert [(each["text"], each["blocks"]) for each in rig.channels["DADA"]] == [("two @channel", [])]
        assert rig.pings == []
        with pytest.raises(Rejected, match="message_not_found"):
            await adapter.edit("DADA", "1.1", "three")

    @behaviour
    async def test_errors_say_what_is_certain(self, session: Session) -> None:
        rig, adapter = session.rig, session.rig.adapter(limit_s=0.3)
        rig.channels["DADA"] = []
        for fault, kind in (("flood", NotSent), ("auth", NotSent), ("rejected", Rejected), ("5xx", SendUnknown),
                            ("unknown", SendUnknown), ("lost", SendUnknown)):  # fmt: skip
            await rig.fail(fault)
            with pytest.raises(kind) as raised:
                await adapter.send("DADA", "hi", key="k")
            if fault == "flood":
                assert raised.value.retry_s == 1  # type: ignore[attr-defined]  # of NotSent
        with pytest.raises(Rejected, match="channel_not_found"):
            await adapter.send("DEVE", "hi", key="k")
        assert rig.calls.count("chat.postMessage") == 7  # the library repeats none of them
        rig.delay_s = 1.0
        with pytest.raises(SendUnknown):
            await adapter.send("DADA", "hi", key="k")

    @behaviour
    async def test_a_piece_is_found_by_its_key_among_many_pages(self, session: Session) -> None:
        rig, adapter = session.rig, session.rig.adapter()
        rig.channels["DADA"] = []
        first = await adapter.send("DADA", "first", key="k0")
        threaded = await adapter.send(f"DADA {first}", "threaded", key="t0")
        rig.channels["DADA"] += [rig.make("ada", f"word {number}") for number in range(7)]
        forged = {"event_type": "x", "event_payload": {"key": "k9"}}
        rig.channels["DADA"].append(rig.make("eve", "forged", metadata=forged))
        assert await adapter.find("DADA", "k0") == first
        assert await adapter.find("DADA", "k9") is None
        assert await adapter.find(f"DADA {first}", "t0") == threaded
        rig.channels["DADA"] += [rig.make("ada", f"word {number}") for number in range(20)]
        with pytest.raises(SendUnknown, match="not among the newest"):
            await adapter.find("DADA", "k9")
        rig.channels["DADA"].append({"user": ME, "ts": rig.stamp(), "files": [{}], "plain": ""})
        rig.channels["DADA"] = rig.channels["DADA"][-3:]
        with pytest.raises(SendUnknown, match="a file"):
            await adapter.find("DADA", "k9")
        rig.is_down = True
        with pytest.raises(SendUnknown, match="could not be looked up"):
            await adapter.find("DADA", "k0")

    @behaviour
    async def test_a_file_is_shared_by_the_last_request_alone(self, session: Session) -> None:
        rig, adapter = session.rig, session.rig.adapter()
        content = bytes(2 << 20)
        await adapter.send_file(f"{ROOM} 1.5", "a.txt", content, key="k")
        assert rig.shared == [(ROOM, "1.5", "a.txt", content)]
        await rig.fail("upload")
        with pytest.raises(NotSent):
            await adapter.send_file(ROOM, "b.txt", b"content", key="k")
        assert len(rig.shared) == 1
        await rig.fail("unknown")
        with pytest.raises(SendUnknown):
            await adapter.send_file(ROOM, "c.txt", b"content", key="k")

    @behaviour
    async def test_secrets_are_in_no_error_and_no_log(self, session: Session) -> None:
        rig, adapter = session.rig, session.rig.adapter(limit_s=1.0)
        rig.channels["DADA"] = []
        with record_log() as lines:
            receiving = asyncio.create_task(adapter.receive(_ignore, lambda: None))
            await until(lambda: rig.connections)
            receiving.cancel()
            await adapter.send("DADA", "hi", key="k")
            rig.url = "http://127.0.0.1:1"
            away = rig.adapter(limit_s=1.0)
            for attempt in (away.send("DADA", "hi", key="k"), away.receive(_ignore, lambda: None)):
                with pytest.raises((NotSent, PlatformDown)) as raised:
                    await attempt
                lines += [str(raised.value), repr(raised.value.__cause__)]
        text = "\n".join([*lines, repr(adapter)])
        assert not [each for each in (TOKEN, APP_TOKEN, SIGNING, "secret-ticket") if each in text]

    @behaviour
    async def test_a_wrong_token_is_one_line(self, session: Session) -> None:
        settings = SlackSettings(token="env:X", base_url=f"{session.rig.url}/api/")  # type: ignore[arg-type]  # pydantic parses it
        adapter = SlackAdapter("slack", settings, Secret("token", "xoxb-wrong"), Secret("app_token", "xapp-wrong"))
        with pytest.raises(PlatformDown, match=r"refuses the account \(invalid_auth\)") as raised:
            await adapter.receive(_ignore, lambda: None)
        assert "wrong" not in str(raised.value)

    # The server of these tests, as Slack's own framework sees it

    @behaviour
    async def test_bolt_agrees_with_the_server_of_these_tests(self, session: Session) -> None:
        rig = session.rig
        app: Any = AsyncApp(client=AsyncWebClient(TOKEN, f"{rig.url}/api/"), signing_secret=SIGNING)
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def hear(event: dict[str, Any], say: Any) -> None:
            await say(f"heard {event['text']}")
            await heard.put(event["text"])

        app.event("message")(hear)
        handler: Any = AsyncSocketModeHandler(app, APP_TOKEN)
        await handler.connect_async()
        await rig.say("ada", "one")
        assert await heard.get() == "one"
        await until(lambda: not rig.events)
        assert rig.texts("ada") == ["heard one"]
        await handler.close_async()
        event = {**rig.make("ada", "two"), "channel": "DADA", "channel_type": "im"}
        body = json.dumps({"type": "event_callback", "team_id": "T1", "event": event})
        headers: dict[str, Any] = {"content-type": "application/json", **sign(body.encode())}
        assert (await app.async_dispatch(AsyncBoltRequest(body=body, headers=headers))).status == 200
        assert await heard.get() == "two"
        headers |= {"X-Slack-Signature": "v0=00"}
        assert (await app.async_dispatch(AsyncBoltRequest(body=body, headers=headers))).status == 401


class TestSlackByRequests:
    @pytest.fixture
    def rig(self) -> Any:
        return lambda: SlackRig(http=True).run()

    @behaviour
    async def test_a_conversation_with_buttons_by_signed_requests(self, session: Session) -> None:
        session.rig.duplicates = True
        listener = Listener("127.0.0.1", 0)
        await session.start(ask(WRITE), say("Done."), approve="ask", listener=listener)
        session.rig.webhook = f"{listener.url}/slack"
        await session.pair("ada")
        await session.say("ada", "write")
        await session.read("ada", "/approve")
        await session.rig.press("ada", "Approve")
        await session.read("ada", "Done.")
        assert (session.folder / "out.txt").read_text() == "written"
        assert session.requests() == ["write"]
        assert set(session.rig.statuses) == {200}

    @behaviour
    async def test_a_request_counts_only_with_a_fresh_signature(self, session: Session) -> None:
        listener = Listener("127.0.0.1", 0)
        await session.start(model=Held(go=True), listener=listener)
        url, rig = f"{listener.url}/slack", session.rig
        body = json.dumps({"type": "url_verification", "challenge": "c4711"}).encode()
        bad = {"X-Slack-Request-Timestamp": "1e9", "X-Slack-Signature": "v0=é"}
        now = time.time()
        async with aiohttp.ClientSession() as client:
            for headers, status in (
                (sign(body), 200), (sign(body, key="other"), 401), ({}, 401), (bad, 401),
                (sign(body, at=now - 301), 401), (sign(body, at=now + 360), 401), (sign(b"other"), 401),
                (sign(b"\xff"), 401), (bad | {"X-Slack-Request-Timestamp": str(int(now))}, 401),
            ):  # fmt: skip
                async with client.post(
                    url, data=body, headers={"Content-Type": "application/json"} | headers
                ) as answer:
                    assert answer.status == status
                    assert status != 200 or await answer.json() == {"challenge": "c4711"}
            broken = b'{"type": '
            async with client.post(url, data=broken, headers=sign(broken)) as answer:
                assert answer.status == 400
            long = b" " * (5 << 20)
            try:
                async with client.post(url, data=io.BytesIO(long), headers=sign(long)) as answer:
                    assert answer.status == 413
            except aiohttp.ClientError:
                pass  # the listener ended the connection while the body came
            await session.stop()
            rig.webhook = url
            assert await rig.request(client, {"type": "url_verification"}) == 0
        adapter = rig.adapter()
        payload: dict[str, Any] = {"type": "event_callback", "event": {}}
        async with aiohttp.ClientSession() as client:
            rig.webhook = rig.own_webhook
            assert await rig.request(client, payload) == 503
        await adapter.close()

    @behaviour
    async def test_an_account_that_fails_its_test_is_down_and_comes_back(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.rig.cut()
        await until(lambda: session.store.platforms()[0]["state"] == "down")
        await until(lambda: session.store.platforms()[0]["state"] == "connected", 30)
        await session.say("ada", "hi")
        await session.read("ada", "echo: hi")


async def _ignore(_: object) -> None:
    """Take a message."""


async def _no_file(*_: object) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("written", "text", "is_mention"),
    [
        (f"<@{ME}> hi", "hi", True), (f"hi <@{ME}|agent>", "hi @agent", True), ("<@UBOB> hi", "@UBOB hi", False),
        ("&lt;!channel&gt; a &amp; b", "<!channel> a & b", False), ("<!here> now", "@here now", False),
        ("<https://a.b/c|a.b/c> <https://a.b|x> <#C1|room>", "a.b/c x (https://a.b) #room", False),
        ("!new", "/new", False), ("!important", "/important", False), ("! no", "! no", False),
    ],
)  # fmt: skip
def test_text_is_read_as_people_wrote_it(written: str, text: str, is_mention: bool) -> None:
    assert read_text(written, ME) == (text, is_mention)


MESSAGE = {"type": "message", "channel": "D1", "user": "U1", "text": "a", "ts": "1.1"}


@pytest.mark.parametrize(
    "event",
    [
        {**MESSAGE, "bot_id": "B1"}, {**MESSAGE, "user": ME}, {**MESSAGE, "subtype": "channel_join"},
        {**MESSAGE, "subtype": "bot_message"}, {**MESSAGE, "ts": 5}, {**MESSAGE, "user": None}, [], None, "x",
        {"type": "reaction_added", "user": "U1"}, {**MESSAGE, "files": "x"},
        {**MESSAGE, "subtype": "message_changed", "message": MESSAGE, "previous_message": MESSAGE},
        {**MESSAGE, "subtype": "message_changed"}, {**MESSAGE, "subtype": "message_deleted"},
    ],
    ids=str,
)  # fmt: skip
def test_events_that_are_no_words_of_a_person_are_left_out(event: Any) -> None:
    assert parse_payload({"type": "event_callback", "event": event}, ME, _no_file) is None


def test_the_edit_of_a_root_of_a_thread_keeps_its_chat() -> None:
    root = {**MESSAGE, "channel": "C1", "thread_ts": "1.1"}
    changed = {"type": "message", "subtype": "message_changed", "channel": "C1", "previous_message": root}
    incoming = parse_payload({"event": {**changed, "message": {**root, "text": "b"}}}, ME, _no_file)
    assert incoming is not None
    assert (incoming.chat, incoming.message, incoming.text, incoming.is_edit) == ("C1", "1.1", "b", True)
    assert parse_payload({"event": {**root, "thread_ts": "1.0"}}, ME, _no_file).chat == "C1 1.0"  # type: ignore[union-attr]  # it is one


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"token": "env:A"}, "app_token: it is missing"), ({"token": "env:A", "webhook": True}, "signing_secret"),
        ({"token": "env:B", "app_token": "env:B"}, "another form than xoxb-"),
        ({"token": "env:A", "app_token": "env:A"}, "another form than xapp-"), ({"token": TOKEN}, "token"),
    ],
)  # fmt: skip
def test_a_wrong_table_is_refused_without_a_secret(
    table: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A", TOKEN)
    monkeypatch.setenv("B", "secretsecret")
    with pytest.raises(ConfigError, match=words) as raised:
        create("slack", table)
    assert not any(each in str(raised.value) for each in (TOKEN, "secretsecret"))


def test_the_name_of_an_account_can_be_a_path() -> None:
    with pytest.raises(ConfigError, match="other characters"):
        create("my slack/../x", {"token": "env:A"})
