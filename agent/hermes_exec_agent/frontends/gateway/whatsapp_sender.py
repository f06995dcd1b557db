"""WhatsApp's Graph API: texts, buttons, templates and files.

A person who has not written for 24 hours gets a template. The API takes no key that would make sending idempotent.
"""

from __future__ import annotations

import io
import json
import mimetypes
from typing import TYPE_CHECKING, Any

import aiohttp
from pydantic import BaseModel, Field

from hermes_exec.config.values import Source
from hermes_exec_agent.frontends.gateway.adapter import NotSent, PlatformDown, Rejected, SendUnknown
from hermes_exec_agent.frontends.gateway.downloads import check_address, download
from hermes_exec_agent.frontends.gateway.mrkdwn import to_marks
from hermes_exec_agent.frontends.gateway.payloads import to_table
from hermes_exec_agent.frontends.gateway.whatsapp_messages import (
    RETRY_S,
    WindowClosed,
    to_content,
    to_recipient,
    to_template,
    translate_answer,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Choice
    from hermes_exec_agent.frontends.gateway.whatsapp_messages import Media

LONGEST = 4096
LARGEST_FILE = 16 << 20
_LARGEST_IMAGE = 5 << 20
_REMEMBERED = 1000
"""Messages whose texts are kept in memory until their delivery is reported, because that may be a refusal."""
_HOSTS = ("facebook.com", "fbsbx.com", "whatsapp.net")
_KINDS = {
    "image/jpeg": "image", "image/png": "image", "video/mp4": "video", "video/3gpp": "video",
    "audio/aac": "audio", "audio/mp4": "audio", "audio/mpeg": "audio", "audio/amr": "audio", "audio/ogg": "audio",
    "application/pdf": "document", "application/msword": "document", "application/vnd.ms-excel": "document",
    "application/vnd.ms-powerpoint": "document",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "document",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "document",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "document",
}  # fmt: skip
"""The kind of message for each type of file that the API takes; text is a document, too."""


class WhatsAppSettings(BaseModel, frozen=True, extra="forbid", strict=True):
    """One telephone number of a business."""

    token: Source
    """The source of the access token of a system user."""
    app_secret: Source
    """The source of the app's secret, which signs webhooks."""
    verify_token: Source
    """The source of the word that the app's webhook was set up with."""
    phone_number_id: str = Field(pattern=r"^[0-9]{1,32}$")
    template: str = Field(default="", pattern=r"^[a-z0-9_]*$")
    """An approved template with one parameter in its body, for persons who have not written for 24 hours."""
    template_language: str = Field(default="en_US", pattern=r"^[A-Za-z_]{2,10}$")
    base_url: str = Field(default="https://graph.facebook.com/v26.0", pattern="https?://.+")
    interval_s: float = Field(default=1.0, ge=0)
    """The shortest time between two messages in one chat."""
    limit_s: float = Field(default=20.0, gt=0)
    """Seconds to wait for an answer."""
    check_s: float = Field(default=300.0, gt=0)
    """Seconds between two tests of the account."""


class WhatsAppSender:
    """The half of an account that sends."""

    def __init__(self, settings: WhatsAppSettings, secrets: Mapping[str, Secret]) -> None:
        self.account = settings.phone_number_id
        self._settings = settings
        self._secrets = secrets
        self._sent: dict[str, tuple[str, str]] = {}
        """The chat and the text of each message that was taken lately, by its receipt."""

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = (), *, key: str) -> str:  # noqa: ARG002  the API takes no key
        """Send a text, or a template if the person has not written for 24 hours."""
        try:
            receipt = await self._post(chat, to_content(text, choices))
        except WindowClosed:
            if (templated := await self._send_template(chat, text)) is None:
                raise
            return templated
        self._sent[receipt] = chat, text
        if len(self._sent) > _REMEMBERED:
            del self._sent[next(iter(self._sent))]
        return receipt

    async def _send_template(self, chat: str, text: str) -> str | None:
        """Send a text as the parameter of the template; None if none is configured."""
        settings = self._settings
        if not settings.template:
            return None
        return await self._post(chat, to_template(text, settings.template, settings.template_language))

    async def send_file(self, chat: str, name: str, content: bytes, *, key: str) -> str:  # noqa: ARG002  the API takes no key
        """Upload a file and send it; nothing of it is seen before the last request."""
        type_ = mimetypes.guess_type(name)[0] or ""
        kind = _KINDS.get(type_, "")
        if not kind:
            kind, type_ = "document", "text/plain"
            try:
                content.decode()
            except UnicodeDecodeError:
                raise Rejected("WhatsApp takes no files of this type") from None
        if kind == "image" and len(content) > _LARGEST_IMAGE:
            raise Rejected(f"WhatsApp takes images of at most {_LARGEST_IMAGE >> 20} MiB")
        form = aiohttp.FormData({"messaging_product": "whatsapp", "type": type_})
        form.add_field("file", io.BytesIO(content), filename=name, content_type=type_)
        try:
            media = {"id": str((await self._call("POST", f"{self.account}/media", data=form))["id"])}
        except (SendUnknown, KeyError) as error:
            raise NotSent("the file was not uploaded", retry_s=RETRY_S) from error
        return await self._post(chat, {"type": kind, kind: media | ({"filename": name} if kind == "document" else {})})

    def render(self, text: str) -> str:
        """Return Markdown with the marks of WhatsApp."""
        return to_marks(text)

    async def close(self) -> None:
        """Nothing is held: each request has a connection of its own."""

    async def _post(self, chat: str, content: Mapping[str, object]) -> str:
        """Send a message of any kind, and return its id."""
        message = {"messaging_product": "whatsapp", **to_recipient(chat), **content}
        data = await self._call("POST", f"{self.account}/messages", json=message)
        try:
            return str(data["messages"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise SendUnknown("the Graph API answered without the id of the message") from None

    async def _call(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        settings = self._settings
        headers = {"Authorization": f"Bearer {self._secrets['token'].reveal()}"}
        timeout = aiohttp.ClientTimeout(total=settings.limit_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
                session.request(method, f"{settings.base_url}/{path}", allow_redirects=False, **content) as response,
            ):
                status, wait, body = response.status, response.headers.get("Retry-After", ""), await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent(f"the Graph API cannot be reached ({type(error).__name__})", retry_s=RETRY_S) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise SendUnknown(f"no answer came from the Graph API ({type(error).__name__})") from error
        try:
            data: object = json.loads(body)
        except (ValueError, RecursionError):
            data = None
        if status == 200 and (table := to_table(data)):
            return table
        raise (
            SendUnknown("the Graph API gave an invalid answer")
            if status == 200
            else translate_answer(status, data, wait)
        )

    async def _read(self, media: Media, limit: int) -> bytes:
        """Return the content of a file."""
        try:
            address = str((await self._call("GET", f"{media.id}?phone_number_id={self.account}"))["url"])
        except (NotSent, SendUnknown, KeyError) as error:
            raise PlatformDown("the address of a file cannot be read") from error
        check_address(address, _HOSTS, self._settings.base_url)
        headers = {"Authorization": f"Bearer {self._secrets['token'].reveal()}"}
        return await download(address, limit, headers=headers, limit_s=self._settings.limit_s * 6)
