"""A server with the routes of signal-cli-rest-api: a WebSocket that keeps nothing, styled text, and files."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

from aiohttp import WSMsgType, web

from tests.rigs.bounded import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec_agent.frontends.gateway.signal import SignalAdapter

NUMBER = "+491700000001"
GROUP = base64.b64encode(b"g" * 32).decode()
LONGEST = 2000
STYLES = ("***", "**", "*", "||", "~", "`")


def read_styled(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the text that the daemon sends for styled text, and each style with the text that has it.

    A backslash before a mark makes it text. A mark ends the style that was opened last if it is the same; else it
    opens one, and a style that is never ended vanishes with its mark.
    """
    shown = ""
    opened: list[tuple[str, int]] = []
    styles: list[tuple[str, str]] = []
    before = ""
    position = 0
    while position < len(text):
        mark = next((each for each in STYLES if text.startswith(each, position)), "")
        if not mark:
            letter = text[position]
            is_escape = letter == "\\" and text[position + 1 : position + 2] in ("*", "`", "|", "~")
            shown, before, position = shown if is_escape else shown + letter, letter, position + 1
            continue
        position += len(mark)
        if before == "\\":
            shown += mark
        elif opened and opened[-1][0] == mark:
            styles.append((mark, shown[opened.pop()[1] :]))
        else:
            opened.append((mark, len(shown)))
        before = mark[0]
    return shown, [*styles, *((f"open {mark}", "") for mark, _ in opened)]


class SignalRig:
    """The server, as the conformance suite needs it."""

    redelivers = False

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.faults: deque[str] = deque()
        self.contents: dict[str, bytes] = {}
        self.sockets: set[web.WebSocketResponse] = set()
        self.tokens: list[str] = []
        self.now = 0
        """Milliseconds that the senders' clocks are ahead."""
        self.url = ""
        self._names: dict[str, str] = {}
        self._last: dict[str, tuple[int, int]] = {}
        """The times of the first and the last version of the newest message of each person."""
        self._time = 0

    def adapter(self, **settings: Any) -> SignalAdapter:
        from hermes_exec_agent.frontends.gateway.signal import SignalAdapter, SignalSettings

        values: dict[str, Any] = {"interval_s": 0.0, "limit_s": 5.0, "url": self.url, **settings}
        return SignalAdapter(SignalSettings(number=NUMBER, **values), None)

    def id(self, name: str) -> str:
        return self._names.setdefault(name, str(uuid.uuid5(uuid.NAMESPACE_DNS, name)))

    def stamp(self) -> int:
        """Return the time of a new message: each has its own."""
        self._time = max(self._time + 1, int(time.time() * 1000))
        return self._time + self.now

    async def say(self, name: str, text: str, *, group: bool = False, mention: bool = False) -> None:
        stamp = self.stamp()
        data: dict[str, Any] = {"timestamp": stamp, "message": text, "expiresInSeconds": 0, "viewOnce": False}
        if mention:
            data["message"] = f"\ufffc {text}"
            data["mentions"] = [{"name": NUMBER, "number": NUMBER, "uuid": None, "start": 0, "length": 1}]
        if group:
            data["groupInfo"] = {"groupId": GROUP, "groupName": "Room", "revision": 0, "type": "DELIVER"}
        self._last[name] = stamp, stamp
        await self.post(name, {"dataMessage": data})

    async def attach(
        self, name: str, content: bytes, text: str = "", *, file_name: str = "", mime_type: str = "", size: int = -1
    ) -> None:
        """Write with a file."""
        stamp = self.stamp()
        id = f"file/{stamp}"
        self.contents[id] = content
        file = {"id": id, "filename": file_name or None, "contentType": mime_type or "application/octet-stream",
                "size": len(content) if size < 0 else size}  # fmt: skip
        await self.post(name, {"dataMessage": {"timestamp": stamp, "message": text or None, "attachments": [file]}})

    def files(self, name: str) -> list[tuple[str, bytes]]:
        """The files that a person got."""
        found: list[tuple[str, bytes]] = []
        for each in self.sent:
            for data in each.get("base64_attachments", ()) if each["recipients"] == [self.id(name)] else ():
                head, _, content = data.rpartition(";base64,")
                found.append((head.partition("filename=")[2], base64.b64decode(content)))
        return found

    async def edit(self, name: str, text: str, *, from_first: bool = False) -> None:
        """Edit the newest message; clients name its first version or the one before."""
        first, last = self._last[name]
        stamp = self.stamp()
        self._last[name] = first, stamp
        data = {"timestamp": stamp, "message": text}
        await self.post(
            name, {"editMessage": {"targetSentTimestamp": first if from_first else last, "dataMessage": data}}
        )

    async def delete(self, name: str) -> None:
        data = {"timestamp": self.stamp(), "message": None, "remoteDelete": {"timestamp": self._last[name][1]}}
        await self.post(name, {"dataMessage": data})

    async def post(self, name: str, parts: dict[str, Any]) -> None:
        """Deliver an envelope to the sockets that are connected; it is lost if there is none."""
        envelope = {
            "source": self.id(name), "sourceNumber": None, "sourceUuid": self.id(name), "sourceName": name,
            "sourceDevice": 1, "timestamp": 1, "serverReceivedTimestamp": 1, "serverDeliveredTimestamp": 1, **parts,
        }  # fmt: skip
        await self.deliver(json.dumps({"envelope": envelope, "account": NUMBER}))

    async def deliver(self, frame: str) -> None:
        """Deliver a frame."""
        for socket in list(self.sockets):
            await socket.send_str(frame)

    def texts(self, name: str) -> list[str]:
        return [each["plain"] for each in self.sent if each["recipients"] == [self.id(name)]]

    def group_texts(self) -> list[str]:
        return [each["plain"] for each in self.sent if each["recipients"][0].startswith("group.")]

    async def fail(self, kind: str) -> None:
        self.faults.append(kind)

    async def cut(self) -> None:
        await until(lambda: self.sockets)
        for socket in list(self.sockets):
            await socket.close()

    async def receive(self, request: web.Request) -> web.StreamResponse:
        """Serve a WebSocket for the account."""
        if request.match_info["number"] != NUMBER:
            return web.json_response({"error": "no such account"}, status=400)
        self.tokens.append(request.headers.get("Authorization", ""))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.sockets.add(socket)
        async for frame in socket:
            if frame.type is WSMsgType.ERROR:
                break
        self.sockets.discard(socket)
        return socket

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Take a message."""
        body = await request.json()
        fault = self.faults.popleft() if self.faults else ""
        if fault == "flood":
            return web.json_response({"error": "rate limit"}, status=429, headers={"Retry-After": "1"})
        if fault == "rejected":
            return web.json_response({"error": "Invalid identifier x"}, status=400)
        if fault == "failed":
            return web.json_response({"error": "Failed to send message"}, status=400)
        error = self._check(body)
        if error:
            return web.json_response({"error": f"Couldn't process request - {error}"}, status=400)
        self.sent.append(body)
        if fault == "unknown":  # the daemon ends, with all that is connected
            for socket in list(self.sockets):
                await socket.close()
            return _drop(request)
        if fault == "5xx":
            return web.json_response({"error": "bad gateway"}, status=502)
        if fault == "garbage":
            return web.Response(text="<html>", status=201)
        if fault == "late":
            await asyncio.sleep(1.0)
        return web.json_response({"timestamp": str(self.stamp())}, status=201)

    @staticmethod
    def _check(body: dict[str, Any]) -> str:
        recipient = body["recipients"][0]
        if body["number"] != NUMBER or len(body["recipients"]) != 1:
            return "please provide a valid number"
        if recipient.startswith("group."):
            if base64.b64decode(base64.b64decode(recipient.removeprefix("group."))) != b"g" * 32:
                return "no such group"
        elif len(recipient) != 36:
            return "no such recipient"
        plain, styles = read_styled(body["message"]) if body.get("text_mode") == "styled" else (body["message"], [])
        body["plain"] = plain.replace("\u2060", "")
        if any(style.startswith("open") for style, _ in styles):
            return "a style has no end"
        if len(body["message"].encode()) > LONGEST:
            return "the message is too long"
        return "" if plain.strip() or body.get("base64_attachments") else "the message is empty"

    async def serve_file(self, request: web.Request) -> web.StreamResponse:
        """Return a file."""
        content = self.contents.get(request.match_info["id"])
        return (
            web.json_response({"error": "no such file"}, status=404) if content is None else web.Response(body=content)
        )


def _drop(request: web.Request) -> web.Response:
    """End the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@contextlib.asynccontextmanager
async def run_signal() -> AsyncGenerator[SignalRig]:
    """Start the server, and end it."""
    rig = SignalRig()
    app = web.Application(client_max_size=1 << 26)
    app.router.add_get("/v1/receive/{number}", rig.receive)
    app.router.add_post("/v2/send", rig.send)
    app.router.add_get("/v1/attachments/{id}", rig.serve_file)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    rig.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield rig
    finally:
        for socket in list(rig.sockets):
            await socket.close()
        await runner.cleanup()
