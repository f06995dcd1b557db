"""Messages, files, buttons and errors of discord.py, in the terms of the gateway."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

import aiohttp
import discord

from hermes_exec_agent.frontends.gateway.adapter import (
    Incoming,
    IncomingFile,
    NotSent,
    Rejected,
    SendUnknown,
)
from hermes_exec_agent.frontends.gateway.downloads import download

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec.errors import HermesError
    from hermes_exec_agent.frontends.gateway.adapter import Choice

_NOT_OWN = "[This message was forwarded: these are not the person's own words.]"
_WORDS = frozenset({discord.MessageType.default, discord.MessageType.reply})
"""The types of messages that a person wrote; others report that a member joined, and the like."""
_LONGEST_LABEL = 80
_READ_S = 60.0


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
            raise Rejected(f"it has {file.size:,} bytes, more than {most:,}")
        # the library would read all of it, however long; it sends no token to this address, and neither does this
        return await download(file.url, most, headers={}, limit_s=_READ_S)

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


def create_buttons(choices: Sequence[Choice]) -> discord.ui.View | None:
    """Return the buttons of a message; None without choices."""
    if not choices:
        return None
    view = discord.ui.View(timeout=None)
    for each in choices:
        view.add_item(discord.ui.Button(label=each.label[:_LONGEST_LABEL], custom_id=each.text[:100]))
    view.stop()  # the library must not keep it: presses are handled as interactions, also after a restart
    return view


def read_account(token: Secret) -> str:
    """Return the bot's id, which is the first part of its token and no secret; empty if the token has another form."""
    first, _, rest = token.reveal().partition(".")
    try:
        id = base64.urlsafe_b64decode(first + "=" * (-len(first) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
    return id if id.isdigit() and re.fullmatch(r"[\w-]+\.[\w-]+", rest, re.ASCII) else ""
