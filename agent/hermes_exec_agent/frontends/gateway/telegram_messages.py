"""Messages of Telegram's Bot API: their texts, mentions and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
from telegram import InlineKeyboardButton, InlineKeyboardMarkup
from telegram.constants import ChatType, MessageEntityType
from telegram.error import BadRequest, TelegramError

from hermes_exec_agent.frontends.gateway.adapter import NOT_OWN, Incoming, IncomingFile, PlatformDown, Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from telegram import Bot, Message, Update

    from hermes_exec_agent.frontends.gateway.adapter import Choice

_READ_S = 30.0
_DOT = {"photo": ".jpg", "voice": ".ogg", "video_note": ".mp4", "sticker": ".webp"}
"""The ends of names of what has none."""
_CONTENTS = ("document", "photo", "voice", "audio", "video", "video_note", "sticker")


class MessageParser:
    """Reads updates for one bot."""

    def __init__(self, bot: Bot, file_url: str) -> None:
        """``file_url`` is where files are read from, without the token."""
        self._bot = bot
        self._file_url = file_url

    def parse(self, update: Update) -> Incoming | None:
        """Return the message or the press of a button of an update; None if it has none."""
        if (query := update.callback_query) is not None:
            chat = query.message.chat if query.message is not None else None
            if chat is None:
                return None
            is_group = chat.type != ChatType.PRIVATE
            sender, text = str(query.from_user.id), query.data or ""
            return Incoming(str(chat.id), f"button-{query.id}", sender, text, is_group=is_group, is_mention=True)
        message = update.message or update.edited_message
        if message is None or message.from_user is None or message.sender_chat is not None:
            return None
        files = tuple(self._find_files(message))
        text, is_mention = self._read_text(message, has_files=bool(files))
        return Incoming(
            str(message.chat.id),
            str(message.message_id),
            str(message.from_user.id),
            text,
            is_group=message.chat.type != ChatType.PRIVATE,
            is_mention=is_mention,
            is_edit=update.edited_message is not None,
            files=files,
        )

    def _read_text(self, message: Message, *, has_files: bool) -> tuple[str, bool]:
        """Return the text without the mention of the bot at its beginning, and whether it is addressed to the bot.

        A text of another author has no commands and no mentions, and begins with a line that says so.
        """
        text, name = message.text or message.caption or "", f"@{self._bot.username}"
        if message.forward_origin is not None or message.via_bot is not None:
            return (f"{NOT_OWN}\n{text}" if text.strip() or has_files else ""), False
        kinds: list[str | None] = [MessageEntityType.MENTION, MessageEntityType.BOT_COMMAND]
        found = {**message.parse_entities(kinds), **message.parse_caption_entities(kinds)}.values()
        reply = message.reply_to_message
        replies = reply is not None and reply.from_user is not None and reply.from_user.id == self._bot.id
        is_mention = replies or any(each.lower().endswith(name.lower()) for each in found)
        word, _, rest = text.partition(" ")
        if word.lower() == name.lower():
            return rest.strip(), True
        if word.startswith("/") and word.lower().endswith(name.lower()):
            return f"{word[: -len(name)]} {rest}".strip(), True
        return text, is_mention

    def _find_files(self, message: Message) -> list[IncomingFile]:
        """Return the file of a message, if it has one; of a photo, the largest size."""
        for kind in _CONTENTS:
            found = getattr(message, kind, None)
            content = (found[-1] if found else None) if kind == "photo" else found
            if content is None:
                continue
            name = getattr(content, "file_name", None) or f"{kind}{_DOT.get(kind, '')}"
            mime = getattr(content, "mime_type", None) or ("image/jpeg" if kind == "photo" else "")

            async def read(limit: int, id: str = content.file_id) -> bytes:
                return await self._read_file(id, limit)

            return [IncomingFile(name, mime, content.file_size, read)]
        return []

    async def _read_file(self, id: str, limit: int) -> bytes:
        """Return the content of a file.

        Raises:
            Rejected: it is too large, or the API does not hand it out.
            PlatformDown: it cannot be read now.
        """
        try:
            file = await self._bot.get_file(id)
        except BadRequest as error:
            raise Rejected("the Bot API does not hand out this file") from error
        except TelegramError as error:
            raise PlatformDown(f"the Bot API cannot be asked for a file ({type(error).__name__})") from error
        path = (file.file_path or "").rpartition(f"{self._bot.token}/")[2]
        if not path or "://" in path:
            raise Rejected("the Bot API does not hand out this file")
        content = b""
        try:
            async with (
                httpx.AsyncClient(timeout=_READ_S) as client,
                client.stream("GET", f"{self._file_url}{self._bot.token}/{path}") as response,
            ):
                if response.is_error or response.is_redirect:
                    raise PlatformDown(f"the Bot API answers {response.status_code} for a file")
                async for chunk in response.aiter_bytes(1 << 16):
                    content += chunk
                    if len(content) > limit:
                        raise Rejected(f"it has more than {limit:,} bytes, which are allowed")
        except httpx.HTTPError as error:
            raise PlatformDown(f"a file cannot be read ({type(error).__name__})") from None
        return content


def to_markup(choices: Sequence[Choice]) -> InlineKeyboardMarkup | None:
    """Return choices as buttons in one row; None without them."""
    buttons = [InlineKeyboardButton(each.label, callback_data=each.text) for each in choices]
    return InlineKeyboardMarkup([buttons]) if buttons else None
