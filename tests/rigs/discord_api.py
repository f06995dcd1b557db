"""A server that speaks Discord's REST API and gateway, as discord.py meets them: sessions, history, nonces and faults.

`Markup` reads Discord's form of Markdown, and knows no more of it than the gateway writes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import re
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yarl
from aiohttp import WSMsgType, web

from hermes_exec.config.secrets import Secret
from tests.rigs.bounded import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec_agent.frontends.gateway.discord import DiscordAdapter

BOT_ID = 4711_0000_0000_0001
TOKEN = f"{base64.urlsafe_b64encode(str(BOT_ID).encode()).decode().rstrip('=')}.Gabcde.{'S' * 38}"
BOT = {"id": str(BOT_ID), "username": "agent", "discriminator": "0", "avatar": None, "bot": True, "global_name": None}
GUILD, GROUP = 8_000_000, 9_000_000
LONGEST = 2000
_TOKENS = re.compile(
    r"```(?P<language>[a-z0-9+-]*)\n(?P<block>(?:(?!```).)+?)\n```|(?P<ticks>`{1,2})(?P<code>[^\n]*?[^`])(?P=ticks)(?!`)"
    r"|\\(?P<escaped>[^0-9A-Za-z\s])|<(?P<url>https?://[^\s<>]+)>|\]\(<(?P<link>https?://[^\s>]+)>\)"
    r"|(?P<mark>\*\*|~~|(?<!\w)_|_(?!\w))|(?P<open>\[)|(?P<plain>[^\\*_~`|<>\[\]#@])",
    re.DOTALL,
)
_QUOTE = re.compile(r"(?:> [^\n]*(?:\n|$))+")


class Markup:
    """Reads a message as strictly as a test needs: a mark that the gateway does not write is an error."""

    def parse(self, text: str) -> str:
        """Return the text that a person reads."""
        shown = ""
        open_marks: list[str] = []
        position = 0
        while position < len(text):
            if (quote := _QUOTE.match(text, position)) is not None and text[:position].endswith(
                ("", "\n")[position > 0]
            ):
                shown += self.parse(re.sub("^> ", "", quote[0], flags=re.MULTILINE))
                position = quote.end()
                continue
            found = _TOKENS.match(text, position)
            if found is None:
                raise ValueError(f"unknown mark: {text[position : position + 20]!r}")
            position = found.end()
            if (mark := found["mark"]) is None:
                shown += self._read(found)
            elif mark in open_marks:
                open_marks.remove(mark)
            else:
                open_marks.append(mark)
        if open_marks:
            raise ValueError(f"no end of {open_marks}")
        return shown.replace("\u2060", "")

    @staticmethod
    def _read(found: re.Match[str]) -> str:
        if found["link"] is not None:
            return f" ({found['link']})"
        code = found["code"]
        if code is not None and found["ticks"] == "``":
            code = code.removeprefix(" ").removesuffix(" ")
        parts = (found["block"], code, found["escaped"], found["url"], found["plain"])
        return next((part for part in parts if part is not None), "")


@dataclass
class Session:
    """One session of the gateway, with all events that it had."""

    id: str
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    socket: web.WebSocketResponse | None = None


class DiscordRig:
    """The server, as the conformance suite needs it."""

    redelivers = True

    def __init__(self) -> None:
        self.messages: dict[int, list[dict[str, Any]]] = {}
        """All messages of each channel."""
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.contents: dict[str, bytes] = {}
        self.changes: list[tuple[str, str, float]] = []
        """The message, the text and the time of each edit by the gateway."""
        self.faults: deque[str] = deque()
        self.answered: list[str] = []
        """The presses of buttons that were acknowledged."""
        self.sessions: dict[str, Session] = {}
        self.resumed = 0
        self.refuses_sockets = False
        self.close_code = 0
        """A code with which each new session is closed."""
        self.knows_nonces = True
        self.endless = False
        """Whether each file has no end."""
        self.delay_s = 0.0
        """How long the server takes for each message."""
        self.url = ""
        self._names: dict[str, int] = {}
        self._ids = itertools.count(1)

    def adapter(self, **settings: Any) -> DiscordAdapter:
        from hermes_exec_agent.frontends.gateway.discord import DiscordAdapter, DiscordSettings

        values: dict[str, Any] = {"interval_s": 0.0, "limit_s": 5.0, "resume_s": 5.0, **settings}
        return DiscordAdapter(DiscordSettings(token="env:X", **values), Secret("token", TOKEN))  # type: ignore[arg-type]  # pydantic parses it

    # Persons

    def id(self, name: str) -> int:
        return self._names.setdefault(name, 5_000 + len(self._names))

    def _create_id(self) -> int:
        return (int(time.time() * 1000) - 1_420_070_400_000 << 22) + next(self._ids)

    async def say(self, name: str, text: str, *, group: bool = False, mention: bool = False) -> None:
        content, mentions = (f"<@{BOT_ID}> {text}", [BOT]) if mention else (text, [])
        self.post(self.make(name, content, group=group, mentions=mentions))

    def post(self, message: dict[str, Any]) -> None:
        """Keep a message, and report it to all sessions."""
        self.messages.setdefault(int(message["channel_id"]), []).append(message)
        self.report("MESSAGE_CREATE", self._add_guild(message))

    async def edit(self, name: str, text: str) -> None:
        """Change the last message of a person."""
        message = next(each for each in reversed(self._all()) if each["author"]["id"] == str(self.id(name)))
        message |= {"content": text, "edited_timestamp": "2026-11-28T07:00:00+00:00"}
        self.report("MESSAGE_UPDATE", self._add_guild(message))

    async def delete(self, name: str) -> None:
        """Delete the last message of a person."""
        message = next(each for each in reversed(self._all()) if each["author"]["id"] == str(self.id(name)))
        self.messages[int(message["channel_id"])].remove(message)
        self.report("MESSAGE_DELETE", {"id": message["id"], "channel_id": message["channel_id"]})

    async def press(self, name: str, label: str) -> None:
        """Press a button of the latest message that has one with this label."""
        message = next(each for each in reversed(self._all()) if label in json.dumps(each["components"]))
        button = next(each for each in message["components"][0]["components"] if each["label"] == label)
        user = self._user(name)
        is_group = message["channel_id"] == str(GROUP)
        place = {"guild_id": str(GUILD), "member": self._member(user)} if is_group else {"user": user}
        data = {"component_type": 2, "custom_id": button["custom_id"], "id": button.get("id", 1)}
        self.report(
            "INTERACTION_CREATE",
            {
                "id": str(self._create_id()), "application_id": str(BOT_ID), "type": 3, "token": "press", "version": 1,
                "channel_id": message["channel_id"], "data": data, "message": message, "attachment_size_limit": 1,
                "channel": {"id": message["channel_id"], "type": 0 if is_group else 1, "permissions": "0", "name": "c",
                            "position": 0},
                "app_permissions": "0", "locale": "en-US", "entitlements": [], "authorizing_integration_owners": {},
                **place,
            },
        )  # fmt: skip

    def make(self, name: str, content: str, *, group: bool = False, **fields: Any) -> dict[str, Any]:
        """Return a message of a person."""
        return {
            "id": str(self._create_id()), "channel_id": str(GROUP if group else self.channel(name)),
            "author": self._user(name), "content": content, "timestamp": "2026-11-28T07:00:00+00:00",
            "edited_timestamp": None, "tts": False, "mention_everyone": False, "mentions": [], "mention_roles": [],
            "attachments": [], "embeds": [], "components": [], "pinned": False, "type": 0, "flags": 0, **fields,
        }  # fmt: skip

    async def attach(
        self,
        name: str,
        content: bytes,
        text: str = "",
        *,
        file_name: str = "a.bin",
        mime_type: str = "",
        size: int = -1,
    ) -> None:
        """Write with a file."""
        self.post(self.make(name, text, attachments=[self.make_file(file_name, content, mime_type, size)]))

    def make_file(self, name: str, content: bytes, kind: str, size: int = -1) -> dict[str, Any]:
        """Return a file of a message."""
        id = str(self._create_id())
        self.contents[id] = content
        address = f"{self.url}/files/{id}"
        stated = len(content) if size < 0 else size
        return {"id": id, "filename": name, "size": stated, "content_type": kind, "url": address, "proxy_url": address}

    def files(self, name: str) -> list[tuple[str, bytes]]:
        """The files that a person got."""
        found = [each for message in self.sent(self.channel(name)) for each in message["attachments"]]
        return [(each["filename"], self.contents[each["id"]]) for each in found]

    def channel(self, name: str) -> int:
        return 1_000_000 + self.id(name)

    def _user(self, name: str) -> dict[str, Any]:
        return {"id": str(self.id(name)), "username": name, "discriminator": "0", "avatar": None, "global_name": None}

    @staticmethod
    def _member(user: dict[str, Any]) -> dict[str, Any]:
        return {"user": user, "roles": [], "joined_at": "2026-11-28T07:00:00+00:00", "deaf": False, "mute": False,
                "flags": 0, "permissions": "0"}  # fmt: skip

    def _all(self) -> list[dict[str, Any]]:
        return sorted(
            (each for channel in self.messages.values() for each in channel), key=lambda each: int(each["id"])
        )

    def _add_guild(self, message: dict[str, Any]) -> dict[str, Any]:
        if message["channel_id"] != str(GROUP):
            return message
        member = {key: value for key, value in self._member({}).items() if key != "user"}
        return {**message, "guild_id": str(GUILD), "member": member}

    def sent(self, channel: int) -> list[dict[str, Any]]:
        """The bot's messages in a channel."""
        return [each for each in self.messages.get(channel, []) if each["author"] == BOT]

    def texts(self, name: str) -> list[str]:
        return [each["plain"] for each in self.sent(self.channel(name))]

    def group_texts(self) -> list[str]:
        return [each["plain"] for each in self.sent(GROUP)]

    async def fail(self, kind: str) -> None:
        self.faults.append(kind)

    async def cut(self) -> None:
        """End all sessions for good."""
        await until(lambda: any(each.socket is not None for each in self.sessions.values()))
        for session in list(self.sessions.values()):
            if session.socket is not None:
                await session.socket.close(code=4004)
        self.sessions.clear()

    async def drop(self) -> None:
        """Cut the connections of all sessions, which can be resumed."""
        for session in self.sessions.values():
            socket, session.socket = session.socket, None
            if socket is not None:
                await socket.close(code=4000)

    # The gateway

    def report(self, event: str, data: dict[str, Any]) -> None:
        for session in self.sessions.values():
            session.events.append({"op": 0, "t": event, "s": len(session.events) + 1, "d": data})
            if session.socket is not None:
                _write(session.socket, session.events[-1])

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Serve a connection to the gateway."""
        if self.refuses_sockets:
            return web.Response(status=503)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"op": 10, "d": {"heartbeat_interval": 41_250}})
        session: Session | None = None
        async for frame in socket:
            if frame.type is not WSMsgType.TEXT:
                break
            message = json.loads(frame.data)
            match message["op"]:
                case 1:
                    await socket.send_json({"op": 11})
                case 2:
                    session = await self._identify(socket, message["d"])
                case 6:
                    session = await self._resume(socket, message["d"])
                case _:
                    pass
        if session is not None and session.socket is socket:
            session.socket = None
        return socket

    async def _identify(self, socket: web.WebSocketResponse, data: dict[str, Any]) -> Session | None:
        if data["token"] != TOKEN or self.close_code:
            await socket.close(code=self.close_code or 4004)
            return None
        session = Session(f"session-{next(self._ids)}", socket=socket)
        ready: dict[str, Any] = {
            "v": 10, "user": BOT, "guilds": [], "session_id": session.id, "resume_gateway_url": self._socket_url(),
            "application": {"id": str(BOT_ID), "flags": 0},
        }  # fmt: skip
        session.events.append({"op": 0, "t": "READY", "s": 1, "d": ready})
        await socket.send_json(session.events[0])
        self.sessions[session.id] = session
        return session

    async def _resume(self, socket: web.WebSocketResponse, data: dict[str, Any]) -> Session | None:
        session = self.sessions.get(data["session_id"])
        if session is None:
            await socket.send_json({"op": 9, "d": False})
            return None
        self.resumed += 1
        for event in session.events[data["seq"] :]:
            await socket.send_json(event)
        session.events.append({"op": 0, "t": "RESUMED", "s": len(session.events) + 1, "d": {}})
        await socket.send_json(session.events[-1])
        session.socket = socket
        return session

    def _socket_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/gateway"

    # The REST API

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        if request.headers.get("Authorization") != f"Bot {TOKEN}":
            return _reply({"message": "401: Unauthorized", "code": 0}, status=401)
        path = [each for each in request.path.split("/")[3:] if each]
        match request.method, path:
            case "GET", ["users", "@me"]:
                return _reply(BOT)
            case "GET", ["oauth2", "applications", "@me"]:
                return _reply({
                    "id": str(BOT_ID), "name": "agent", "description": "", "icon": None, "bot_public": False,
                    "bot_require_code_grant": False, "owner": BOT, "verify_key": "", "flags": 0,
                })  # fmt: skip
            case "GET", ["channels", channel]:
                return self._get_channel(int(channel))
            case "GET", ["channels", channel, "messages"]:
                return self._get_messages(request, int(channel))
            case "POST", ["channels", channel, "messages"]:
                return await self._create(request, int(channel))
            case "PATCH", ["channels", channel, "messages", message]:
                return await self._change(request, int(channel), message)
            case _:
                return _reply({"message": "404: Not Found", "code": 0}, status=404)

    async def acknowledge(self, request: web.Request) -> web.StreamResponse:
        """Take the answer to a press of a button."""
        data = await request.json()
        self.answered.append(request.match_info["id"])
        return _reply({"interaction": {"id": request.match_info["id"], "type": 3}, "resource": {"type": data["type"]}})

    async def serve_file(self, request: web.Request) -> web.StreamResponse:
        """Return a file."""
        if self.endless:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x" * 1000)
        content = self.contents.get(request.match_info["id"])
        return web.Response(status=404) if content is None else web.Response(body=content)

    def _get_channel(self, channel: int) -> web.StreamResponse:
        if channel == GROUP:
            return _reply({"id": str(GROUP), "type": 0, "guild_id": str(GUILD), "name": "room", "position": 0,
                                      "permission_overwrites": [], "nsfw": False, "parent_id": None})  # fmt: skip
        name = next((name for name in self._names if self.channel(name) == channel), None)
        if name is None:
            return _reply({"message": "Unknown Channel", "code": 10003}, status=404)
        return _reply({"id": str(channel), "type": 1, "recipients": [self._user(name)], "last_message_id": None})

    def _get_messages(self, request: web.Request, channel: int) -> web.StreamResponse:
        after, most = int(request.query.get("after", 0)), int(request.query.get("limit", 50))
        found = [each for each in self.messages.get(channel, []) if int(each["id"]) > after]
        return _reply(found[:most][::-1])

    async def _create(self, request: web.Request, channel: int) -> web.StreamResponse:
        payload, files = await self._read(request)
        self.requests.append((request.method, str(channel), payload))
        fault = self.faults.popleft() if self.faults else ""
        if fault == "flood":
            return _limit(0.3)
        if fault == "long flood":
            return _limit(90.0)
        if fault == "rejected":
            return _reply({"message": "Missing Access", "code": 50001}, status=403)
        if (error := self._check(payload, files)) is not None:
            return error
        await asyncio.sleep(self.delay_s)
        nonce = payload.get("nonce")
        known = [each for each in self.sent(channel) if nonce and each["nonce"] == nonce]
        if not (known and payload.get("enforce_nonce") and self.knows_nonces):
            known = [self._keep(payload, files, channel)]
        if fault == "unknown":
            return _drop(request)
        if fault == "5xx":
            return _reply({"message": "Bad Gateway"}, status=503)
        if fault == "late":
            await asyncio.sleep(1.0)
        return _reply(known[0])

    def _keep(self, payload: dict[str, Any], files: list[tuple[str, bytes]], channel: int) -> dict[str, Any]:
        content = payload.get("content") or ""
        message = {
            **self.make("", content), "channel_id": str(channel), "author": BOT, "plain": Markup().parse(content),
            "components": payload.get("components", []), "nonce": payload.get("nonce"),
            "attachments": [self.make_file(name, data, "text/plain") for name, data in files],
        }  # fmt: skip
        self.messages.setdefault(channel, []).append(message)
        self.report("MESSAGE_CREATE", self._add_guild(message))
        return message

    async def _change(self, request: web.Request, channel: int, id: str) -> web.StreamResponse:
        payload, _ = await self._read(request)
        self.requests.append((request.method, str(channel), payload))
        message = next((each for each in self.sent(channel) if each["id"] == id), None)
        if message is None or (self.faults and self.faults.popleft() == "gone"):
            return _reply({"message": "Unknown Message", "code": 10008}, status=404)
        if (error := self._check({"flags": 4, "enforce_nonce": True, **payload}, [])) is not None:
            return error
        message |= {"content": payload["content"], "plain": Markup().parse(payload["content"])}
        message["components"] = payload.get("components", message["components"])
        self.changes.append((id, payload["content"], time.monotonic()))
        return _reply(message)

    @staticmethod
    async def _read(request: web.Request) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
        if request.content_type == "application/json":
            return await request.json(), []
        form = await request.post()
        files = [(each.filename, each.file.read()) for each in form.values() if isinstance(each, web.FileField)]
        return json.loads(str(form["payload_json"])) if "payload_json" in form else {}, files

    @staticmethod
    def _check(payload: dict[str, Any], files: list[tuple[str, bytes]]) -> web.Response | None:
        """Return what is wrong with a message, by Discord's rules and by those of the gateway."""
        content = payload.get("content") or ""
        if not content.strip() and not files:
            return _reply({"message": "Cannot send an empty message", "code": 50006}, status=400)
        if len(content) > LONGEST or len(str(payload.get("nonce", ""))) > 25:
            return _reply({"message": "Invalid Form Body", "code": 50035}, status=400)
        is_ours = (
            payload.get("allowed_mentions") == {"parse": []} and payload.get("flags") == 4 and payload["enforce_nonce"]
        )
        try:
            Markup().parse(content)
        except ValueError:
            is_ours = False
        return None if is_ours else _reply({"message": "not what the gateway promises", "code": 1}, status=400)


def _write(socket: web.WebSocketResponse, event: dict[str, Any]) -> None:
    """Write an event at once, in the order of calls."""
    task = asyncio.ensure_future(socket.send_json(event))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def _reply(data: object, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return JSON. The library takes it as such only without a character set."""
    return web.Response(body=json.dumps(data).encode(), status=status, headers=headers, content_type="application/json")


def _limit(wait_s: float) -> web.Response:
    return _reply(
        {"message": "You are being rate limited.", "retry_after": wait_s, "global": False},
        status=429,
        headers={"Via": "1.1"},
    )


def _drop(request: web.Request) -> web.Response:
    """End the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@contextlib.asynccontextmanager
async def run_discord() -> AsyncGenerator[DiscordRig]:
    """Start the server and let the library use it; end it."""
    from discord.gateway import DiscordWebSocket
    from discord.http import Route

    rig = DiscordRig()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_get("/gateway", rig.connect)
    app.router.add_get("/files/{id}", rig.serve_file)
    app.router.add_post("/api/v10/interactions/{id}/{token}/callback", rig.acknowledge)
    app.router.add_route("*", "/api/v10/{rest:.*}", rig.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    rig.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    saved = Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY
    Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = (
        f"{rig.url}/api/v10",
        yarl.URL(rig.url.replace("http", "ws", 1) + "/gateway"),
    )
    try:
        yield rig
    finally:
        Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = saved
        await rig.drop()
        await runner.cleanup()
