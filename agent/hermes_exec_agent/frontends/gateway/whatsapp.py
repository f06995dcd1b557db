"""WhatsApp's Cloud API, by signed webhooks.

A webhook is answered only after its messages were recorded; WhatsApp delivers others again.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
from typing import TYPE_CHECKING

from aiohttp import web

from hermes_exec.config.check import validate_table
from hermes_exec.config.secrets import resolve_secrets
from hermes_exec.errors import HermesError
from hermes_exec_agent.frontends.gateway.adapter import AdapterTraits, NotSent, PlatformDown, Rejected, SendUnknown
from hermes_exec_agent.frontends.gateway.listener import check_path_name
from hermes_exec_agent.frontends.gateway.whatsapp_messages import WINDOW_CLOSED, parse_webhook
from hermes_exec_agent.frontends.gateway.whatsapp_sender import (
    LARGEST_FILE,
    LONGEST,
    WhatsAppSender,
    WhatsAppSettings,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.frontends.gateway.adapter import Incoming, ReportLate
    from hermes_exec_agent.frontends.gateway.whatsapp_messages import Status

_log = logging.getLogger("hermes_exec.gateway")


def create(name: str, table: Mapping[str, object]) -> WhatsAppAdapter:
    """Return the adapter of an account.

    Raises:
        ConfigError: the table is wrong, or one of its secrets is missing.
    """
    where = f"[gateway.platforms.{name}]"
    settings = validate_table(WhatsAppSettings, table, where)
    check_path_name(name, where)
    sources = {"token": settings.token, "app_secret": settings.app_secret, "verify_token": settings.verify_token}
    return WhatsAppAdapter(name, settings, resolve_secrets(sources, os.environ))


class WhatsAppAdapter(WhatsAppSender):
    """One telephone number of a business."""

    platform = "whatsapp"

    def __init__(self, name: str, settings: WhatsAppSettings, secrets: Mapping[str, Secret]) -> None:
        """``secrets`` are those of the settings, by their keys."""
        self.path = f"/{name}"
        self.traits = AdapterTraits(LONGEST, "utf16", settings.interval_s, has_buttons=True, largest_file=LARGEST_FILE)
        super().__init__(settings, secrets)
        self._accept: Callable[[Incoming], Awaitable[None]] | None = None
        self._report: ReportLate | None = None

    async def receive(self, accept: Callable[[Incoming], Awaitable[None]], ready: Callable[[], None]) -> None:
        """Let `handle` take messages, and test the account from time to time."""
        try:
            await self._call("GET", f"{self.account}?fields=id")
            self._accept = accept
            ready()
            while True:
                await asyncio.sleep(self._settings.check_s)
                await self._call("GET", f"{self.account}?fields=id")
        except (NotSent, Rejected, SendUnknown) as error:
            raise PlatformDown(str(error)) from error
        finally:
            self._accept = None

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a webhook, or the question with which WhatsApp verifies its address."""
        if request.method == "GET":
            given, wanted = request.query.get("hub.verify_token", ""), self._secrets["verify_token"].reveal()
            if request.query.get("hub.mode") != "subscribe" or not hmac.compare_digest(given.encode(), wanted.encode()):
                return web.Response(status=403)
            return web.Response(text=request.query.get("hub.challenge", ""))
        body = await request.read()
        digest = hmac.new(self._secrets["app_secret"].reveal().encode(), body, hashlib.sha256).hexdigest()
        signature = request.headers.get("X-Hub-Signature-256", "")
        if not hmac.compare_digest(signature.encode("utf-8", "surrogateescape"), f"sha256={digest}".encode()):
            return web.Response(status=401)
        if (accept := self._accept) is None:
            return web.Response(status=503)
        if (updates := parse_webhook(body, self.account, self._read)) is None:
            return web.Response(status=400)
        try:
            for incoming in updates.messages:
                await accept(incoming)
        except HermesError:
            return web.Response(status=503)
        await asyncio.gather(*(self._take_status(each) for each in updates.statuses))  # each may wait for its piece
        return web.Response()

    def set_report(self, report: ReportLate) -> None:
        """Take the function that records that a message was refused after it had been taken."""
        self._report = report

    async def _take_status(self, status: Status) -> None:
        """Record a message that was taken and then not delivered; send a template if the person's 24 hours are over."""
        chat, text = self._sent.pop(status.id, ("", "")) if status.status != "sent" else ("", "")
        if status.status != "failed":
            return
        code, reason = (status.errors[0].code if status.errors else 0), "see the list of WhatsApp's errors"
        if code == WINDOW_CLOSED:
            reason = "the person has not written for 24 hours"
            try:
                if chat and (templated := await self._send_template(chat, text)) is not None:
                    await self._record(status.id, replacement=templated)
                    return
            except HermesError as error:
                reason = f"{reason}, and the template was not sent: {error}"
        line = f"taken, and later not delivered (error {code}): {reason}"
        if not await self._record(status.id, line):
            _log.error("whatsapp: a message that the outbox does not have was %s", line)

    async def _record(self, receipt: str, error: str = "", *, replacement: str = "") -> bool:
        return self._report is not None and await self._report(receipt, error, replacement=replacement)
