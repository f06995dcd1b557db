"""What discord.py reports of a bot's session, as messages of the gateway."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Any, Literal

import discord

from hermes_exec_agent.frontends.gateway.adapter import Incoming, PlatformDown
from hermes_exec_agent.frontends.gateway.discord_messages import describe, parse_message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

logging.getLogger("discord").setLevel(logging.CRITICAL)  # the gateway's log has its errors in one line
_log = logging.getLogger("hermes_exec.gateway")
_INTENTS = discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True)


class Client(discord.Client):
    """A session. It queues what happens in ``reports``, in order."""

    def __init__(self, accept: Callable[[Incoming], Awaitable[None]]) -> None:
        super().__init__(
            intents=_INTENTS,
            allowed_mentions=discord.AllowedMentions.none(),
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            max_messages=None,
            max_ratelimit_timeout=30.0,
        )
        self.accept = accept
        self.is_ending = False
        """Whether messages are no longer accepted."""
        self.reports: asyncio.Queue[Incoming | BaseException | Literal["connected", "resumed", "lost", "ended"]] = (
            asyncio.Queue()
        )

    @property
    def account(self) -> int:
        """The bot's id."""
        return self.user.id if self.user is not None else 0

    async def on_connect(self) -> None:
        """A new session began."""
        self.reports.put_nowait("connected")

    async def on_resumed(self) -> None:
        """The session was resumed, and its events since then follow."""
        self.reports.put_nowait("resumed")

    async def on_disconnect(self) -> None:
        """The connection was lost, and the library connects again."""
        self.reports.put_nowait("lost")

    async def on_error(self, event_method: str, /, *_: object, **__: object) -> None:
        """Handling an event failed."""
        self.reports.put_nowait(sys.exc_info()[1] or PlatformDown(f"{event_method} failed"))

    async def on_message(self, message: discord.Message) -> None:
        """A message was written."""
        if (incoming := parse_message(message, self.account)) is not None:
            self.reports.put_nowait(incoming)

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        """A message has a new text, or a preview of an address in it, which is not an edit."""
        if payload.message.edited_at is not None:
            incoming = parse_message(payload.message, self.account, is_edit=True)
            if incoming is not None:
                self.reports.put_nowait(incoming)

    async def on_raw_message_delete(self, payload: discord.RawMessageDeleteEvent) -> None:
        """A message was deleted."""
        self._report_deletion(payload.channel_id, payload.message_id)

    async def on_raw_bulk_message_delete(self, payload: discord.RawBulkMessageDeleteEvent) -> None:
        """Messages were deleted."""
        for id in sorted(payload.message_ids):
            self._report_deletion(payload.channel_id, id)

    def _report_deletion(self, channel: int, message: int) -> None:
        self.reports.put_nowait(Incoming(str(channel), str(message), "", "", is_edit=True))

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        """A button was pressed. The API waits three seconds, so it does not wait for earlier messages."""
        is_press = interaction.type is discord.InteractionType.component and interaction.channel_id is not None
        if self.is_ending or not is_press:
            return
        data: Mapping[str, Any] = interaction.data or {}
        sender, is_group = str(interaction.user.id), interaction.guild_id is not None
        text = str(data.get("custom_id", ""))
        chat, id = str(interaction.channel_id), f"button-{interaction.id}"
        await self.accept(Incoming(chat, id, sender, text, is_group=is_group, is_mention=True))
        try:
            await interaction.response.defer()
        except (discord.DiscordException, OSError) as error:  # the person sees that, and may press again
            _log.info("a button was not acknowledged: %s", describe(error))
