"""A server that speaks Slack's protocols: the Web API, Socket Mode's WebSocket, signed requests, and files."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import html
import json
import re
import time
from collections import deque
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import aiohttp
from aiohttp import web

from hermes_exec.config.secrets import Secret
from tests.rigs.bounded import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec_agent.frontends.gateway.slack import SlackAdapter

TOKEN = "xoxb-1-2-" + "b" * 24
APP_TOKEN = "xapp-1-A1-2-" + "c" * 24
SIGNING = "d" * 32
ME, BOT, ROOM, TEAM = "UAGENT", "BAGENT", "CROOM", "T1"
LONGEST, LONGEST_SECTION = 40_000, 3000
_LINK = re.compile(r"<(https?://[^<>|]+)(?:\|([^<>]+))?>")


def read_mrkdwn(text: str, parse: str = "none") -> tuple[str, list[str]]:
    """Return the text that people read, and the mentions that notify; as strict as Slack's rules for writing."""
    pings = re.findall(r"<!(\w+)|<@(\w+)", text)
    if parse != "none":
        pings += [(each, "") for each in re.findall(r"@(channel|here|everyone)\b", text)]
    rest = _LINK.sub("", text)
    if re.search(r"[<]|&(?!amp;|lt;|gt;)", rest) or re.search(r"(?m)(?<!^)>(?! )", re.sub(r"(?m)^(> )+", "", rest)):
        raise ValueError(f"a sign that is not escaped: {text!r}")
    if rest.count("```") % 2:
        raise ValueError(f"a code block is open at the end: {text!r}")
    shown = _LINK.sub(lambda found: found[2] or found[1], text)
    shown = re.sub(r"(?m)^(> )+", "", shown)
    return html.unescape(shown).replace("\u200b", ""), [left or right for left, right in pings]


class SlackRig:
    """The server, as the conformance suite needs it."""

    redelivers = True

    def __init__(self, *, http: bool = False) -> None:
        self.http = http
        self.url = ""
        self.channels: dict[str, list[dict[str, Any]]] = {ROOM: []}
        self.pings: list[str] = []
        self.faults: deque[str] = deque()
        self.events: deque[dict[str, Any]] = deque()
        """The envelopes that were not acknowledged."""
        self.acknowledged: list[str] = []
        self.calls: list[str] = []
        self.uploads: dict[str, dict[str, Any]] = {}
        self.shared: list[tuple[str, str | None, str, bytes]] = []
        self.changes: list[tuple[str, str, float]] = []
        """The message, the text and the time of each edit."""
        self.statuses: list[int] = []
        """What the gateway answered to requests."""
        self.webhook = self.own_webhook = ""
        self.delay_s = 0.0
        self.is_down = False
        self.blind = False
        """Whether the history cannot be read."""
        self.history_s = 0.0
        """The time between two looks at a history that the server allows."""
        self._looked_at = 0.0
        self.connections = 0
        self.connected_at = 0.0
        self.duplicates = False
        """Whether each event is sent twice."""
        self._count = 0
        self._changed = asyncio.Event()
        self._sockets: list[web.WebSocketResponse] = []
        self._requests: list[web.Request] = []
        self._runners: list[web.AppRunner] = []
        self._adapters: list[SlackAdapter] = []

    def adapter(self, **settings: Any) -> SlackAdapter:
        from hermes_exec_agent.frontends.gateway.slack import SlackAdapter
        from hermes_exec_agent.frontends.gateway.slack_sender import SlackSettings

        values: dict[str, Any] = {"interval_s": 0.0, "limit_s": 5.0, "settle_s": 0.05, "check_s": 0.2, **settings}
        table = SlackSettings(token="env:X", webhook=self.http, base_url=f"{self.url}/api/", **values)  # type: ignore[arg-type]  # pydantic parses it
        second = SIGNING if self.http else APP_TOKEN
        self._adapters.append(SlackAdapter("slack", table, Secret("token", TOKEN), Secret("second", second)))
        return self._adapters[-1]

    # People

    def stamp(self) -> str:
        self._count += 1
        return f"{int(time.time())}.{self._count:06d}"

    def user(self, name: str) -> str:
        return f"U{name.upper()}"

    def direct(self, name: str) -> str:
        return f"D{name.upper()}"

    def make(self, name: str, text: str, **fields: Any) -> dict[str, Any]:
        escaped = html.escape(text, quote=False)
        return {"type": "message", "user": self.user(name), "text": escaped, "ts": self.stamp(), "team": TEAM, **fields}

    async def say(
        self, name: str, text: str, *, group: bool = False, mention: bool = False, thread: str = "", **fields: Any
    ) -> dict[str, Any]:
        channel = ROOM if group else self.direct(name)
        self.channels.setdefault(channel, [])
        message = self.make(name, text, **({"thread_ts": thread} if thread else {}), **fields)
        if mention:
            message["text"] = f"<@{ME}> {message['text']}"
        kind = "channel" if group else "im"
        self.post_event({**message, "channel": channel, "channel_type": kind})
        if mention and group:  # the other event that Slack sends for a mention, of the same message
            self.post_event({**message, "type": "app_mention", "channel": channel})
        for root in self.channels[channel]:
            if thread and root["ts"] == thread:
                root["reply_count"] = root.get("reply_count", 0) + 1
        self.channels[channel].append(message)
        return message

    async def attach(self, name: str, content: bytes, caption: str = "", **fields: Any) -> None:
        """Send a file."""
        self._count += 1
        id, stated = f"F{self._count}", fields.pop("size", len(content))
        self.uploads[id] = {"content": content}
        about = {"name": fields.pop("file_name", "file"), "mimetype": fields.pop("mime_type", ""), "size": stated}
        file = {"id": id, **about, "url_private": f"{self.url}/files/{id}", **fields}
        await self.say(name, caption, subtype="file_share", files=[file])

    def files(self, name: str) -> list[tuple[str, bytes]]:
        """The files that a person got."""
        return [(file, content) for channel, _, file, content in self.shared if channel == self.direct(name)]

    async def edit(self, name: str, text: str) -> None:
        message = next(each for each in reversed(self.channels[self.direct(name)]) if each["user"] != ME)
        new = {
            **message,
            "text": html.escape(text, quote=False),
            "edited": {"user": message["user"], "ts": self.stamp()},
        }
        self.change(self.direct(name), message, new)

    def change(self, channel: str, before: dict[str, Any], now: dict[str, Any]) -> None:
        about = {"type": "message", "subtype": "message_changed", "channel": channel, "hidden": True}
        self.post_event({**about, "message": now, "previous_message": before, "ts": self.stamp()})

    async def delete(self, name: str) -> None:
        message = next(each for each in reversed(self.channels[self.direct(name)]) if each["user"] != ME)
        about = {"type": "message", "subtype": "message_deleted", "channel": self.direct(name), "ts": self.stamp()}
        self.post_event({**about, "deleted_ts": message["ts"], "previous_message": message})

    async def press(self, name: str, choice: str) -> None:
        """Press a button of the latest message that has one so labelled."""
        channel, message = next(
            (channel, each)
            for channel, messages in self.channels.items()
            for each in reversed(messages)
            if choice in str(each.get("blocks", ""))
        )
        button = next(
            button
            for block in message["blocks"] if block["type"] == "actions"
            for button in block["elements"] if button["text"]["text"] == choice
        )  # fmt: skip
        action = {**button, "action_ts": self.stamp(), "block_id": "b"}
        container = {"type": "message", "message_ts": message["ts"], "channel_id": channel}
        if message.get("thread_ts"):
            container["thread_ts"] = message["thread_ts"]
        self.post("interactive", {
            "type": "block_actions", "user": {"id": self.user(name), "team_id": TEAM}, "channel": {"id": channel},
            "container": container, "message": message, "actions": [action], "trigger_id": "1.2.3", "token": "old",
        })  # fmt: skip

    def post_event(self, event: dict[str, Any]) -> None:
        self._count += 1
        about = {"type": "event_callback", "team_id": TEAM, "api_app_id": "A1", "event_id": f"Ev{self._count}"}
        self.post("events_api", {**about, "event_time": int(time.time()), "event": event})

    def post(self, kind: str, payload: dict[str, Any]) -> None:
        self._count += 1
        envelope = {"envelope_id": f"e{self._count}", "type": kind, "payload": payload, "retry_attempt": 0}
        self.events.append({**envelope, "accepts_response_payload": kind == "interactive"})
        self._changed.set()

    def texts(self, name: str) -> list[str]:
        return self._plain(self.channels.get(self.direct(name), []))

    def group_texts(self) -> list[str]:
        return self._plain(self.channels[ROOM])

    def _plain(self, messages: list[dict[str, Any]]) -> list[str]:
        return [each["plain"] for each in messages if each["user"] == ME]

    async def fail(self, kind: str) -> None:
        self.faults.append(kind)

    async def cut(self) -> None:
        if self.http:
            self.is_down = True
            await until(lambda: self.calls[-1] == "auth.test:down")
            self.is_down = False
        for request in self._requests:
            if request.transport is not None:
                request.transport.abort()

    async def refresh(self) -> None:
        """Ask clients to connect again, as Slack does every few hours."""
        for socket in self._sockets:
            await socket.send_json({"type": "disconnect", "reason": "refresh_requested"})

    # Delivery

    async def serve_socket(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("ticket") != "secret-ticket":
            return web.Response(status=401)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.connections += 1
        self.connected_at = asyncio.get_running_loop().time()
        self._sockets.append(socket)
        self._requests.append(request)
        await socket.send_json({"type": "hello", "num_connections": len(self._sockets), "debug_info": {}})
        sending = asyncio.create_task(self._send_events(socket))
        try:
            async for frame in socket:
                if frame.type == aiohttp.WSMsgType.TEXT and frame.data != "Ping from client":
                    self._acknowledge(json.loads(frame.data)["envelope_id"])
        finally:
            sending.cancel()
            self._sockets.remove(socket)
            self._requests.remove(request)
        return socket

    async def _send_events(self, socket: web.WebSocketResponse) -> None:
        sent: set[str] = set()
        while True:
            for envelope in list(self.events):
                if envelope["envelope_id"] not in sent:
                    sent.add(envelope["envelope_id"])
                    for _ in range(2 if self.duplicates else 1):
                        await socket.send_json(envelope)
            self._changed.clear()
            await self._changed.wait()

    def _acknowledge(self, id: str) -> None:
        self.acknowledged.append(id)
        self.events = deque(each for each in self.events if each["envelope_id"] != id)

    async def deliver(self) -> None:
        """Send each event to the gateway's listener until it is acknowledged."""
        async with aiohttp.ClientSession() as session:
            while True:
                while self.events:
                    payload = self.events[0]["payload"]
                    status = 0
                    for _ in range(2 if self.duplicates else 1):
                        status = await self.request(session, payload)
                    if status == 200:
                        self._acknowledge(self.events[0]["envelope_id"])
                    else:
                        await asyncio.sleep(0.05)
                self._changed.clear()
                await self._changed.wait()

    async def request(
        self, session: aiohttp.ClientSession, payload: dict[str, Any], *, at: float | None = None, key: str = SIGNING
    ) -> int:
        """Send a signed request; return the status of the answer."""
        text = json.dumps(payload)
        kind = "application/json"
        if payload.get("type") == "block_actions":
            text, kind = urlencode({"payload": text}), "application/x-www-form-urlencoded"
        headers = {"Content-Type": kind, **sign(text.encode(), at=at, key=key)}
        try:
            async with session.post(self.webhook, data=text.encode(), headers=headers) as response:
                self.statuses.append(response.status)
                return response.status
        except aiohttp.ClientError:
            return 0

    # The Web API

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a call."""
        method = request.match_info["method"]
        if request.content_type == "application/json":
            form: dict[str, Any] = await request.json()
        else:
            form = {**request.query, **dict(await request.post())}
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.calls.append(f"{method}:down" if self.is_down else method)
        if token != (APP_TOKEN if method == "apps.connections.open" else TOKEN):
            return _fail("invalid_auth")
        if self.is_down:
            return web.Response(status=503, text="<html>down</html>", content_type="text/html")
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        call = getattr(self, "call_" + method.replace(".", "_"), None)
        return _fail("unknown_method") if call is None else await call(request, form)

    async def call_auth_test(self, _: web.Request, form: dict[str, Any]) -> web.StreamResponse:
        return _succeed(user_id=ME, bot_id=BOT, team_id=TEAM, user="agent", url="https://x.slack.com/")

    async def call_apps_connections_open(self, _: web.Request, form: dict[str, Any]) -> web.StreamResponse:
        return _succeed(url=self.url.replace("http", "ws", 1) + "/link?ticket=secret-ticket")

    async def call_chat_postMessage(self, request: web.Request, form: dict[str, Any]) -> web.StreamResponse:  # noqa: N802  the method's name
        fault = self.faults.popleft() if self.faults else ""
        if fault == "flood":
            return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": "1"})
        if fault == "rejected":
            return _fail("is_archived")
        if fault == "auth":
            return _fail("account_inactive")
        if fault == "lost":
            return _drop(request)
        if form["channel"] not in self.channels:
            return _fail("channel_not_found")
        message = {"type": "message", "user": ME, "bot_id": BOT, "ts": self.stamp(), **self._check(form, "none")}
        if (data := form.get("metadata")) is not None and set(data) != {"event_type", "event_payload"}:
            return _fail("invalid_metadata_format")
        for name in ("thread_ts", "metadata", "unfurl_links", "unfurl_media"):
            if form.get(name) is not None:
                message[name] = form[name]
        self.channels[form["channel"]].append(message)
        if fault == "unknown":
            return _drop(request)
        if fault == "5xx":
            return web.Response(status=502, text="<html>bad gateway</html>", content_type="text/html")
        return _succeed(channel=form["channel"], ts=message["ts"], message=message)

    async def call_chat_update(self, _: web.Request, form: dict[str, Any]) -> web.StreamResponse:
        found = [each for each in self.channels[form["channel"]] if each["ts"] == form["ts"] and each["user"] == ME]
        if not found:
            return _fail("message_not_found")
        if self.faults and self.faults[0] == "gone":
            self.faults.popleft()
            return _fail("message_not_found")
        new = self._check(form, "client")  # the default of this method, which makes names mentions
        if "blocks" not in form:
            new.pop("blocks")
        if found[0]["plain"] != new["plain"]:
            self.changes.append((form["ts"], new["plain"], time.monotonic()))
        found[0].update(new)
        return _succeed(channel=form["channel"], ts=form["ts"])

    def _check(self, form: dict[str, Any], parse: str) -> dict[str, Any]:
        """Return the text as people read it and the blocks, or raise as strictly as Slack refuses."""
        parse = form.get("parse", parse)
        plain, pings = read_mrkdwn(form["text"], parse)
        blocks: list[dict[str, Any]] = form.get("blocks") or []
        for block in blocks:
            if block["type"] == "section":
                if len(block["text"]["text"]) > LONGEST_SECTION:
                    raise ValueError("invalid_blocks: a section is too long")
                pings += read_mrkdwn(block["text"]["text"], "none" if block["text"].get("verbatim") else "full")[1]
            for button in block.get("elements", ()):
                if len(button["value"]) > 2000 or len(button["text"]["text"]) > 75:
                    raise ValueError("invalid_blocks: a button is too long")
        if not plain.strip() or len(form["text"]) > LONGEST:
            raise ValueError("no_text")
        self.pings += pings
        return {"text": form["text"], "plain": plain, "blocks": blocks}

    async def call_conversations_history(self, request: web.Request, form: dict[str, Any]) -> web.StreamResponse:
        return self._list(form, [each for each in self.channels[form["channel"]] if "thread_ts" not in each][::-1])

    async def call_conversations_replies(self, request: web.Request, form: dict[str, Any]) -> web.StreamResponse:
        thread = form["ts"]
        messages = self.channels[form["channel"]]
        return self._list(form, [each for each in messages if thread in {each["ts"], each.get("thread_ts")}])

    def _list(self, form: dict[str, Any], found: list[dict[str, Any]]) -> web.StreamResponse:
        if self.blind:
            return _fail("missing_scope")
        if time.monotonic() - self._looked_at < self.history_s:
            return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": "1"})
        self._looked_at = time.monotonic()
        found = [each for each in found if each["ts"] > form.get("oldest", "") or each["ts"] == form.get("ts")]
        start, limit = int(form.get("cursor") or 0), min(int(form.get("limit", 100)), 3)
        if str(form.get("include_all_metadata", "")) not in {"1", "true", "True"}:
            found = [{name: value for name, value in each.items() if name != "metadata"} for each in found]
        cursor = str(start + limit) if start + limit < len(found) else ""
        return _succeed(messages=found[start : start + limit], response_metadata={"next_cursor": cursor})

    async def call_files_getUploadURLExternal(self, _: web.Request, form: dict[str, Any]) -> web.StreamResponse:  # noqa: N802  the method's name
        self._count += 1
        id = f"F{self._count}"
        self.uploads[id] = {"name": form["filename"], "length": int(form["length"]), "content": None}
        return _succeed(file_id=id, upload_url=f"{self.url}/upload/{id}")

    async def upload(self, request: web.Request) -> web.StreamResponse:
        fault = self.faults.popleft() if self.faults and self.faults[0] == "upload" else ""
        file = self.uploads[request.match_info["id"]]
        file["content"] = await request.read()
        return web.Response(status=500) if fault or len(file["content"]) != file["length"] else web.Response(text="OK")

    async def call_files_completeUploadExternal(self, request: web.Request, form: dict[str, Any]) -> web.StreamResponse:  # noqa: N802  the method's name
        (file,) = json.loads(form["files"])
        found = self.uploads[file["id"]]
        fault = self.faults.popleft() if self.faults else ""
        self.shared.append((form["channel_id"], form.get("thread_ts"), file["title"], found["content"]))
        return _drop(request) if fault == "unknown" else _succeed(files=[{"id": file["id"]}])

    async def serve_file(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=302, headers={"Location": "/login"})
        file = self.uploads[request.match_info["id"]]
        if file.get("locked"):
            return web.Response(text="<!DOCTYPE html><title>Sign in</title>", content_type="text/html")
        return web.Response(body=file["content"])

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncGenerator[SlackRig]:
        """Start the server, and end it."""
        app = web.Application(client_max_size=1 << 27)
        app.router.add_route("*", "/api/{method}", self.handle)
        app.router.add_get("/link", self.serve_socket)
        app.router.add_post("/upload/{id}", self.upload)
        app.router.add_get("/files/{id}", self.serve_file)
        self.url = await self._start(app)
        hook = web.Application(client_max_size=1 << 20)
        hook.router.add_post("/slack", self._hand_over)
        self.webhook = self.own_webhook = f"{await self._start(hook)}/slack"
        delivering = asyncio.create_task(self.deliver()) if self.http else None
        try:
            yield self
        finally:
            if delivering is not None:
                delivering.cancel()
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


def sign(body: bytes, *, at: float | None = None, key: str = SIGNING) -> dict[str, str]:
    """Return the headers of a signed request."""
    stamp = str(int(time.time() if at is None else at))
    digest = hmac.new(key.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}


def _succeed(**fields: Any) -> web.Response:
    return web.json_response({"ok": True, **fields})


def _fail(error: str) -> web.Response:
    return web.json_response({"ok": False, "error": error})


def _drop(request: web.Request) -> web.Response:
    """End the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
