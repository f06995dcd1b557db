"""What discord.py reports of a bot's session, as messages of the gateway."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from typing import TYPE_CHECKING, Literal

import aiohttp
import discord

from hermes_exec_agent.frontends.gateway.adapter import (
    Incoming,
    IncomingFile,
    NotSent,
    PlatformDown,
    Rejected,
    SendUnknown,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hermes_exec.errors import HermesError

logging.getLogger("discord").setLevel(logging.CRITICAL)  # the gateway's log has its errors in one line
_log = logging.getLogger("hermes_exec.gateway")
_INTENTS = discord.Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=True)
_NOT_OWN = "[This message was forwarded: these are not the person's own words.]"
_WORDS = frozenset({discord.MessageType.default, discord.MessageType.reply})
"""The types of messages that a person wrote; others report that a member joined, and the like."""


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
        self._accept = accept
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
        """A message has a new text, or a preview of an address in it, which is no edit."""
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
        if interaction.type is not discord.InteractionType.component or interaction.channel_id is None:
            return
        data = interaction.data or {}
        sender, is_group = str(interaction.user.id), interaction.guild_id is not None
        text = str(data.get("custom_id", ""))
        chat, id = str(interaction.channel_id), f"button-{interaction.id}"
        await self._accept(Incoming(chat, id, sender, text, is_group=is_group, is_mention=True))
        try:
            await interaction.response.defer()
        except (discord.DiscordException, OSError) as error:  # the person sees that, and may press again
            _log.info("a button was not acknowledged: %s", describe(error))


def parse_message(message: discord.Message, account: int, *, is_edit: bool = False) -> Incoming | None:
    """Return the message of a person; None for one of a program, and for what Discord itself writes."""
    if message.author.bot or message.webhook_id is not None or message.type not in _WORDS:
        return None
    text, is_mention = message.content, any(each.id == account for each in message.mentions)
    files = list(message.attachments)
    if message.message_snapshots:  # forwarded: no commands, and no mentions
        texts = [_NOT_OWN, *(each.content for each in message.message_snapshots)]
        text, is_mention = "\n".join(texts) if any(texts[1:]) else "", False
        files += [file for each in message.message_snapshots for file in each.attachments]
    if is_mention:
        text = re.sub(rf"^\s*<@!?{account}>\s*", "", text)
    replied = message.reference.resolved if message.reference is not None else None
    is_reply = isinstance(replied, discord.Message) and replied.author.id == account
    return Incoming(
        str(message.channel.id),
        str(message.id),
        str(message.author.id),
        text,
        is_group=not isinstance(message.channel, discord.DMChannel),
        is_mention=is_mention or (is_reply and not message.message_snapshots),
        is_edit=is_edit,
        files=tuple(map(_parse_file, files)),
    )


def _parse_file(file: discord.Attachment) -> IncomingFile:
    async def read(most: int) -> bytes:
        if file.size > most:
            raise Rejected(f"the file has {file.size} bytes, more than {most}")
        try:
            content = await file.read()
        except (discord.Forbidden, discord.NotFound) as error:
            raise Rejected("the file is gone") from error
        except (discord.DiscordException, OSError) as error:
            raise PlatformDown(describe(error)) from error
        if len(content) > most:
            raise Rejected(f"the file has more than {most} bytes")
        return content

    return IncomingFile(file.filename, file.content_type or "", file.size, read)


def describe(error: BaseException) -> str:
    """Return an error in one line, without a text of the library."""
    match error:
        case discord.LoginFailure():
            return "Discord refuses the token"
        case discord.PrivilegedIntentsRequired():
            return "Discord refuses the intent for the content of messages: switch it on in the developers' portal"
        case discord.HTTPException():
            return f"Discord answers {error.status}, code {error.code}"
        case discord.ConnectionClosed():
            return f"Discord closed the connection with code {error.code}"
        case TimeoutError():
            return "Discord does not answer"
        case _:
            return f"Discord cannot be reached ({type(error).__name__})"


def translate_error(error: Exception) -> HermesError:
    """Return what an error says about a piece."""
    if isinstance(error, discord.RateLimited):
        return NotSent("too many messages", retry_s=error.retry_after)
    if isinstance(error, aiohttp.ClientConnectorError):
        return NotSent(describe(error), retry_s=5.0)
    if isinstance(error, discord.HTTPException) and error.status < 500:
        if error.status in {401, 429}:
            return NotSent(describe(error), retry_s=60.0)
        return Rejected(describe(error))
    return SendUnknown(describe(error))
