"""A server that speaks WhatsApp's protocols: the routes of the Graph API, and signed webhooks."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import re
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from hermes_exec.config.secrets import Secret
from tests.rigs.bounded import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec_agent.frontends.gateway.whatsapp import WhatsAppAdapter

TOKEN, APP_SECRET, VERIFY = "EAA" + "t" * 40, "s" * 32, "verify-me"
PHONE, NUMBER, GROUP = "106540352242922", "15550783881", "Y2FwaV9ncm91cDoxNTU1MDc4Mzg4MTo5OTkZD"
LONGEST = 4096
TYPES = {
    "image/jpeg": 5 << 20, "image/png": 5 << 20, "audio/ogg": 16 << 20, "audio/mpeg": 16 << 20, "video/mp4": 16 << 20,
    "text/plain": 100 << 20, "application/pdf": 100 << 20,
}  # fmt: skip


class WhatsAppRig:
    """The server, as the conformance suite needs it."""

    redelivers = True

    def __init__(self) -> None:
        self.url = self.webhook = self.own_webhook = ""
        self.sent: list[dict[str, Any]] = []
        self.faults: deque[str] = deque()
        self.updates: deque[dict[str, Any]] = deque()
        """The values of webhooks that were not acknowledged."""
        self.statuses: list[int] = []
        """What the gateway answered to webhooks."""
        self.media: dict[str, dict[str, Any]] = {}
        self.closed: set[str] = set()
        """The recipients that have not written for 24 hours."""
        self.refuses_late = False
        """Whether a text to one of these is taken, and reported as failed by a webhook."""
        self.calls: list[str] = []
        self.delay_s = 0.0
        self.is_down = False
        self.duplicates = False
        self.deliverer: asyncio.Task[None]
        self._names: dict[str, int] = {}
        self._count = 0
        self._changed = asyncio.Event()
        self._runners: list[web.AppRunner] = []
        self._adapters: list[WhatsAppAdapter] = []

    def adapter(self, **settings: Any) -> WhatsAppAdapter:
        from hermes_exec_agent.frontends.gateway.whatsapp import WhatsAppAdapter
        from hermes_exec_agent.frontends.gateway.whatsapp_sender import WhatsAppSettings

        values: dict[str, Any] = {"interval_s": 0.0, "limit_s": 5.0, "check_s": 0.2, **settings}
        table = WhatsAppSettings(
            token="env:X", app_secret="env:X", verify_token="env:X", phone_number_id=PHONE, base_url=self.url, **values,  # type: ignore[arg-type]  # pydantic parses them
        )  # fmt: skip
        secrets = {"token": TOKEN, "app_secret": APP_SECRET, "verify_token": VERIFY}
        self._adapters.append(
            WhatsAppAdapter("whatsapp", table, {name: Secret(name, each) for name, each in secrets.items()})
        )
        return self._adapters[-1]

    # People

    def number(self, name: str) -> str:
        return str(16500000000 + self._names.setdefault(name, len(self._names)))

    def user(self, name: str) -> str:
        return f"US.{self.number(name)}99"

    def id(self) -> str:
        self._count += 1
        return f"wamid.HBgL{self._count:06d}AA=="

    def make(self, name: str, **fields: Any) -> dict[str, Any]:
        about = {"from": self.number(name), "from_user_id": self.user(name), "id": self.id()}
        return {**about, "timestamp": str(int(time.time())), **fields}

    async def say(
        self, name: str, text: str, *, group: bool = False, mention: bool = False, **fields: Any
    ) -> dict[str, Any]:
        self.closed.discard(self.user(name))
        body = f"@{NUMBER} {text}" if mention else text
        where = {"group_id": GROUP} if group else {}
        message = self.make(name, type="text", text={"body": body}, **where, **fields)
        self.post_messages(name, message)
        return message

    async def attach(self, name: str, content: bytes, caption: str = "", **fields: Any) -> None:
        """Send a file."""
        id = f"{len(self.media) + 1}000"
        self.media[id] = {"content": content}
        about = {"filename": fields.get("file_name", ""), "mime_type": fields.get("mime_type", ""), "caption": caption}
        document = {"id": id, **about, "file_size": fields.get("size")}
        self.post_messages(name, self.make(name, type="document", document=document))

    def files(self, name: str) -> list[tuple[str, bytes]]:
        """The files that a person got."""
        found = [each for each in self.sent if each.get("recipient") == self.user(name) and each["type"] == "document"]
        return [(each["document"]["filename"], self.media[each["document"]["id"]]["content"]) for each in found]

    async def edit(self, name: str, text: str, original: str) -> None:
        content = {"type": "text", "text": {"body": text}}
        self.post_messages(
            name, self.make(name, type="edit", edit={"original_message_id": original, "message": content})
        )

    async def delete(self, name: str, original: str) -> None:
        self.post_messages(name, self.make(name, type="revoke", revoke={"original_message_id": original}))

    async def press(self, name: str, choice: str) -> None:
        """Press a button of the latest message that has one so labelled."""
        message = next(each for each in reversed(self.sent) if choice in str(each.get("interactive", "")))
        buttons = [each["reply"] for each in message["interactive"]["action"]["buttons"]]
        reply = next(each for each in buttons if each["title"] == choice)
        context = {"from": NUMBER, "id": message["id"]}
        interactive = {"type": "button_reply", "button_reply": reply}
        where = {"group_id": GROUP} if message.get("recipient_type") == "group" else {}
        self.post_messages(name, self.make(name, type="interactive", interactive=interactive, context=context, **where))

    def post_messages(self, name: str, *messages: dict[str, Any]) -> None:
        contact = {"profile": {"name": name}, "wa_id": self.number(name), "user_id": self.user(name)}
        self.post({"contacts": [contact], "messages": list(messages)})

    def post(self, value: dict[str, Any]) -> None:
        metadata = {"display_phone_number": NUMBER, "phone_number_id": PHONE}
        self.updates.append({"messaging_product": "whatsapp", "metadata": metadata, **value})
        self._changed.set()

    def texts(self, name: str) -> list[str]:
        return [each["plain"] for each in self.sent if each.get("recipient") == self.user(name)]

    def group_texts(self) -> list[str]:
        return [each["plain"] for each in self.sent if each.get("to") == GROUP]

    async def fail(self, kind: str) -> None:
        self.faults.append(kind)

    async def cut(self) -> None:
        self.is_down = True
        await until(lambda: self.calls[-1] == "down")
        self.is_down = False

    # Webhooks

    async def deliver(self) -> None:
        """Send each webhook to the gateway's listener until it is acknowledged."""
        async with aiohttp.ClientSession() as session:
            while True:
                while self.updates:
                    status = 0
                    for _ in range(2 if self.duplicates else 1):
                        status = await self.request(session, self.wrap(self.updates[0]))
                    if status == 200:
                        self.updates.popleft()
                    else:
                        await asyncio.sleep(0.05)
                self._changed.clear()
                await self._changed.wait()

    def wrap(self, *values: dict[str, Any]) -> dict[str, Any]:
        changes = [{"field": "messages", "value": each} for each in values]
        return {"object": "whatsapp_business_account", "entry": [{"id": "102290129340398", "changes": changes}]}

    async def request(self, session: aiohttp.ClientSession, payload: object, *, key: str = APP_SECRET) -> int:
        """Send a signed webhook; return the status of the answer."""
        body = json.dumps(payload).encode()
        headers = {"Content-Type": "application/json", "X-Hub-Signature-256": sign(body, key)}
        try:
            async with session.post(self.webhook, data=body, headers=headers) as response:
                self.statuses.append(response.status)
                return response.status
        except aiohttp.ClientError:
            return 0

    # The Graph API

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a call."""
        self.calls.append("down" if self.is_down else request.path)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _fail(401, 190, "Invalid OAuth access token")
        if self.is_down:
            return web.Response(status=503, text="<html>down</html>", content_type="text/html")
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        path = request.match_info["path"]
        if path == f"{PHONE}/messages" and request.method == "POST":
            return await self._send(request, await request.json())
        if path == f"{PHONE}/media" and request.method == "POST":
            return await self._upload(request)
        if path == PHONE:
            return web.json_response({"id": PHONE, "display_phone_number": NUMBER})
        if path in self.media and request.query.get("phone_number_id") == PHONE:
            return web.json_response({"id": path, "url": self.media[path].get("url", f"{self.url}/content/{path}")})
        return _fail(400, 100, "Unsupported request")

    async def _send(self, request: web.Request, form: dict[str, Any]) -> web.StreamResponse:
        fault = self.faults.popleft() if self.faults else ""
        match fault:
            case "flood":
                return _fail(400, 130429, "Rate limit hit", {"Retry-After": "1"})
            case "rejected":
                return _fail(400, 131026, "Message undeliverable")
            case "auth":
                return _fail(401, 190, "Error validating access token")
            case "lost":
                return _drop(request)
            case "proxy":
                return web.Response(status=404, text="<html>", content_type="text/html")
            case _:
                pass
        if form.get("messaging_product") != "whatsapp" or bool(form.get("to")) == bool(form.get("recipient")):
            return _fail(400, 100, "Invalid parameter")
        if (error := self._check(form)) is not None:
            return _fail(400, error, "Refused")
        self.sent.append({**form, "id": self.id(), "plain": _show(form)})
        chat = form.get("recipient") or form["to"]
        if chat in self.closed and self.refuses_late and form["type"] != "template":
            self.post({"statuses": [{
                "id": self.sent[-1]["id"], "status": "failed", "timestamp": "1", "recipient_id": chat,
                "errors": [{"code": 131047, "title": "Re-engagement message"}],
            }]})  # fmt: skip
        if fault == "unknown":
            return _drop(request)
        if fault == "5xx":
            return _fail(500, 131000, "Something went wrong")
        return web.json_response({
            "messaging_product": "whatsapp", "contacts": [{"input": chat, "wa_id": chat, "user_id": chat}],
            "messages": [{"id": self.sent[-1]["id"]}],
        })  # fmt: skip

    def _check(self, form: dict[str, Any]) -> int | None:
        """Return the error of a message that the API refuses."""
        chat = form.get("recipient") or form["to"]
        if chat in self.closed and not self.refuses_late and form["type"] != "template":
            return 131047
        text = _show(form)
        if form["type"] == "text" and not 0 < len(text) <= LONGEST:
            return 100
        if form["type"] == "interactive":
            buttons = form["interactive"]["action"]["buttons"]
            if (
                len(text) > 1024
                or not 0 < len(buttons) <= 3
                or any(len(each["reply"]["title"]) > 20 for each in buttons)
            ):
                return 131009
        if form["type"] == "template" and (len(text) > 1024 or re.search(r"[\n\t]| {4}", text)):
            return 132012
        if form["type"] in {"image", "document", "audio", "video"} and form[form["type"]]["id"] not in self.media:
            return 131052
        return None

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        if self.faults and self.faults[0] == "upload":
            self.faults.popleft()
            return _drop(request)
        file = form["file"]
        assert isinstance(file, web.FileField)
        content = file.file.read()
        if len(content) > TYPES.get(str(form["type"]), -1):
            return _fail(400, 100, "Param file must be a file with one of the following types")
        id = f"{len(self.media) + 1}000"
        self.media[id] = {"content": content, "name": file.filename, "type": form["type"]}
        return web.json_response({"id": id})

    async def serve_content(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        return web.Response(body=self.media[request.match_info["id"]]["content"])

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncGenerator[WhatsAppRig]:
        """Start the server, and end it."""
        app = web.Application(client_max_size=1 << 27)
        app.router.add_get("/v26.0/content/{id}", self.serve_content)
        app.router.add_route("*", "/v26.0/{path:.+}", self.handle)
        self.url = f"{await self._start(app)}/v26.0"
        hook = web.Application(client_max_size=1 << 20)
        hook.router.add_route("*", "/whatsapp", self._hand_over)
        self.webhook = self.own_webhook = f"{await self._start(hook)}/whatsapp"
        self.deliverer = asyncio.create_task(self.deliver())
        try:
            yield self
        finally:
            self.deliverer.cancel()
            for runner in self._runners:
                await runner.cleanup()

    async def _start(self, app: web.Application) -> str:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self._runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def _hand_over(self, request: web.Request) -> web.Response:
        """Answer as the gateway's listener does: with an adapter that receives, if there is one."""
        for adapter in reversed(self._adapters):
            if (response := await adapter.handle(request)).status != 503:
                return response
        return web.Response(status=503)


def sign(body: bytes, key: str = APP_SECRET) -> str:
    """Return the signature of a webhook."""
    return f"sha256={hmac.new(key.encode(), body, hashlib.sha256).hexdigest()}"


def _show(form: dict[str, Any]) -> str:
    """Return the text that a person reads."""
    match form["type"]:
        case "text":
            text = form["text"]["body"]
        case "interactive":
            text = form["interactive"]["body"]["text"]
        case "template":
            text = form["template"]["components"][0]["parameters"][0]["text"]
        case kind:
            text = form[kind].get("filename", "")
    return str(text).replace("\u200b", "")


def _fail(status: int, code: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    error = {"message": f"(#{code}) {text}", "type": "OAuthException", "code": code, "fbtrace_id": "A"}
    return web.json_response({"error": error}, status=status, headers=headers)


def _drop(request: web.Request) -> web.Response:
    """End the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
