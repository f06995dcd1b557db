"""The behaviours of any platform with a server of WhatsApp's Cloud API, and those of WhatsApp alone."""

from __future__ import annotations

import asyncio
import io
import json
import time
from typing import TYPE_CHECKING, Any, cast

import aiohttp
import pytest
from pywa.types.callback import Button
from pywa.types.templates import BodyText, TemplateLanguage
from pywa_async.client import WhatsApp

from hermes_exec.config.secrets import Secret
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.adapter import Choice, NotSent, PlatformDown, Rejected, SendUnknown
from hermes_exec_agent.frontends.gateway.listener import Listener
from hermes_exec_agent.frontends.gateway.whatsapp import WhatsAppAdapter, create
from hermes_exec_agent.frontends.gateway.whatsapp_messages import parse_webhook, translate_answer
from hermes_exec_agent.frontends.gateway.whatsapp_sender import WhatsAppSettings
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.testing import FileConformance, GatewayConformance, Held, Session, behaviour
from hermes_exec_agent.testing.gateway_session import CODE
from tests.rigs.bounded import until
from tests.rigs.gateway import Hub
from tests.rigs.log_lines import record_log
from tests.rigs.whatsapp_api import APP_SECRET, GROUP, PHONE, TOKEN, VERIFY, WhatsAppRig, sign

if TYPE_CHECKING:
    from pywa_async.types.message import Message

    from hermes_exec_agent.frontends.gateway.adapter import Incoming

WRITE = ("write_file", {"path": "out.txt", "content": "written"})


class TestWhatsApp(GatewayConformance, FileConformance):
    @pytest.fixture
    def rig(self) -> Any:
        return lambda: WhatsAppRig().run()

    # Receiving

    @behaviour
    async def test_a_conversation_with_buttons_over_the_listener(self, session: Session) -> None:
        session.rig.duplicates = True
        listener = Listener("127.0.0.1", 0)
        await session.start(ask(WRITE), say("Done."), approve="ask", listener=listener)
        session.rig.webhook = f"{listener.url}/whatsapp"
        await session.pair("ada")
        await session.say("ada", "write")
        await session.read("ada", "/approve")
        await session.rig.press("ada", "Approve")
        await session.read("ada", "Done.")
        assert (session.folder / "out.txt").read_text() == "written"
        assert session.requests() == ["write"]
        assert set(session.rig.statuses) == {200}

    @behaviour
    async def test_a_webhook_counts_only_with_its_signature(self, session: Session) -> None:
        listener = Listener("127.0.0.1", 0)
        await session.start(model=Held(go=True), listener=listener)
        url, rig = f"{listener.url}/whatsapp", session.rig
        payload: dict[str, object] = {"object": "whatsapp_business_account", "entry": []}
        body = json.dumps(payload).encode()
        async with aiohttp.ClientSession() as client:
            for signature, status in (
                (sign(body), 200), (sign(body, "other"), 401), (sign(b"other"), 401), ("", 401), ("sha256=é", 401),
                (sign(body).upper(), 401), (sign(body).removeprefix("sha256="), 401),
            ):  # fmt: skip
                async with client.post(url, data=body, headers={"X-Hub-Signature-256": signature}) as answer:
                    assert answer.status == status
            for broken in (b'{"object": ', b"[]", b"\xff", b"[" * 90_000):
                async with client.post(url, data=broken, headers={"X-Hub-Signature-256": sign(broken)}) as answer:
                    assert answer.status == 400
            long = b" " * (5 << 20)
            try:
                headers = {"X-Hub-Signature-256": sign(long)}
                async with client.post(url, data=io.BytesIO(long), headers=headers) as answer:
                    assert answer.status == 413
            except aiohttp.ClientError:
                pass  # the listener ended the connection while the body came
            await session.stop()
            rig.webhook = rig.own_webhook
            assert await rig.request(client, payload) == 503

    @behaviour
    async def test_the_address_is_verified_with_the_configured_word(self, session: Session) -> None:
        session.rig.adapter()
        async with aiohttp.ClientSession() as client:
            for word, status in ((VERIFY, 200), ("wrong", 403), ("é", 403), (None, 403)):
                query = {
                    "hub.mode": "subscribe",
                    "hub.challenge": "c4711",
                    **({"hub.verify_token": word} if word else {}),
                }
                async with client.get(session.rig.own_webhook, params=query) as answer:
                    assert answer.status == status
                    assert (await answer.text() == "c4711") == (status == 200)

    @behaviour
    async def test_a_webhook_is_answered_only_after_its_messages_were_recorded(self, session: Session) -> None:
        rig = session.rig
        adapter, refused = rig.adapter(), asyncio.Event()

        async def refuse(_: object) -> None:
            refused.set()
            raise NotSent("the disk is full", retry_s=1)

        receiving = asyncio.create_task(adapter.receive(refuse, lambda: None))
        await rig.say("ada", "one")
        await refused.wait()
        assert 200 not in rig.statuses
        receiving.cancel()
        await session.start(model=Held(go=True))
        await session.read("ada", "gateway pair")
        await until(lambda: not rig.updates)

    @behaviour
    async def test_batches_duplicates_and_reordered_messages_have_one_turn_each(self, session: Session) -> None:
        rig = session.rig
        await session.start(model=Held(go=True))
        await session.pair("ada")
        rig.duplicates = True
        texts = [rig.make("ada", type="text", text={"body": word}) for word in ("one", "two", "three")]
        rig.post_messages("ada", texts[1])
        rig.post_messages("ada", texts[0], {"id": 5}, texts[1], {**texts[2], "text": "wrong"}, texts[2])
        await session.read("ada", "echo: three")
        assert session.requests() == ["two", "one", "three"]

    @behaviour
    async def test_edits_and_deletions_count_until_the_turn_begins(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        second = await session.rig.say("ada", "tow")
        await session.read("ada", "Queued")
        await session.rig.edit("ada", "two", second["id"])
        third = await session.rig.say("ada", "three")
        await session.read("ada", "Queued; 2")
        await session.rig.delete("ada", third["id"])
        await until(lambda: not session.rig.updates)
        model.go.set()
        await session.read("ada", "echo: two")
        await session.say("ada", "four")
        await session.read("ada", "echo: four")
        assert session.requests() == ["one", "two", "four"]

    @behaviour
    async def test_forwarded_texts_are_no_commands(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.rig.say("ada", "/model other", context={"forwarded": True})
        await session.read("ada", "/model other")
        assert "not the person's own words" in session.requests()[0]

    @behaviour
    async def test_a_file_is_read_up_to_the_limit_from_whatsapp_alone(self, session: Session) -> None:
        rig, adapter = session.rig, session.rig.adapter()
        rig.media = {"1000": {"content": b"x" * 100}, "2000": {"content": b"", "url": "https://evil.example/x"}}
        taken: asyncio.Queue[Incoming] = asyncio.Queue()
        receiving = asyncio.create_task(adapter.receive(taken.put, lambda: None))
        ids = ("1000", "2000", "3000")
        media = [{"id": each, "mime_type": "audio/ogg; codecs=opus", "voice": True} for each in ids]
        rig.post_messages("ada", *[rig.make("ada", type="audio", audio=each) for each in media])
        files = [(await taken.get()).files[0] for _ in ids]
        assert files[0].kind == "audio/ogg"
        assert await files[0].read(100) == b"x" * 100
        with pytest.raises(Rejected, match="more than 99 bytes"):
            await files[0].read(99)
        with pytest.raises(Rejected, match="not sent to"):
            await files[1].read(100)
        with pytest.raises(Rejected, match="refused"):
            await files[2].read(100)
        receiving.cancel()

    # Sending

    @behaviour
    async def test_buttons_that_the_platform_does_not_take_are_words(self, session: Session) -> None:
        adapter, rig = session.rig.adapter(), session.rig
        yes = Choice("Yes", "/yes")
        for text, choices in (("x" * 1025, [yes]), ("x", [yes] * 4), ("x", [Choice("L" * 21, "/l")])):
            await adapter.send("165", text, choices, key="k")
            assert rig.sent[-1]["type"] == "text"
        await adapter.send("165", "x", [yes] * 3, key="k")
        assert rig.sent[-1]["type"] == "interactive"

    @behaviour
    async def test_after_24_hours_a_template_is_sent_or_one_clear_line_says_why_not(self, session: Session) -> None:
        rig, text = session.rig, "first\n\nsecond    line\t" + "word " * 400
        rig.closed = {"165"}
        with pytest.raises(Rejected, match="has not written for 24 hours"):
            await rig.adapter().send("165", text, key="k")
        assert not rig.sent
        await rig.adapter(template="reminder").send("165", text, [Choice("Yes", "/yes")], key="k")
        (sent,) = rig.sent
        assert (sent["type"], sent["template"]["name"]) == ("template", "reminder")
        assert sent["plain"].startswith("first second line word")
        assert sent["plain"].endswith("(cut here; write to me for the rest)")

    @behaviour
    async def test_a_refusal_that_comes_later_sends_the_template_once_or_is_logged(self, session: Session) -> None:
        rig = session.rig
        rig.closed, rig.refuses_late, rig.duplicates = {"165"}, True, True
        for template, count in (("reminder", 2), ("", 1)):
            rig.sent.clear()
            adapter = rig.adapter(template=template)
            receiving = asyncio.create_task(adapter.receive(_ignore, lambda: None))
            with record_log() as lines:
                await adapter.send("165", "hi", key="k")
                await until(lambda: rig.sent and not rig.updates)
                await until(lambda: any("24 hours" in each for each in lines) or len(rig.sent) == 2)
            assert [each["plain"] for each in rig.sent] == ["hi"] * count
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    @behaviour
    async def test_a_refusal_that_comes_later_is_failed_in_the_outbox_and_reported_elsewhere_once(
        self, session: Session
    ) -> None:
        rig, hub = session.rig, Hub()
        session.rigs.append(hub)
        await session.start(model=Held(go=True))
        await hub.say("ada", "hello")
        await until(lambda: hub.texts("ada"))
        session.store.pair(CODE.search(hub.texts("ada")[0])[1], "owner", None)  # type: ignore[index]  # the text has one
        await hub.say("ada", "from the hub")
        await session.pair("ada")
        await session.say("ada", "from here")
        await session.read("ada", "echo: from here")
        await until(lambda: set(session.store.count_states()) == {"sent"})
        rig.closed, rig.refuses_late, rig.duplicates = {rig.user("ada")}, True, True
        session.store.put("owner", session.store.person("owner").address, "your report")  # type: ignore[union-attr]  # just paired
        await until(lambda: session.store.count_states().get("failed") == 1)
        (failed,) = session.store.outbox("failed")
        assert (failed["text"], "not written for 24 hours" in failed["error"]) == ("your report", True)
        await until(lambda: any("your report" in each for each in hub.texts("ada")))
        await until(lambda: not rig.updates and set(session.store.count_states()) == {"sent", "failed"})
        assert sum("was not delivered" in each for each in hub.texts("ada")) == 1
        assert sum("your report" in each for each in rig.texts("ada")) == 1

    @behaviour
    async def test_errors_say_what_is_certain(self, session: Session) -> None:
        rig, adapter = session.rig, session.rig.adapter(limit_s=0.3)
        for fault, kind in (("flood", NotSent), ("auth", NotSent), ("rejected", Rejected), ("proxy", Rejected),
                            ("5xx", SendUnknown), ("unknown", SendUnknown), ("lost", SendUnknown)):  # fmt: skip
            await rig.fail(fault)
            with pytest.raises(kind) as raised:
                await adapter.send("165", "hi", key="k")
            if fault == "flood":
                assert raised.value.retry_s == 1  # type: ignore[attr-defined]  # of NotSent
        assert len([each for each in rig.calls if each.endswith("/messages")]) == 7
        rig.delay_s = 1.0
        with pytest.raises(SendUnknown):
            await adapter.send("165", "hi", key="k")
        rig.url = "http://127.0.0.1:1"
        with pytest.raises(NotSent, match="cannot be reached"):
            await rig.adapter().send("165", "hi", key="k")

    @behaviour
    async def test_a_file_is_sent_by_the_last_request_alone(self, session: Session) -> None:
        rig, adapter = session.rig, session.rig.adapter()
        content = bytes(2 << 20)
        for name, kind in (("a.png", "image"), ("b.txt", "document"), ("c.py", "document"), ("d.ogg", "audio")):
            await adapter.send_file("165", name, content, key="k")
            assert (rig.sent[-1]["type"], rig.media[rig.sent[-1][kind]["id"]]["content"]) == (kind, content)
        await rig.fail("upload")
        with pytest.raises(NotSent):
            await adapter.send_file("165", "a.png", content, key="k")
        for name, unfit in (("a.bin", b"\xff"), ("a.png", bytes(6 << 20))):
            with pytest.raises(Rejected, match="WhatsApp takes"):
                await adapter.send_file("165", name, unfit, key="k")
        assert len(rig.sent) == 4
        await rig.fail("unknown")
        with pytest.raises(SendUnknown):
            await adapter.send_file("165", "a.png", content, key="k")

    @behaviour
    async def test_secrets_are_in_no_error_and_no_log(self, session: Session) -> None:
        rig, adapter = session.rig, session.rig.adapter(limit_s=1.0)
        with record_log() as lines:
            await adapter.send("165", "hi", key="k")
            rig.url = "http://127.0.0.1:1"
            away = rig.adapter(limit_s=1.0)
            for attempt in (away.send("165", "hi", key="k"), away.receive(_ignore, lambda: None)):
                with pytest.raises((NotSent, PlatformDown)) as raised:
                    await attempt
                lines += [str(raised.value), repr(raised.value.__cause__)]
        text = "\n".join([*lines, repr(adapter)])
        assert not [each for each in (TOKEN, APP_SECRET, VERIFY) if each in text]

    @behaviour
    async def test_a_wrong_token_is_one_line(self, session: Session) -> None:
        table: dict[str, Any] = dict.fromkeys(("token", "app_secret", "verify_token"), "env:X")
        settings = WhatsAppSettings(phone_number_id=PHONE, base_url=session.rig.url, **table)
        secrets = {name: Secret(name, "wrong") for name in table}
        with pytest.raises(PlatformDown, match=r"refuses the account \(status 401, error 190\)") as raised:
            await WhatsAppAdapter("whatsapp", settings, secrets).receive(_ignore, lambda: None)
        assert "wrong" not in str(raised.value)

    # The server of these tests, as another client sees it

    @behaviour
    async def test_pywa_agrees_with_the_server_of_these_tests(self, session: Session) -> None:
        rig, body_of = session.rig, cast("Any", BodyText).params
        client: Any = WhatsApp(phone_id=PHONE, token=TOKEN, app_secret=APP_SECRET, verify_token=VERIFY, server=None)
        client.api._session.base_url = f"{rig.url}/"  # it has no option for another server
        await client.send_message("165", "hi")
        await client.send_message("165", "choose", buttons=[Button("Yes", "/yes")])
        await client.send_template("165", "reminder", TemplateLanguage.ENGLISH_US, [body_of("hi")])
        adapter = rig.adapter(template="reminder")
        theirs: list[dict[str, Any]] = list(rig.sent)
        rig.sent.clear()
        await adapter.send("165", "hi", key="k")
        await adapter.send("165", "choose", [Choice("Yes", "/yes")], key="k")
        rig.closed = {"165"}
        await adapter.send("165", "hi", key="k")
        assert [_strip(each) for each in cast("list[dict[str, Any]]", rig.sent)] == [_strip(each) for each in theirs]
        message = rig.make("ada", type="text", text={"body": "hello"})
        contact = {"profile": {"name": "ada"}, "wa_id": rig.number("ada"), "user_id": rig.user("ada")}
        rig.deliverer.cancel()
        rig.post({"contacts": [contact], "messages": [message]})
        body = json.dumps(rig.wrap(rig.updates[0])).encode()
        assert await client.webhook_update_validator(body, sign(body)) is None
        assert await client.webhook_update_validator(body, sign(b"other")) is not None
        heard: asyncio.Queue[Message] = asyncio.Queue()

        async def hear(_: WhatsApp, found: Message) -> None:
            await heard.put(found)

        client.on_message(hear)
        await client.webhook_update_handler(body)
        found = await heard.get()
        updates = parse_webhook(body, PHONE, _no_file)
        assert updates is not None
        (ours,) = updates.messages
        assert (ours.message, ours.text, ours.sender) == (found.id, found.text, found.from_user.bsuid)


def _strip(message: dict[str, Any]) -> dict[str, Any]:
    """Return what a client sent; pywa writes the type of a component as it is in the definition of a template."""
    fields = {name: value for name, value in message.items() if name not in {"id", "plain"}}
    return json.loads(json.dumps(fields).replace('"BODY"', '"body"'))  # type: ignore[no-any-return]  # a table


async def _ignore(_: object) -> None:
    """Take a message."""


async def _no_file(*_: object) -> bytes:
    return b""


def make_webhook(message: dict[str, Any], phone: str = PHONE, **value: Any) -> bytes:
    about = {"from": "165", "id": "wamid.1", "timestamp": str(int(time.time())), "type": "text", "text": {"body": "hi"}}
    metadata = {"display_phone_number": "+1 555-0100", "phone_number_id": phone}
    change = {"field": "messages", "value": {"metadata": metadata, "messages": [{**about, **message}], **value}}
    return json.dumps({"object": "whatsapp_business_account", "entry": [{"changes": [change]}]}).encode()


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ({}, ("165", "165", "hi", False)),
        ({"from_user_id": "US.1"}, ("US.1", "US.1", "hi", False)),
        ({"group_id": GROUP, "text": {"body": "@15550100 hi"}}, (GROUP, "165", "hi", True)),
        ({"group_id": GROUP, "context": {"from": "15550100"}}, (GROUP, "165", "hi", True)),
        ({"group_id": GROUP, "context": {"from": "166"}}, (GROUP, "165", "hi", False)),
        ({"type": "button", "text": None, "button": {"payload": "/yes", "text": "Yes"}}, ("165", "165", "/yes", False)),
        ({"type": "image", "text": None, "image": {"id": "1", "caption": "look"}}, ("165", "165", "look", False)),
    ],
)  # fmt: skip
def test_messages_of_all_kinds_are_read(message: dict[str, Any], shown: tuple[str, str, str, bool]) -> None:
    updates = parse_webhook(make_webhook(message), PHONE, _no_file)
    assert updates is not None
    (found,) = updates.messages
    assert (found.chat, found.sender, found.text, found.is_mention) == shown


@pytest.mark.parametrize(
    "body",
    [
        make_webhook({"timestamp": str(int(time.time()) - 15 * 86400)}), make_webhook({}, phone="999"),
        make_webhook({"type": "reaction", "reaction": {"emoji": "x"}}), make_webhook({"from": None}),
        make_webhook({"audio": {"id": "../other"}}), make_webhook({"timestamp": "soon"}),
        b'{"object": "page", "entry": []}',
        b'{"object": "x", "entry": [{"changes": [{"field": "messages", "value": {}}]}]}',
    ],
    ids=range(8),
)  # fmt: skip
def test_what_is_no_message_for_the_account_is_left_out(body: bytes) -> None:
    updates = parse_webhook(body, PHONE, _no_file)
    assert updates is not None
    assert not updates.messages


@pytest.mark.parametrize(
    ("status", "data", "kind"),
    [
        (429, None, NotSent), (302, None, NotSent), (502, None, SendUnknown), (404, [], Rejected),
        (400, {"error": {"code": 131056}}, NotSent), (400, {"error": {"code": 131026}}, Rejected),
        (400, {"error": {"code": 131000}}, SendUnknown), (400, {"error": {"code": {}}}, Rejected),
        (400, {"error": "x"}, Rejected), (403, {"error": {"code": 10}}, NotSent),
    ],
)  # fmt: skip
def test_answers_say_what_is_certain(status: int, data: object, kind: type[Exception]) -> None:
    assert type(translate_answer(status, data, "")) is kind


def test_a_secret_in_the_file_is_refused_without_its_text() -> None:
    with pytest.raises(ConfigError) as raised:
        create("whatsapp", {"token": TOKEN, "app_secret": APP_SECRET, "verify_token": VERIFY, "phone_number_id": PHONE})
    assert not any(each in str(raised.value) for each in (TOKEN, APP_SECRET, VERIFY))
