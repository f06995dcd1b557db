"""Slack, with its own SDK: events by Socket Mode or by signed requests.

An event is acknowledged only after it was recorded; Slack delivers others again, and what came during a longer absence
is read from the history. Events are taken one after another: an acknowledgement out of order could lose an edit.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web
from slack_sdk.signature import SignatureVerifier

from hermes_exec.config.check import validate_table
from hermes_exec.config.secrets import resolve_secrets
from hermes_exec.errors import ConfigError, HermesError
from hermes_exec_agent.frontends.gateway.adapter import AdapterTraits, PlatformDown
from hermes_exec_agent.frontends.gateway.listener import check_path_name
from hermes_exec_agent.frontends.gateway.payloads import to_table
from hermes_exec_agent.frontends.gateway.slack_history import MissedMessages
from hermes_exec_agent.frontends.gateway.slack_messages import parse_body, parse_payload, translate_error
from hermes_exec_agent.frontends.gateway.slack_sender import (
    ERRORS,
    LARGEST_FILE,
    LONGEST,
    SlackSender,
    SlackSettings,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Incoming

_SHORTEST_S, _PAUSE_S = 5.0, 1.0
"""After a connection that Slack replaces this early, the next one waits for a moment."""


def create(name: str, table: Mapping[str, object]) -> SlackAdapter:
    """Return the adapter of an account, whose id is the name of its table.

    Raises:
        ConfigError: the table is wrong, or one of its secrets is missing or has another form.
    """
    where = f"[gateway.platforms.{name}]"
    settings = validate_table(SlackSettings, table, where)
    check_path_name(name, where)
    sources = {"token": settings.token}
    second = "signing_secret" if settings.webhook else "app_token"
    source = settings.signing_secret if settings.webhook else settings.app_token
    if source is None:
        reason = "with webhook = true" if settings.webhook else "without webhook = true"
        raise ConfigError(f"{where} {second}: it is missing, and needed {reason}")
    found = resolve_secrets({**sources, second: source}, os.environ)
    for key, prefix in (("token", "xoxb-"), ("app_token", "xapp-")):
        if key in found and not re.fullmatch(rf"{prefix}[A-Za-z0-9-]+", found[key].reveal()):
            raise ConfigError(f"{where} {key}: it has another form than {prefix}...")
    return SlackAdapter(name, settings, found["token"], found[second])


class SlackAdapter(SlackSender):
    """One app in one workspace."""

    platform = "slack"

    def __init__(self, name: str, settings: SlackSettings, token: Secret, second: Secret) -> None:
        """``second`` is the token of Socket Mode, or with ``webhook`` the signing secret."""
        self.account = name
        self.path = f"/{name}" if settings.webhook else ""
        self.traits = AdapterTraits(
            LONGEST, "utf16", settings.interval_s,
            has_buttons=True, largest_file=LARGEST_FILE, can_edit=True, repeat="find",
        )  # fmt: skip
        super().__init__(settings, token)
        self._second = second
        self._accept: Callable[[Incoming], Awaitable[None]] | None = None
        self._find: Callable[[], Awaitable[Mapping[str, str]]] | None = None

    def set_positions(self, find: Callable[[], Awaitable[Mapping[str, str]]]) -> None:
        """Take the function that returns the newest message of each chat that was seen."""
        self._find = find

    async def receive(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Take events from a WebSocket, or let `handle` take them, until the account no longer works."""
        try:
            await self._identify()
            if self._find is not None:
                await MissedMessages(self._web, partial(self._take, accept=accept)).read(await self._find())
            if not self._settings.webhook:
                await self._serve_socket(accept, ready)
            self._accept = accept
            ready()
            while True:
                await asyncio.sleep(self._settings.check_s)
                await self._web.auth_test()
        except ERRORS as error:
            raise PlatformDown(str(translate_error(error))) from error
        finally:
            self._accept = None

    async def _serve_socket(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Take events until the connection fails; on Slack's request, connect again."""
        async with aiohttp.ClientSession() as session:
            while True:
                opened = await self._web.apps_connections_open(app_token=self._second.reveal())
                async with asyncio.timeout(self._settings.limit_s):
                    socket = await session.ws_connect(str(opened["url"]), heartbeat=20.0)
                began = asyncio.get_running_loop().time()
                async with socket:
                    ready()
                    if not await self._serve_frames(socket, accept):
                        raise PlatformDown("Slack ended the connection")
                if asyncio.get_running_loop().time() - began < _SHORTEST_S:
                    await asyncio.sleep(_PAUSE_S)

    async def _serve_frames(
        self, socket: aiohttp.ClientWebSocketResponse, accept: Callable[[Incoming], Awaitable[None]]
    ) -> bool:
        """Take the events of a connection; return whether Slack asked for another one."""
        async for frame in socket:
            if frame.type != aiohttp.WSMsgType.TEXT:
                continue
            envelope = to_table(json.loads(frame.data))
            if envelope.get("type") == "disconnect":
                return True
            if payload := to_table(envelope.get("payload")):
                await self._take(payload, accept)
            if id := envelope.get("envelope_id"):
                await socket.send_json({"envelope_id": id})
        return False

    async def _take(self, payload: Mapping[str, Any], accept: Callable[[Incoming], Awaitable[None]]) -> None:
        if (incoming := parse_payload(payload, self._me, self._read)) is not None:
            await accept(incoming)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request of Slack."""
        body = await request.read()
        if not self.path or not self._is_signed(request.headers, body):
            return web.Response(status=401)
        if (accept := self._accept) is None:
            return web.Response(status=503)
        if (payload := parse_body(request.content_type, body)) is None:
            return web.Response(status=400)
        if payload.get("type") == "url_verification":
            return web.json_response({"challenge": str(payload.get("challenge"))})
        try:
            await self._take(payload, accept)
        except HermesError:
            return web.Response(status=503)
        return web.Response()

    def _is_signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether Slack signed a request within the last five minutes."""
        try:
            return SignatureVerifier(self._second.reveal()).is_valid_request(body, dict(headers))
        except (ValueError, TypeError):  # of a time or a signature with other characters
            return False
