"""Slack's Web API, with its own SDK: messages, edits, files, and the search for a message that may have arrived.

Each message carries its key as metadata, so that the gateway can look up after a kill whether it arrived.
"""

from __future__ import annotations

import asyncio
import io
import logging
from typing import TYPE_CHECKING, Any

import aiohttp
from pydantic import BaseModel, Field
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from hermes_exec.config.values import Source
from hermes_exec_agent.frontends.gateway.adapter import NotSent, Rejected, SendUnknown
from hermes_exec_agent.frontends.gateway.downloads import check_address, download
from hermes_exec_agent.frontends.gateway.mrkdwn import to_mrkdwn
from hermes_exec_agent.frontends.gateway.payloads import to_table
from hermes_exec_agent.frontends.gateway.slack_messages import (
    RETRY_S,
    AccountRefused,
    split_chat,
    to_blocks,
    translate_error,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Choice
    from hermes_exec_agent.frontends.gateway.slack_messages import SlackFile

for _name in ("slack_sdk", "slack_sdk.web.async_base_client"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # their lines have the texts of messages
ERRORS = (SlackClientError, aiohttp.ClientError, OSError, TimeoutError, ValueError)
LONGEST = 3000
"""The limit of a section, which a message with buttons has."""
LARGEST_FILE = 50 << 20
_EVENT = "hermes_exec_piece"
_PAGES, _PAGE = 5, 200

_PLAIN: dict[str, Any] = {"parse": "none", "link_names": False}
"""Names in a text notify no user and no channel."""
_NO_PREVIEWS: dict[str, Any] = {"unfurl_links": False, "unfurl_media": False}
"""Slack opens no addresses of a text, which would send them to their servers."""


class SlackSettings(BaseModel, frozen=True, extra="forbid", strict=True):
    """One app in one workspace."""

    token: Source
    """The source of the bot's token, which begins with xoxb-."""
    app_token: Source | None = None
    """The source of the token for Socket Mode, which begins with xapp-."""
    webhook: bool = False
    """Whether events come by requests to the gateway's listener, and not by Socket Mode."""
    signing_secret: Source | None = None
    """The source of the secret that signs these requests."""
    base_url: str = Field(default="https://slack.com/api/", pattern="https?://.+")
    interval_s: float = Field(default=1.0, ge=0)
    """The shortest time between two messages in one chat."""
    limit_s: float = Field(default=20.0, gt=0)
    """Seconds to wait for an answer."""
    settle_s: float = Field(default=3.0, ge=0)
    """Seconds after which a message that was not found is looked up once more."""
    check_s: float = Field(default=300.0, gt=0)
    """With ``webhook``: seconds between two tests of the account."""


_make_client: Any = AsyncWebClient
"""Its types are incomplete, and it takes fractions of seconds, too."""


class SlackSender:
    """The half of an account that sends."""

    def __init__(self, settings: SlackSettings, token: Secret) -> None:
        self._settings = settings
        self._token = token
        # Without its handlers of retries: they would send a message again after a connection was cut.
        self._web: Any = _make_client(token.reveal(), settings.base_url, settings.limit_s, retry_handlers=[])
        self._missed: dict[str, float] = {}
        """When each key was first not found."""
        self._me = ""
        """The id of the agent's user, once it is known."""

    async def _identify(self) -> None:
        """Learn the id of the agent's user, which tests the token, too."""
        self._me = str((await self._web.auth_test())["user_id"])

    async def send(self, chat: str, text: str, choices: Sequence[Choice] = (), *, key: str) -> str:
        """Send a message with its key as metadata."""
        channel, thread = split_chat(chat)
        metadata = {"event_type": _EVENT, "event_payload": {"key": key}}
        sent = await self._call(
            self._web.chat_postMessage, channel=channel, thread_ts=thread, text=text,
            blocks=to_blocks(text, choices) or None, metadata=metadata, **_PLAIN, **_NO_PREVIEWS,
        )  # fmt: skip
        return str(sent["ts"])

    async def edit(self, chat: str, receipt: str, text: str, choices: Sequence[Choice] = ()) -> None:
        """Replace the text and the buttons of a message."""
        await self._call(
            self._web.chat_update, channel=split_chat(chat)[0], ts=receipt, text=text,
            blocks=to_blocks(text, choices), **_PLAIN,
        )  # fmt: skip

    async def find(self, chat: str, key: str) -> str | None:
        """Look up a message by its key, and once more a little later: Slack may still have been working on it.

        Slack allows some apps one look a minute, so the second one may come with a later call.
        """
        clock = asyncio.get_running_loop().time
        try:
            await self._identify()
            found = await self._look_up(chat, key)
            missed = self._missed.setdefault(key, clock())
            if found is None and (rest := missed + self._settings.settle_s - clock()) > 0:
                await asyncio.sleep(rest)
                found = await self._look_up(chat, key)
        except ERRORS as error:
            reason = translate_error(error)
            if isinstance(reason, NotSent) and not isinstance(reason, AccountRefused):
                raise reason from error
            self._missed.pop(key, None)
            raise SendUnknown(f"the message could not be looked up: {reason}") from error
        self._missed.pop(key, None)
        return found

    async def _look_up(self, chat: str, key: str) -> str | None:
        """Return the receipt of the message with this key, among the newest; see `find`.

        Files carry no key. Messages of a chat are sent one after another, so only the newest one may be in doubt, and
        the search ends at the page with the newest one that has another key; in a thread, whose oldest message comes
        first, at the last page.
        """
        channel, thread = split_chat(chat)
        cursor: str | None = None
        newest, is_keyless, is_last = "", False, False
        for _ in range(_PAGES):
            about: dict[str, Any] = {"include_all_metadata": True, "limit": _PAGE, "cursor": cursor}
            if thread is None:
                page = await self._web.conversations_history(channel=channel, **about)
            else:
                page = await self._web.conversations_replies(channel=channel, ts=thread, **about)
            for message in page["messages"]:
                if message.get("user") != self._me:
                    continue
                payload = to_table(to_table(message.get("metadata")).get("event_payload"))
                if payload.get("key") == key:
                    return str(message["ts"])
                newest, is_keyless = max((newest, is_keyless), (str(message["ts"]), "key" not in payload))
                is_last = is_last or (thread is None and "key" in payload)
            cursor = to_table(page.get("response_metadata")).get("next_cursor")
            if not cursor or is_last:
                if is_keyless:
                    raise SendUnknown("the newest message is a file, which may be the one in doubt")
                return None
        raise SendUnknown(f"the message is not among the newest {_PAGES * _PAGE}")

    async def send_file(self, chat: str, name: str, content: bytes, *, key: str) -> str:  # noqa: ARG002  files have no metadata
        """Upload a file and share it; nothing of it is seen before the last request."""
        channel, thread = split_chat(chat)
        try:
            slot = await self._web.files_getUploadURLExternal(filename=name, length=len(content))
            timeout = aiohttp.ClientTimeout(total=self._settings.limit_s * 6)
            async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session:
                await session.post(str(slot["upload_url"]), data=io.BytesIO(content), allow_redirects=False)
        except ERRORS as error:
            found = translate_error(error)
            raise NotSent(str(found), retry_s=RETRY_S) if isinstance(found, SendUnknown) else found from error
        files = [{"id": str(slot["file_id"]), "title": name}]
        await self._call(self._web.files_completeUploadExternal, files=files, channel_id=channel, thread_ts=thread)
        return str(slot["file_id"])

    def render(self, text: str) -> str:
        """Return Markdown in the form of Slack."""
        return to_mrkdwn(text)

    async def close(self) -> None:
        """Nothing is held: each request has a connection of its own."""

    async def _call(self, method: Callable[..., Awaitable[Any]], **arguments: Any) -> Any:
        try:
            return await method(**arguments)
        except ERRORS as error:
            raise translate_error(error) from error

    async def _read(self, file: SlackFile, limit: int) -> bytes:
        """Return the content of a file; Slack answers with a page for people if the app may not read it."""
        address = file.url_private_download or file.url_private
        check_address(address, ("slack.com", "slack-files.com"), self._settings.base_url)
        headers = {"Authorization": f"Bearer {self._token.reveal()}"}
        content = await download(address, limit, headers=headers, limit_s=self._settings.limit_s * 6)
        if content[:9].lower() == b"<!doctype" and "html" not in file.mimetype:
            raise Rejected("Slack does not hand it out; the app may lack the scope files:read")
        return content
