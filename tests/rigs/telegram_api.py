"""A server that speaks Telegram's Bot API over HTTP: updates until they are confirmed, and messages with its markup."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from aiohttp import web

from hermes_exec.config.secrets import Secret

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_exec_agent.frontends.gateway.telegram import TelegramAdapter

TOKEN = "4711:" + "A" * 35
BOT = {"id": 4711, "is_bot": True, "first_name": "Agent", "username": "agent_bot"}
TAGS = frozenset({"a", "b", "blockquote", "code", "i", "pre", "s"})
LONGEST = 4096
GROUP = -100


class Markup(HTMLParser):
    """Reads the HTML that the API takes, as strictly as the API does."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.links: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            raise ValueError(f"unsupported start tag {tag}")
        self._open.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            raise ValueError(f"unmatched end tag {tag}")

    def handle_data(self, data: str) -> None:
        self.text += data

    def parse(self, text: str) -> str:
        self.feed(text)
        self.close()
        if self._open:
            raise ValueError(f"no end tag of {self._open[-1]}")
        return self.text


class TelegramRig:
    """The server, as the conformance suite needs it."""

    redelivers = True

    def __init__(self) -> None:
        self.updates: deque[dict[str, Any]] = deque()
        self.sent: list[dict[str, Any]] = []
        self.answered: list[str] = []
        """The buttons that were acknowledged."""
        self.faults: deque[str] = deque()
        self.confirmed = 0
        self.delay_s = 0.0
        """How long the server takes for each request."""
        self.polled = asyncio.Event()
        """Set by each request for updates."""
        self.send_s = 0.0
        """How long it takes for a message before and after it keeps that."""
        self.url = ""
        self._names: dict[str, int] = {}
        self._number = 0
        self._message = 0
        self._changed = asyncio.Event()
        self._polling: set[asyncio.Task[Any]] = set()
        self._is_cut = False
        self.documents: list[tuple[int, str, bytes]] = []
        """The chat, the name and the content of each file that was sent."""
        self.changes: list[tuple[int, str, float]] = []
        """The message, the text and the time of each edit."""
        self.uploads: dict[str, bytes] = {}
        self.missing_files = 0
        """So many reads of files fail."""
        self.moments = {name: asyncio.Event() for name in ("sending", "kept", "editing", "edited")}
        """Set in the middle of a request: before and after the server has kept a message, or changed one."""
        self.settings: dict[str, Any] = {}
        """Of its adapters."""
        self.webhook: dict[str, str] = {}
        """The webhook's form, while there is one."""

    def adapter(self, **settings: Any) -> TelegramAdapter:
        from hermes_exec_agent.frontends.gateway.telegram import TelegramAdapter
        from hermes_exec_agent.frontends.gateway.telegram_bot import TelegramSettings

        values: dict[str, Any] = {"poll_s": 1.0, "interval_s": 0.0, "limit_s": 5.0, **self.settings, **settings}
        return TelegramAdapter(TelegramSettings(token="env:X", base_url=self.url, **values), Secret("token", TOKEN))  # type: ignore[arg-type]  # pydantic parses it

    def id(self, name: str) -> int:
        return self._names.setdefault(name, 1000 + len(self._names))

    async def say(self, name: str, text: str, *, group: bool = False, mention: bool = False) -> None:
        entities = []
        if mention:
            word, _, rest = text.partition(" ")
            if word.startswith("/"):
                text = f"{word}@{BOT['username']} {rest}".strip()
                entities = [{"type": "bot_command", "offset": 0, "length": len(word) + 1 + len(str(BOT["username"]))}]
            else:
                text = f"@{BOT['username']} {text}"
                entities = [{"type": "mention", "offset": 0, "length": 1 + len(str(BOT["username"]))}]
        self._message += 1
        self.post({"message": self._make(name, text, group=group, entities=entities)})

    async def pass_on(self, name: str, text: str, *, group: bool = False, **marks: Any) -> None:
        """Send a text of another author, which the fields of the message say."""
        self._message += 1
        self.post({"message": {**self._make(name, text, group=group), **marks}})

    async def attach(self, name: str, content: bytes, caption: str = "", **fields: Any) -> None:
        """Send a file, as a document unless ``kind`` is another field of a message."""
        kind, stated = fields.pop("kind", "document"), fields.pop("size", len(content))
        id = f"file{len(self.uploads)}"
        self.uploads[id] = content
        self._message += 1
        about = {"file_id": id, "file_unique_id": id, "file_size": stated, **fields}
        part = {kind: [{**about, "width": 1, "height": 1}] if kind == "photo" else about}
        self.post({"message": {**self._make(name, ""), **part, **({"caption": caption} if caption else {})}})

    async def edit(self, name: str, text: str) -> None:
        self.post({"edited_message": {**self._make(name, text), "edit_date": int(time.time())}})

    async def press(self, name: str, choice: str) -> None:
        """Press a button of the latest message that has one so labelled."""
        message = next(each for each in reversed(self.sent) if choice in str(each.get("reply_markup", "")))
        (row,) = json.loads(message["reply_markup"])["inline_keyboard"]
        data = next(each["callback_data"] for each in row if each["text"] == choice)
        self._number += 1
        sender = {"id": self.id(name), "is_bot": False, "first_name": name}
        about = self._make(name, "", group=int(message["chat_id"]) == GROUP)
        query = {"id": str(self._number), "from": sender, "chat_instance": "1", "data": data, "message": about}
        self.post({"callback_query": query})

    def post(self, update: dict[str, Any]) -> None:
        self.updates.append({"update_id": self._number + 1, **update})
        self._number += 1
        self._changed.set()

    def texts(self, name: str) -> list[str]:
        return [each["plain"] for each in self.sent if int(each["chat_id"]) == self.id(name)]

    def files(self, name: str) -> list[tuple[str, bytes]]:
        return [(file, content) for chat, file, content in self.documents if chat == self.id(name)]

    def group_texts(self) -> list[str]:
        return [each["plain"] for each in self.sent if int(each["chat_id"]) == GROUP]

    async def fail(self, kind: str) -> None:
        self.faults.append(kind)

    async def cut(self) -> None:
        self._is_cut = True
        self._changed.set()

    def _make(self, name: str, text: str, *, group: bool = False, entities: Any = ()) -> dict[str, Any]:
        chat = {"id": GROUP, "type": "group", "title": "Room"} if group else {"id": self.id(name), "type": "private"}
        sender = {"id": self.id(name), "is_bot": False, "first_name": name}
        message = {"message_id": self._message, "date": int(time.time()), "chat": chat, "from": sender}
        return {**message, **({"text": text} if text else {}), **({"entities": entities} if entities else {})}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        if request.match_info["token"] != TOKEN:
            return _fail(401, "Unauthorized")
        posted = await request.post()
        form = {key: str(value) for key, value in posted.items() if not isinstance(value, web.FileField)}
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        match request.match_info["method"].lower():
            case "getme":
                return _succeed(BOT)
            case "getupdates":
                return await self._get_updates(request, form)
            case "sendmessage":
                return await self._send_message(request, form)
            case "editmessagetext":
                return await self._edit_message(request, form)
            case "senddocument":
                return self._send_document(request, form, posted["document"])
            case "getfile":
                about = {"file_id": form["file_id"], "file_unique_id": "u", "file_path": f"documents/{form['file_id']}"}
                return _succeed(about) if form["file_id"] in self.uploads else _fail(400, "Bad Request: no file")
            case "setwebhook":
                self.webhook = form
                return _succeed(True)
            case "deletewebhook":
                self.webhook = {}
                return _succeed(True)
            case "answercallbackquery":
                self.answered.append(form["callback_query_id"])
                return _succeed(True)
            case other:
                return _fail(404, f"no method {other}")

    async def _get_updates(self, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
        self.polled.set()
        offset, until = int(form.get("offset", 0)), time.monotonic() + float(form.get("timeout", 0))
        while self.updates and self.updates[0]["update_id"] < offset:
            self.updates.popleft()
            self.confirmed += 1
        while not self.updates and not self._is_cut and time.monotonic() < until:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(until - time.monotonic(), 0.001)):
                    await self._changed.wait()
        if self._is_cut:
            self._is_cut = False
            return _drop(request)
        return _succeed(list(self.updates)[:100])

    async def read_file(self, request: web.Request) -> web.StreamResponse:
        """Hand out a file."""
        if request.match_info["token"] != TOKEN:
            return _fail(401, "Unauthorized")
        if self.missing_files:
            self.missing_files -= 1
            return _drop(request)
        return web.Response(body=self.uploads[request.match_info["id"]])

    def _send_document(self, request: web.Request, form: dict[str, str], file: Any) -> web.StreamResponse:
        fault = self.faults.popleft() if self.faults else ""
        self.documents.append((int(form["chat_id"]), file.filename, file.file.read()))
        if fault == "unknown":
            return _drop(request)
        chat = {"id": int(form["chat_id"]), "type": "private"}
        return _succeed({"message_id": 20_000 + len(self.documents), "date": int(time.time()), "chat": chat})

    async def _edit_message(self, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
        fault = self.faults.popleft() if self.faults else ""
        if fault == "gone":
            return _fail(400, "Bad Request: message to edit not found")
        if fault == "unchanged":
            return _drop(request)
        number = int(form["message_id"]) - 10_001
        plain = Markup().parse(form["text"])
        if self.sent[number]["plain"] == plain:
            return _fail(400, "Bad Request: message is not modified: specified new message content is the same")
        await self._pass(self.moments["editing"])
        self.sent[number] |= {"plain": plain, "text": form["text"]}
        self.changes.append((number, plain, time.monotonic()))
        await self._pass(self.moments["edited"])
        if fault == "unknown":
            return _drop(request)
        chat = {"id": int(form["chat_id"]), "type": "private"}
        return _succeed({"message_id": number + 10_001, "date": int(time.time()), "chat": chat, "text": "x"})

    async def _pass(self, moment: asyncio.Event) -> None:
        moment.set()
        await asyncio.sleep(self.send_s)

    async def deliver(self, url: str, **headers: str) -> list[int]:
        """Send the updates to the webhook at this address, as the server does; return the answers' status codes."""
        import aiohttp

        codes: list[int] = []
        async with aiohttp.ClientSession() as client:
            while self.updates:
                given = {"X-Telegram-Bot-Api-Secret-Token": self.webhook.get("secret_token", ""), **headers}
                async with client.post(url, json=self.updates[0], headers=given) as response:
                    codes.append(response.status)
                if codes[-1] != 200:
                    return codes
                self.updates.popleft()
        return codes

    async def _send_message(self, request: web.Request, form: dict[str, str]) -> web.StreamResponse:
        fault = self.faults.popleft() if self.faults else ""
        if fault == "flood":
            return _fail(429, "Too Many Requests: retry after 1", retry_after=1)
        if fault == "rejected":
            return _fail(403, "Forbidden: bot was blocked by the user")
        try:
            form["plain"] = Markup().parse(form["text"]) if form.get("parse_mode") == "HTML" else form["text"]
        except ValueError as error:
            return _fail(400, f"Bad Request: can't parse entities: {error}")
        if not form["plain"].strip():
            return _fail(400, "Bad Request: message text is empty")
        if len(form["plain"].encode("utf-16-le")) // 2 > LONGEST:
            return _fail(400, "Bad Request: message is too long")
        await self._pass(self.moments["sending"])
        self.sent.append(form)
        id = 10_000 + len(self.sent)
        await self._pass(self.moments["kept"])
        if fault == "unknown":
            return _drop(request)
        if fault == "5xx":
            return _fail(502, "Bad Gateway")
        chat = {"id": int(form["chat_id"]), "type": "private"}
        return _succeed({"message_id": id, "date": int(time.time()), "chat": chat, "text": "x"})


def _succeed(result: object) -> web.Response:
    return web.json_response({"ok": True, "result": result})


def _fail(code: int, text: str, **parameters: int) -> web.Response:
    return web.json_response(
        {"ok": False, "error_code": code, "description": text, "parameters": parameters}, status=code
    )


def _drop(request: web.Request) -> web.Response:
    """End the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@contextlib.asynccontextmanager
async def run_telegram() -> AsyncGenerator[TelegramRig]:
    """Start the server, and end it."""
    rig = TelegramRig()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/bot{token}/{method}", rig.handle)
    app.router.add_get("/file/bot{token}/documents/{id}", rig.read_file)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    rig.url = f"http://127.0.0.1:{runner.addresses[0][1]}/bot"
    try:
        yield rig
    finally:
        await runner.cleanup()
