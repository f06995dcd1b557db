"""The behaviours of any platform with a server of signal-cli-rest-api's routes, and those of Signal alone."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from hermes_exec.config.secrets import Secret
from hermes_exec.errors import ConfigError
from hermes_exec_agent.frontends.gateway.adapter import NotSent, PlatformDown, Rejected, SendUnknown
from hermes_exec_agent.frontends.gateway.signal import SignalAdapter, SignalSettings, create
from hermes_exec_agent.frontends.gateway.signal_messages import to_group
from hermes_exec_agent.testing import FileConformance, GatewayConformance, Held, Session, behaviour
from tests.rigs.bounded import until
from tests.rigs.signal_api import GROUP, NUMBER, SignalRig, read_styled, run_signal

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec_agent.frontends.gateway.adapter import Incoming

KEY = "0123456789abcdef01234567"
TOKEN = "proxy-token-4711"


@asynccontextmanager
async def connect(rig: SignalRig, **settings: Any) -> AsyncGenerator[tuple[SignalAdapter, list[Incoming]]]:
    """Connect an adapter without a gateway; the list has what it accepted."""
    adapter = rig.adapter(**settings)
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


class TestSignal(GatewayConformance, FileConformance):
    @pytest.fixture
    def rig(self) -> Any:
        @asynccontextmanager
        async def start() -> AsyncGenerator[SignalRig]:
            async with run_signal() as rig:
                yield rig

        return start

    @behaviour
    async def test_edits_of_any_version_change_a_message_and_a_deletion_drops_it(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        await session.say("ada", "tow")
        await session.read("ada", "Queued")
        await session.rig.edit("ada", "tw")
        await session.rig.edit("ada", "twoo")  # names the version before
        await session.rig.edit("ada", "two", from_first=True)
        await session.say("ada", "a secret")
        await session.read("ada", "Queued", 2)
        await session.rig.edit("ada", "the secret")
        await session.rig.delete("ada")
        await session.say("ada", "three")
        await session.read("ada", "Queued", 3)
        model.go.set()
        await session.read("ada", "echo: three")
        assert session.requests() == ["one", "two", "three"]

    @behaviour
    async def test_only_the_author_of_a_message_edits_it(self, session: Session) -> None:
        rig = session.rig
        async with connect(rig) as (_, accepted):
            await rig.say("ada", "mine", group=True)
            rig._last["eve"] = rig._last["ada"]
            await rig.edit("eve", "hers")
            await until(lambda: len(accepted) == 2)
        assert accepted[0].message != accepted[1].message

    @behaviour
    async def test_frames_twice_out_of_order_and_from_wrong_clocks_have_one_turn_each(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        frames: list[str] = []
        for ahead_ms, word in ((10**10, "future"), (-(10**12), "past"), (0, "present")):
            session.rig.now = ahead_ms
            data = {"timestamp": session.rig.stamp(), "message": word}
            envelope = {"sourceUuid": session.rig.id("ada"), "dataMessage": data}
            frames.append(json.dumps({"envelope": envelope, "account": NUMBER}))
        for frame in (frames[0], frames[0], frames[2], frames[1], frames[2], frames[0]):
            await session.rig.deliver(frame)
        for word in ("future", "past", "present"):
            await session.read("ada", f"echo: {word}")
        assert session.requests() == ["future", "present", "past"]

    @behaviour
    async def test_only_words_of_persons_are_messages(self, session: Session) -> None:
        rig = session.rig
        async with connect(rig) as (_, accepted):
            for frame in ("no json", "[]", '{"envelope": {"sourceUuid": 5}}', '{"error": "no connection"}', "{}"):
                await rig.deliver(frame)
            stamp = rig.stamp()
            await rig.post("ada", {"receiptMessage": {"when": stamp}})
            await rig.post("ada", {"typingMessage": {"action": "STARTED"}})
            await rig.post("ada", {"syncMessage": {"sentMessage": {"timestamp": stamp, "message": "own"}}})
            await rig.post("ada", {"dataMessage": {"timestamp": stamp, "message": None, "reaction": {"emoji": "x"}}})
            await rig.post("ada", {"dataMessage": {"timestamp": stamp, "message": "x"}, "sourceUuid": "../../etc"})
            quote = {"id": 1, "authorNumber": NUMBER, "text": "answer"}
            group = {"groupId": GROUP, "type": "DELIVER"}
            await rig.post(
                "ada", {"dataMessage": {"timestamp": stamp, "message": "why?", "quote": quote, "groupInfo": group}}
            )
            await until(lambda: accepted)
        (found,) = accepted
        assert (found.text, found.is_mention, found.is_group, found.chat) == ("why?", True, True, to_group(GROUP))
        assert found.sender == rig.id("ada")

    @behaviour
    async def test_outcomes(self, session: Session) -> None:
        rig = session.rig
        adapter = rig.adapter(limit_s=0.5)
        chat = rig.id("ada")
        await rig.fail("flood")
        with pytest.raises(NotSent) as not_sent:
            await adapter.send(chat, "one", key=KEY)
        assert not_sent.value.retry_s == 1.0
        await rig.fail("rejected")
        with pytest.raises(Rejected, match="Invalid identifier"):
            await adapter.send(chat, "two", key=KEY)
        for fault in ("failed", "5xx", "garbage", "late", "unknown"):
            await rig.fail(fault)
            with pytest.raises(SendUnknown):
                await adapter.send(chat, f"after {fault}", key=KEY)
        with pytest.raises(Rejected):
            await adapter.send("a b", "three", key=KEY)
        await adapter.close()
        closed = rig.adapter(url="http://127.0.0.1:1")
        with pytest.raises(NotSent, match="cannot be reached"):
            await closed.send(chat, "four", key=KEY)
        await closed.close()
        assert rig.texts("ada") == ["after 5xx", "after garbage", "after late", "after unknown"]

    @behaviour
    async def test_the_name_of_a_file_is_no_path(self, session: Session) -> None:
        """The daemon puts it into a path."""
        adapter = session.rig.adapter()
        await adapter.send_file(session.rig.id("ada"), "../../etc/x;base64,y.txt", b"content", key=KEY)
        await adapter.close()
        assert session.rig.files("ada") == [("_.._etc_x_base64_y.txt", b"content")]

    @behaviour
    async def test_a_file_that_does_not_come_does_not_lose_its_message(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.rig.attach("ada", b"gone", "look")
        session.rig.contents.clear()
        await session.rig.attach("ada", b"here", "and here")
        await session.read("ada", "echo: look")
        await session.read("ada", "echo: and here")
        assert "was not read: signal-cli did not deliver it" in session.requests()[0]

    @behaviour
    async def test_styles_are_what_the_markdown_says(self, session: Session) -> None:
        adapter = session.rig.adapter()
        shown, styles = read_styled(adapter.render("**bold *both*** ~~gone~~ `a*b` x\\*y ||z||"))
        assert shown.replace("\u2060", "") == "bold both gone a*b x*y ||z||"
        assert [(mark, text.replace("\u2060", "")) for mark, text in styles] == [
            ("*", "both"), ("**", "bold both"), ("~", "gone"), ("`", "a*b"),
        ]  # fmt: skip

    @behaviour
    async def test_another_mode_of_the_daemon_is_one_line(self, session: Session) -> None:
        settings = SignalSettings(number="+491111111", url=session.rig.url)
        adapter = SignalAdapter(settings, None)
        with pytest.raises(PlatformDown, match="400; it has to run in its mode json-rpc"):
            await adapter.receive(_ignore, lambda: None)
        await adapter.close()

    @behaviour
    async def test_a_token_reaches_the_proxy_and_nothing_else(self, session: Session) -> None:
        records: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]  # of this handler alone
        root = logging.getLogger()
        level = root.level
        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        adapter = SignalAdapter(SignalSettings(number=NUMBER, url=session.rig.url), Secret("token", TOKEN))
        ready = asyncio.Event()
        try:
            task = asyncio.create_task(adapter.receive(_ignore, ready.set))
            await ready.wait()
            await session.rig.fail("unknown")
            with pytest.raises(SendUnknown) as raised:
                await adapter.send(session.rig.id("ada"), "hi", key=KEY)
            with pytest.raises(PlatformDown) as down:
                await task
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
            await adapter.close()
        assert session.rig.tokens == [f"Bearer {TOKEN}"]
        assert TOKEN not in "".join([*records, str(raised.value), str(down.value), repr(adapter)])


async def _ignore(_: object) -> None:
    """Take a message."""


@pytest.mark.parametrize(
    "table", [{}, {"number": "0170"}, {"number": NUMBER, "url": "ftp://h"}, {"number": NUMBER, "token": TOKEN}]
)
def test_a_wrong_table_is_refused_without_its_secrets(table: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as raised:
        create("signal", table)
    assert TOKEN not in str(raised.value)
