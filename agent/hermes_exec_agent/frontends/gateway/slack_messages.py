"""What Slack sends and answers: messages, edits, deletions and pressed buttons; errors of its API."""

from __future__ import annotations

import html
import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

import aiohttp
from pydantic import Field, ValidationError
from slack_sdk.errors import SlackApiError

from hermes_exec_agent.frontends.gateway.adapter import Incoming, IncomingFile, NotSent, Rejected, SendUnknown
from hermes_exec_agent.frontends.gateway.payloads import PayloadPart, to_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from hermes_exec_agent.frontends.gateway.adapter import Choice

RETRY_S = 5.0
_ACTION = "choice-"
_LONGEST_LABEL, _LONGEST_VALUE = 75, 2000
_ENTITY = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")
_WRITTEN = frozenset({"", "file_share", "me_message", "thread_broadcast"})
"""The subtypes of messages that persons write."""
_LATER = frozenset(
    {
        "account_inactive", "ekm_access_denied", "invalid_auth", "missing_scope", "not_allowed_token_type",
        "not_authed", "org_login_required", "team_access_not_granted", "token_expired", "token_revoked",
    }
)  # fmt: skip
"""Refusals that concern the account and not the piece; it is sent once the account works again."""
_UNCERTAIN = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable"})
"""Errors after which the API may have done a part of the request."""


class SlackFile(PayloadPart):
    """A file of a message."""

    name: str = ""
    mimetype: str = ""
    size: int | None = None
    url_private_download: str = ""
    url_private: str = ""


class _Message(PayloadPart):
    type: str = ""
    subtype: str = ""
    channel: str = ""
    user: str = ""
    bot_id: str = ""
    text: str = ""
    ts: str = ""
    thread_ts: str = ""
    files: list[SlackFile] = Field(default_factory=list[SlackFile])


class _Event(_Message):
    message: _Message | None = None
    previous_message: _Message | None = None
    deleted_ts: str = ""


class _Id(PayloadPart):
    id: str = ""


class _Container(PayloadPart):
    message_ts: str = ""
    thread_ts: str = ""


class _Action(PayloadPart):
    action_id: str = ""
    action_ts: str = ""
    value: str = ""


class _Press(PayloadPart):
    user: _Id
    channel: _Id
    container: _Container
    actions: list[_Action]


def parse_body(content_type: str, body: bytes) -> dict[str, Any] | None:
    """Return the payload of a request by HTTP: JSON, or a form with JSON in it; None if it is neither."""
    try:
        text = body.decode()
        if content_type == "application/x-www-form-urlencoded":
            text = parse_qs(text, strict_parsing=True, max_num_fields=20)["payload"][0]
        return to_table(json.loads(text)) or None
    except (ValueError, KeyError, RecursionError):
        return None


def parse_payload(
    payload: Mapping[str, Any], me: str, read: Callable[[SlackFile, int], Awaitable[bytes]]
) -> Incoming | None:
    """Return the message of a payload; None if it has none, or not one of a person.

    Args:
        payload: an event, or the press of a button.
        me: the id of the agent's user.
        read: reads a file of the message.
    """
    try:
        if payload.get("type") == "block_actions":
            return _parse_press(_Press.model_validate(payload))
        return _parse_event(_Event.model_validate(payload.get("event")), me, read)
    except ValidationError:
        return None


def _parse_press(press: _Press) -> Incoming | None:
    chosen = next((each for each in press.actions if each.action_id.startswith(_ACTION)), None)
    if chosen is None or not press.channel.id or not press.user.id:
        return None
    at, thread = press.container.message_ts, press.container.thread_ts
    return Incoming(
        _to_chat(press.channel.id, at, thread),
        f"button-{at}-{chosen.action_ts}",
        press.user.id,
        chosen.value,
        is_group=not press.channel.id.startswith("D"),
        is_mention=True,
    )


def _parse_event(event: _Event, me: str, read: Callable[[SlackFile, int], Awaitable[bytes]]) -> Incoming | None:
    if event.type not in {"message", "app_mention"} or not event.channel:
        return None
    before, now = event.previous_message, event.message
    if event.subtype == "message_deleted":
        return None if before is None else _to_incoming(event.channel, before, me, "")
    if event.subtype == "message_changed":
        if before is None or now is None or now.text == before.text:  # a preview of a link was added, for example
            return None
        is_gone = now.subtype == "tombstone"
        return _to_incoming(event.channel, now, me, "" if is_gone else now.text, None if is_gone else read)
    if event.subtype not in _WRITTEN:
        return None
    return _to_incoming(event.channel, event, me, None, read)


def _to_incoming(
    channel: str,
    message: _Message,
    me: str,
    new: str | None,
    read: Callable[[SlackFile, int], Awaitable[bytes]] | None = None,
) -> Incoming | None:
    """Return a message, or its edit if there is a ``new`` text; None for one that an app wrote."""
    if message.bot_id or not message.user or message.user == me or not message.ts:
        return None
    text, is_mention = read_text(message.text if new is None else new, me)
    return Incoming(
        _to_chat(channel, message.ts, message.thread_ts),
        message.ts,
        message.user,
        text,
        is_group=not channel.startswith("D"),
        is_mention=is_mention,
        is_edit=new is not None,
        files=() if read is None else tuple(_to_file(each, read) for each in message.files),
    )


def _to_file(file: SlackFile, read: Callable[[SlackFile, int], Awaitable[bytes]]) -> IncomingFile:
    return IncomingFile(file.name, file.mimetype, file.size, partial(read, file))


def _to_chat(channel: str, at: str, thread: str) -> str:
    """Return the address of answers: the channel, or the thread that a message is in."""
    return channel if thread in {"", at} else f"{channel} {thread}"


def split_chat(chat: str) -> tuple[str, str | None]:
    """Return the channel and the thread of a chat."""
    channel, _, thread = chat.partition(" ")
    return channel, thread or None


def read_text(text: str, me: str) -> tuple[str, bool]:
    """Return what a person wrote, without a mention of ``me`` at its beginning, and whether it is addressed to ``me``.

    Clients keep lines that begin with a slash for themselves, so ``!new`` is a command, too.
    """
    mention = re.compile(rf"<@{re.escape(me)}(?:\|[^<>]*)?>")
    is_mention = bool(me) and mention.search(text) is not None
    if is_mention and (found := mention.match(text.lstrip())) is not None:
        text = text.lstrip()[found.end() :]
    text = html.unescape(_ENTITY.sub(_expand, text)).strip()
    return (f"/{text[1:]}" if re.match(r"![a-z]", text) else text), is_mention


def _expand(found: re.Match[str]) -> str:
    """Return a link, or the mention of a user, a channel or a group, as text."""
    target, label = found[1], found[2] or ""
    if target[:1] in {"@", "#"}:
        return f"{target[0]}{label or target[1:]}"
    if target[:1] == "!":
        return f"@{(label or target[1:].partition('^')[0]).removeprefix('@')}"
    if not label or label == target:
        return target
    return label if target.partition(":")[2].lstrip("/") == label else f"{label} ({target})"


def to_blocks(text: str, choices: Sequence[Choice]) -> list[dict[str, object]]:
    """Return the blocks of a message with buttons; none without them."""
    if not choices:
        return []
    buttons: list[dict[str, object]] = [
        {
            "type": "button",
            "action_id": f"{_ACTION}{number}",
            "text": {"type": "plain_text", "text": each.label[:_LONGEST_LABEL], "emoji": False},
            "value": each.text[:_LONGEST_VALUE],
        }
        for number, each in enumerate(choices)
    ]
    # "verbatim": else names of channels and users in the text become mentions
    section: dict[str, object] = {
        "type": "section",
        "expand": True,
        "text": {"type": "mrkdwn", "text": text, "verbatim": True},
    }
    return [section, {"type": "actions", "elements": buttons}]


class AccountRefused(NotSent):
    """Slack takes no such request of this account, until its token or its rights have changed."""


def translate_error(error: Exception) -> NotSent | Rejected | SendUnknown:
    """Return what an error says about the piece, without the address and the content of the request."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return NotSent(f"Slack cannot be reached ({type(error).__name__})", retry_s=RETRY_S)
    if not isinstance(error, SlackApiError):
        return SendUnknown(f"no answer came from Slack ({type(error).__name__})")
    status, code, wait = _read_error(cast("Any", error).response)
    if status == 429 or code in {"ratelimited", "rate_limited"}:
        return NotSent("too many requests to Slack", retry_s=wait)
    if status >= 500 or code in _UNCERTAIN or not code:
        return SendUnknown(f"Slack failed ({code or f'status {status}'})")
    if code in _LATER:
        return AccountRefused(f"Slack refuses the account ({code})", retry_s=60.0)
    return Rejected(f"Slack refused the piece ({code})")


def _read_error(response: Any) -> tuple[int, str, float]:
    """Return the status, the code of the error and the seconds to wait, from an answer of any form."""
    data: object = getattr(response, "data", None)
    headers: Mapping[str, object] = getattr(response, "headers", None) or {}
    status = getattr(response, "status_code", None) or getattr(response, "status", 0)
    code = str(to_table(data).get("error", ""))
    after = str(headers.get("Retry-After", ""))
    wait = float(after) if re.fullmatch(r"[0-9]{1,5}", after) else RETRY_S
    return int(status or 0), code if re.fullmatch(r"[a-z0-9_]{1,80}", code) else "", wait
