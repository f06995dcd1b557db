"""What the WhatsApp Cloud API sends and answers: messages, edits and statuses of webhooks; errors of the Graph API."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError

from hermes_exec_agent.frontends.gateway.adapter import (
    NOT_OWN,
    Incoming,
    IncomingFile,
    NotSent,
    Rejected,
    SendUnknown,
)
from hermes_exec_agent.frontends.gateway.payloads import PayloadPart, to_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec_agent.frontends.gateway.adapter import Choice

RETRY_S = 5.0
WINDOW_CLOSED = 131047
"""More than 24 hours have passed since the person's last message."""
_OLDEST_S = 14 * 86400.0
"""Webhooks are delivered again for up to a week; an older one is a replay."""
_WAITS = {4: 60.0, 80007: 60.0, 130429: 5.0, 131048: 600.0, 131056: 6.0, 131064: 60.0, 133016: 60.0}
"""Errors of rate limits, and the seconds to wait."""
_LATER = frozenset({0, 3, 10, 190, 368, 131005, 131031, 131042, 131045, 131057, *range(200, 300)})
"""Refusals that concern the account and not the piece; it is sent once the account works again."""
_UNCERTAIN = frozenset({1, 2, 131000, 131016, 133004})
_BUTTONS, _LONGEST_BODY, _LONGEST_LABEL, _LONGEST_ID = 3, 1024, 20, 256
_BSUID = re.compile(r"[A-Z]{2}\.(ENT\.)?[A-Za-z0-9]+")
"""An id of a user that hides the telephone number."""
_MEDIA = ("image", "video", "audio", "document", "sticker")


class Media(PayloadPart):
    """A file of a message."""

    id: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")
    """A part of an address of the API."""
    mime_type: str = ""
    filename: str = ""
    caption: str = ""
    file_size: int | None = None


class _Text(PayloadPart):
    body: str = ""


class _Reply(PayloadPart):
    id: str = ""


class _Interactive(PayloadPart):
    button_reply: _Reply = Field(default_factory=_Reply)


class _Button(PayloadPart):
    payload: str = ""
    text: str = ""


class _Context(PayloadPart):
    sender: str = Field(default="", alias="from")
    forwarded: bool = False
    frequently_forwarded: bool = False


class _Content(PayloadPart):
    type: str = ""
    text: _Text = Field(default_factory=_Text)
    interactive: _Interactive = Field(default_factory=_Interactive)
    button: _Button = Field(default_factory=_Button)
    context: _Context = Field(default_factory=_Context)
    image: Media | None = None
    video: Media | None = None
    audio: Media | None = None
    document: Media | None = None
    sticker: Media | None = None


class _Change(PayloadPart):
    original_message_id: str
    message: _Content | None = None


class _Message(_Content):
    id: str
    sender: str = Field(default="", alias="from")
    from_user_id: str = ""
    group_id: str = ""
    timestamp: int = 0
    edit: _Change | None = None
    revoke: _Change | None = None


class _Metadata(PayloadPart):
    phone_number_id: str
    display_phone_number: str = ""


class _Contact(PayloadPart):
    wa_id: str = ""
    user_id: str = ""


class _Error(PayloadPart):
    code: int = 0
    title: str = ""


class Status(PayloadPart):
    """What became of a message that was sent."""

    id: str
    status: str
    errors: list[_Error] = Field(default_factory=list[_Error])


class _Value(PayloadPart):
    metadata: _Metadata
    contacts: list[_Contact] = Field(default_factory=list[_Contact])
    messages: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    statuses: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])


class _Field(PayloadPart):
    field: str
    value: dict[str, Any]


class _Entry(PayloadPart):
    changes: list[_Field] = Field(default_factory=list[_Field])


class _Webhook(PayloadPart):
    object: str
    entry: list[_Entry]


@dataclass(slots=True)
class Updates:
    """The contents of a webhook that concern the account."""

    messages: list[Incoming] = field(default_factory=list[Incoming])
    statuses: list[Status] = field(default_factory=list[Status])


def parse_webhook(body: bytes, phone: str, read: Callable[[Media, int], Awaitable[bytes]]) -> Updates | None:
    """Return the updates of a webhook in their order; None if it is not a webhook of WhatsApp.

    Args:
        body: the request's.
        phone: the id of the account's telephone number; updates of others are left out.
        read: reads a file of a message.
    """
    updates = Updates()
    try:
        webhook = _Webhook.model_validate_json(body)
    except ValidationError:
        return None
    for change in (each for entry in webhook.entry for each in entry.changes if each.field == "messages"):
        try:
            value = _Value.model_validate(change.value)
        except ValidationError:
            continue
        if value.metadata.phone_number_id != phone:
            continue
        updates.statuses += [status for each in value.statuses if (status := _parse_status(each)) is not None]
        updates.messages += [
            incoming for each in value.messages if (incoming := _parse_message(each, value, read)) is not None
        ]
    return updates


def _parse_status(data: Mapping[str, Any]) -> Status | None:
    try:
        return Status.model_validate(data)
    except ValidationError:
        return None


def _parse_message(
    data: Mapping[str, Any], value: _Value, read: Callable[[Media, int], Awaitable[bytes]]
) -> Incoming | None:
    """Return a message; None for a reaction, a notice, a replay and an unknown kind of message."""
    try:
        message = _Message.model_validate(data)
    except ValidationError:
        return None
    ids = {each.wa_id: each.user_id for each in value.contacts if each.wa_id and each.user_id}
    sender = message.from_user_id or ids.get(message.sender) or message.sender
    if not sender or time.time() - message.timestamp > _OLDEST_S or message.type in {"reaction", "system"}:
        return None
    change = message.edit or message.revoke
    content = message if change is None else change.message or _Content()
    text, is_mention = _read_text(content, value.metadata.display_phone_number)
    media = next((found for kind in _MEDIA if (found := getattr(content, kind)) is not None), None)
    return Incoming(
        message.group_id or sender,
        message.id if change is None else change.original_message_id,
        sender,
        text,
        is_group=bool(message.group_id),
        is_mention=is_mention,
        is_edit=change is not None,
        files=() if media is None else (_to_file(media, read),),
    )


def _to_file(media: Media, read: Callable[[Media, int], Awaitable[bytes]]) -> IncomingFile:
    return IncomingFile(media.filename, media.mime_type.partition(";")[0], media.file_size, partial(read, media))


def _read_text(content: _Content, number: str) -> tuple[str, bool]:
    """Return the text without the mention of the account at its beginning, and whether it is addressed to it.

    A text of another author has no commands and no mentions, and begins with a line that says so.
    """
    media = next((found for kind in _MEDIA if (found := getattr(content, kind)) is not None), None)
    text = content.interactive.button_reply.id or content.button.payload or content.text.body
    text = text or content.button.text or (media.caption if media is not None else "")
    if content.context.forwarded or content.context.frequently_forwarded:
        return (f"{NOT_OWN}\n{text}" if text.strip() else ""), False
    digits = re.sub(r"\D", "", number)
    mention = f"@{digits}" if digits else "\0"
    is_mention = mention in text or (bool(digits) and re.sub(r"\D", "", content.context.sender) == digits)
    return text.strip().removeprefix(mention).strip(), is_mention


def to_recipient(chat: str) -> dict[str, str]:
    """Return the fields that address a message to a number, a user's id or a group."""
    if chat.isascii() and chat.isdigit():
        return {"recipient_type": "individual", "to": chat}
    if _BSUID.fullmatch(chat):
        return {"recipient_type": "individual", "recipient": chat}
    return {"recipient_type": "group", "to": chat}


def to_content(text: str, choices: Sequence[Choice]) -> dict[str, object]:
    """Return a message as a text, with reply buttons if the platform takes such; the text has the words, too."""
    is_short = len(text) <= _LONGEST_BODY and 0 < len(choices) <= _BUTTONS
    if not is_short or any(len(each.label) > _LONGEST_LABEL or len(each.text) > _LONGEST_ID for each in choices):
        return {"type": "text", "text": {"body": text, "preview_url": False}}
    buttons = [{"type": "reply", "reply": {"id": each.text, "title": each.label}} for each in choices]
    return {
        "type": "interactive",
        "interactive": {"type": "button", "body": {"text": text}, "action": {"buttons": buttons}},
    }


def to_template(text: str, name: str, language: str) -> dict[str, object]:
    """Return a template whose one parameter is a text in one line, which is cut at the limit and says so."""
    flat = " ".join(text.split())
    if len(flat) > _LONGEST_BODY:
        end = " … (cut here; write to me for the rest)"
        flat = flat[: _LONGEST_BODY - len(end)] + end
    body = {"type": "body", "parameters": [{"type": "text", "text": flat}]}
    return {"type": "template", "template": {"name": name, "language": {"code": language}, "components": [body]}}


class WindowClosed(Rejected):
    """A text may not be sent now; a template may."""


def translate_answer(status: int, data: object, wait: str) -> NotSent | Rejected | SendUnknown:
    """Return what an answer that is not a success says about the piece.

    Args:
        status: of HTTP.
        data: the content, from JSON.
        wait: the header Retry-After, or an empty text.
    """
    stated = to_table(to_table(data).get("error")).get("code")
    code = stated if isinstance(stated, int) else -1
    after = float(wait) if re.fullmatch(r"[0-9]{1,5}", wait) else None
    if status == 429 or code in _WAITS:
        return NotSent("too many messages to WhatsApp", retry_s=after or _WAITS.get(code, RETRY_S))
    if status >= 500 or code in _UNCERTAIN:
        return SendUnknown(f"the Graph API failed (status {status}, error {code})")
    if status in {401, 403} or status < 400 or code in _LATER:
        return NotSent(f"the Graph API refuses the account (status {status}, error {code})", retry_s=60.0)
    if code == WINDOW_CLOSED:
        return WindowClosed(
            "the person has not written for 24 hours, so WhatsApp takes only a template; none is configured"
        )
    return Rejected(f"the Graph API refused the piece (status {status}, error {code})")
