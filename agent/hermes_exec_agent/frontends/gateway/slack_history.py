"""What was written in known chats of Slack while the gateway was away, for longer than Slack delivers events again."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

from slack_sdk.errors import SlackApiError

from hermes_exec_agent.frontends.gateway.adapter import NotSent, Rejected
from hermes_exec_agent.frontends.gateway.payloads import to_table
from hermes_exec_agent.frontends.gateway.slack_messages import AccountRefused, split_chat, translate_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_log = logging.getLogger("hermes_exec.gateway")
_MOST_CHATS = 200
_MOST_MISSED = 1000
"""Messages of a chat that are read."""
_MOST_THREADS = 20
"""Threads of a chat, begun meanwhile, that are read."""
_PAGE = 200
_LIMIT_S = 60.0
"""For all chats. Slack delivers events again for six minutes, so what is written meanwhile is not missed."""


class MissedMessages:
    """Reads histories within limits of time and number."""

    def __init__(self, web: Any, take: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        """``web`` is the client of the Web API; ``take`` takes the payload of an event."""
        self._web = web
        self._take = take
        self._ends = 0.0

    async def read(self, positions: Mapping[str, str]) -> None:
        """Pass on the messages after the position of each chat, the chats with the newest positions first.

        A chat that the app may not read, and what the limits leave out, is named in the log.

        Raises:
            SlackApiError, aiohttp.ClientError, OSError: Slack cannot be reached.
            HermesError: a message was not accepted.
        """
        self._ends = asyncio.get_running_loop().time() + _LIMIT_S
        chats = sorted(positions.items(), key=lambda each: each[1], reverse=True)
        for number, (chat, last) in enumerate(chats):
            if number >= _MOST_CHATS or asyncio.get_running_loop().time() > self._ends:
                _log.error("slack: %d chats were not searched for missed messages", len(chats) - number)
                return
            await self._read_chat(chat, last)

    async def _read_chat(self, chat: str, last: str) -> None:
        channel, thread = split_chat(chat)
        try:
            missed = await self._list(channel, thread, last)
            begun = [] if thread else [each for each in missed if each.get("reply_count")][:_MOST_THREADS]
            for each in begun:
                missed += await self._list(channel, str(each.get("ts", "")), last)
        except SlackApiError as error:
            reason = translate_error(error)
            if isinstance(reason, Rejected | NotSent):
                _log.warning("slack: a chat was not searched for missed messages: %s", reason)
                return
            raise
        for each in sorted(missed, key=lambda each: str(each.get("ts", ""))):
            await self._take({"event": {**each, "channel": channel}})

    async def _list(self, channel: str, thread: str | None, last: str) -> list[dict[str, Any]]:
        """Return the messages of a chat after a position; of too many, those that Slack lists first."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while len(found) < _MOST_MISSED:
            about: dict[str, Any] = {"channel": channel, "oldest": last, "limit": _PAGE, "cursor": cursor}
            page = await self._ask({**about, "ts": thread} if thread else about)
            messages = page.get("messages")
            listed = [to_table(each) for each in cast("list[object]", messages)] if isinstance(messages, list) else []
            found += [each for each in listed if str(each.get("ts", "")) > last]  # a thread begins with its root
            cursor = to_table(page.get("response_metadata")).get("next_cursor")
            if not cursor:
                return found
        _log.error("slack: more than %d messages of a chat were missed; the others were not read", _MOST_MISSED)
        return found

    async def _ask(self, about: Mapping[str, Any]) -> Any:
        """Return a page, after the wait that Slack states, if that ends in time."""
        while True:
            try:
                if "ts" in about:
                    return await self._web.conversations_replies(**about)
                return await self._web.conversations_history(**about)
            except SlackApiError as error:
                reason = translate_error(error)
                clock = asyncio.get_running_loop().time
                if not isinstance(reason, NotSent) or isinstance(reason, AccountRefused):
                    raise
                if clock() + reason.retry_s > self._ends:
                    raise
                await asyncio.sleep(reason.retry_s)
