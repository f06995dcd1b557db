"""Discord's adapter in a model of Discord that another project wrote: its payloads, permissions and interactions."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from simcord.env import Env

from hermes_exec.config.secrets import Secret
from hermes_exec_agent.frontends.gateway import discord_client
from hermes_exec_agent.frontends.gateway.discord import DiscordAdapter, DiscordSettings
from hermes_exec_agent.models import ask, say
from hermes_exec_agent.testing import Held, Session, behaviour
from tests.rigs.bounded import until
from tests.rigs.discord_api import TOKEN, Markup

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class SimcordRig:
    """A guild with a channel, and persons in it. The library's client is attached to the model when it starts."""

    redelivers = True

    def __init__(self) -> None:
        self.env: Env | None = None
        self.attached = asyncio.Event()
        self.channel: Any = None
        self.persons: dict[str, Any] = {}
        self.users: dict[str, Any] = {}

    def adapter(self) -> DiscordAdapter:
        return DiscordAdapter(DiscordSettings(token="env:X", interval_s=0.0), Secret("token", TOKEN))  # type: ignore[arg-type]  # pydantic parses it

    async def start(self, client: Any) -> None:
        """Take the place of logging in and connecting."""
        self.attached.clear()
        if self.env is None:
            self.env = Env(client)
            self.channel = self.env.create_guild().create_text_channel("room")
            await self.env.start()
        else:
            await self.env.restart_bot(client)
        self.attached.set()
        await asyncio.Event().wait()

    def person(self, name: str) -> Any:
        if name not in self.persons:
            assert self.env is not None
            self.users[name] = self.env.create_user(name)
            self.persons[name] = self.env.guild.add_member(self.users[name])
        return self.persons[name]

    async def say(self, name: str, text: str, *, group: bool = False, mention: bool = False) -> None:
        await self.attached.wait()
        assert self.env is not None
        assert self.env.bot.user is not None
        content = f"{self.env.bot.user.mention} {text}" if mention else text
        if group:
            await self.person(name).send(self.channel, content)
        else:
            await self.person(name).send_dm(content)

    def messages(self, channel: int) -> list[Any]:
        """The bot's messages in a channel."""
        assert self.env is not None
        assert self.env.bot.user is not None
        bot = self.env.bot.user.id
        return [each for each in self.env.backend.messages.get(channel, {}).values() if each.author_id == bot]

    def texts(self, name: str) -> list[str]:
        if not self.attached.is_set():
            return []
        assert self.env is not None
        channel = self.env.backend.get_dm_channel(self.person(name).id)
        return [Markup().parse(each.content) for each in self.messages(channel.id)]

    def group_texts(self) -> list[str]:
        return [Markup().parse(each.content) for each in self.messages(self.channel.id)]


class TestSimcord:
    @pytest.fixture
    def rig(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        @asynccontextmanager
        async def start() -> AsyncGenerator[SimcordRig]:
            rig = SimcordRig()

            async def attach(client: Any, _: str) -> None:
                await rig.start(client)

            monkeypatch.setattr(discord_client.Client, "start", attach)
            try:
                yield rig
            finally:
                if rig.env is not None:
                    await rig.env.shutdown()

        return start

    @behaviour
    async def test_a_guild_and_a_private_chat(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "early", group=True)
        await session.say("ada", "/group on", group=True, mention=True)
        await until(session.rig.group_texts, 30)
        await session.say("ada", "hello **there**", group=True, mention=True)
        await until(lambda: any("there" in each for each in session.rig.group_texts()), 30)
        await session.say("ada", "and here")
        await session.read("ada", "echo: and here")
        assert session.requests() == ["[owner, in a group] hello **there**", "and here"]

    @behaviour
    async def test_a_button_is_pressed_once(self, session: Session) -> None:
        await session.start(ask(("write_file", {"path": "out.txt", "content": "written"})), say("Done."), approve="ask")
        await session.pair("ada")
        await session.say("ada", "/group on", group=True, mention=True)
        await until(session.rig.group_texts, 30)
        await session.say("ada", "write", group=True, mention=True)
        await until(lambda: any("/approve" in each for each in session.rig.group_texts()), 30)
        result = await session.rig.person("ada").click(session.rig.channel.last_message, label="Approve")
        assert result.acknowledged
        await until(lambda: any("Done." in each for each in session.rig.group_texts()), 30)
        assert (session.folder / "out.txt").read_text() == "written"

    @behaviour
    async def test_messages_of_a_restart_are_answered_once(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        await session.say("ada", "one")
        await session.read("ada", "echo: one")
        await session.stop()
        await session.rig.say("ada", "two")
        await session.start(model=Held(go=True))
        await session.rig.say("ada", "three")
        await session.read("ada", "echo: three")
        assert session.requests() == ["one", "two", "three"]

    @behaviour
    async def test_a_refused_piece_fails_and_the_next_is_sent(self, session: Session) -> None:
        await session.start(model=Held(go=True))
        await session.pair("ada")
        session.rig.env.inject_error("POST", "/channels/*/messages", status=403, code=50007)
        await session.say("ada", "one")
        await until(lambda: session.store.count_states().get("failed") == 1, 30)
        assert session.store.outbox("failed")[0]["error"] == "Discord answers 403, code 50007"
        await session.say("ada", "two")
        await session.read("ada", "echo: two")

    @behaviour
    async def test_an_edit_changes_a_message_whose_turn_has_not_begun(self, session: Session) -> None:
        model = Held()
        await session.start(model=model)
        await session.pair("ada")
        await session.say("ada", "one")
        await until(lambda: model.requests)
        sent = await session.rig.person("ada").send_dm("tow")
        await session.read("ada", "Queued")
        await session.rig.users["ada"].edit(sent, "two")
        model.go.set()
        await session.read("ada", "echo: two")
