"""The messages of signal-cli's daemon, as its WebSocket delivers them, and its answers."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hermes_exec.terminal.encoding import parse_number
from hermes_exec_agent.frontends.gateway.adapter import Incoming, IncomingFile, NotSent, Rejected, SendUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_MOST_EDITS = 1000
_LONG_RETRY_S = 60.0
_REFUSALS = re.compile(
    r"Couldn't process request|Invalid |Unregistered user|Failed to send message due to untrusted|.*untrusted recipient"
    r"|Please provide|Specified account does not exist|User .* is not registered|Group not found"
)
"""The errors that come before anything is sent; the daemon has one status for all."""
_PLACEHOLDER = "\ufffc"
"""The character that stands for a mention."""


class _Model(BaseModel):
    """A part of a message; parts that the gateway does not need are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Mention(_Model):
    number: str | None = None
    start: int = 0


class _Quote(_Model):
    author_number: str | None = Field(default=None, alias="authorNumber")


class _Attachment(_Model):
    id: str
    filename: str | None = None
    kind: str | None = Field(default=None, alias="contentType")
    size: int | None = None


class _Group(_Model):
    id: str = Field(alias="groupId")
    type: str = "DELIVER"


class _Deletion(_Model):
    timestamp: int


class _Data(_Model):
    timestamp: int
    message: str | None = None
    mentions: tuple[_Mention, ...] = ()
    quote: _Quote | None = None
    attachments: tuple[_Attachment, ...] = ()
    group: _Group | None = Field(default=None, alias="groupInfo")
    deletion: _Deletion | None = Field(default=None, alias="remoteDelete")
    sticker: object = None


class _Edit(_Model):
    target: int = Field(alias="targetSentTimestamp")
    data: _Data = Field(alias="dataMessage")


class _Envelope(_Model):
    source: str | None = Field(default=None, alias="sourceUuid")
    data: _Data | None = Field(default=None, alias="dataMessage")
    edit: _Edit | None = Field(default=None, alias="editMessage")


class _Frame(_Model):
    envelope: _Envelope | None = None
    error: str | None = None


class InvalidFrame(Exception):
    """A frame has another form, or reports an error of the daemon."""


@dataclass
class SignalParser:
    """Reads frames of one account."""

    number: str
    read_file: Callable[[str, int], Awaitable[bytes]]
    """Returns the content of an attachment, by its id and its most bytes."""
    _edits: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    """The time of the first version of each message, by sender and the time of a later one, which edits may name."""

    def parse(self, frame: str | bytes) -> Incoming | None:
        """Return the message of a person; None for receipts, reactions and what other devices of the account sent.

        Raises:
            InvalidFrame: the frame has another form, or reports an error.
        """
        try:
            found = _Frame.model_validate_json(frame)
        except ValidationError as error:
            raise InvalidFrame("signal-cli sent a message in another form") from error
        if found.error is not None:
            raise InvalidFrame("signal-cli reports an error")
        envelope = found.envelope
        if envelope is None or not envelope.source or not re.fullmatch(r"[0-9a-fA-F-]{36}", envelope.source):
            return None
        if envelope.edit is not None:
            first = self._edits.get((envelope.source, envelope.edit.target), envelope.edit.target)
            self._remember(envelope.source, envelope.edit.data.timestamp, first)
            return self._create(envelope.source, envelope.edit.data, first, is_edit=True)
        data = envelope.data
        if data is None:
            return None
        if data.deletion is not None:
            target = data.deletion.timestamp
            first = self._edits.get((envelope.source, target), target)
            return self._create(envelope.source, _Data(timestamp=first, groupInfo=data.group), first, is_edit=True)
        if data.message is None and not data.attachments and data.sticker is None:
            return None  # a reaction, a change of the group or of the timer
        return self._create(envelope.source, data, data.timestamp, is_edit=False)

    def _remember(self, source: str, version: int, first: int) -> None:
        self._edits[source, version] = first
        while len(self._edits) > _MOST_EDITS:
            del self._edits[next(iter(self._edits))]

    def _create(self, source: str, data: _Data, time: int, *, is_edit: bool) -> Incoming:
        """Return a message. Its id has its sender, so that only they can edit it."""
        text = data.message or ""
        is_mention = any(each.number == self.number for each in data.mentions)
        if any(each.number == self.number and each.start == 0 for each in data.mentions):
            text = text.removeprefix(_PLACEHOLDER).strip()
        is_reply = data.quote is not None and data.quote.author_number == self.number
        return Incoming(
            source if data.group is None else to_group(data.group.id),
            f"{time}-{source}",
            source,
            text,
            is_group=data.group is not None,
            is_mention=is_mention or is_reply,
            is_edit=is_edit,
            files=tuple(self._create_file(each) for each in data.attachments),
        )

    def _create_file(self, file: _Attachment) -> IncomingFile:
        async def read(most: int) -> bytes:
            return await self.read_file(file.id, most)

        return IncomingFile(file.filename or "", file.kind or "", file.size, read)


def to_group(id: str) -> str:
    """Return the address of a group for sending, by its id in messages."""
    return f"group.{base64.b64encode(id.encode()).decode()}"


def check_answer(status: int, text: str, retry_after: str) -> None:
    """Raise what the answer to a message says about it, but that it was sent."""
    if status == 429:
        wait_s = parse_number(retry_after)
        raise NotSent("too many messages", retry_s=_LONG_RETRY_S if wait_s is None else float(wait_s))
    if status in {401, 403, 404, 405} or 300 <= status < 400:
        raise NotSent(f"signal-cli answers {status}", retry_s=_LONG_RETRY_S)
    if status == 400 and _REFUSALS.match(_read_error(text)):
        raise Rejected(_read_error(text)[:200])
    if status not in {200, 201}:
        raise SendUnknown(f"signal-cli answers {status}")


def _read_error(text: str) -> str:
    found = re.search(r'"error"\s*:\s*"([^"]*)', text)
    return found[1] if found else ""
