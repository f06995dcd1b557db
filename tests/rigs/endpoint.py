"""A server that speaks OpenAI's chat completions and answers by a script, over real sockets, faults included.

It is as strict about requests as the strictest of endpoints: a call without its result, a result without its call, or
a person's word right after a tool's result is answered with 400 and kept in ``complaints``. With ``strict`` it refuses,
besides, what one real kind of endpoint refuses (`tests.rigs.strict`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from hermes_exec_agent.models import say
from hermes_exec_agent.models.protocol import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rigs.strict import Strict

KEY = "sk-rig-0123456789abcdefABCDEF"


@dataclass(frozen=True)
class Status:
    """An answer that is none."""

    code: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Streamed:
    """A reply, and what goes wrong on its way."""

    reply: Reply
    cut: int | None = None
    """Bytes after which the connection ends."""
    hang: int | str | None = None
    """Bytes, or words in the event, after which nothing comes until the client has left."""
    piece: int | None = None
    """Bytes of each of HTTP's chunks; one event each if left out."""
    usage: dict[str, Any] | None = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 7})
    done: bool = True
    """Whether ``[DONE]`` is said."""
    finish: str | None = "as the reply"
    shape: str = "pieces"
    """``pieces``, ``whole`` (each call at once), ``object`` (whole, and arguments that are no text), ``no index``,
    ``no id`` or ``index 0`` (whole, all with that index): what endpoints do to calls."""


@dataclass(frozen=True)
class Raw:
    """These bytes as the body of a stream."""

    body: bytes


Answer = Reply | str | Status | Streamed | Raw
Written = Answer | Callable[[dict[str, Any]], Answer]


class Tokenizer(Protocol):
    """Adds token ids and logprobs to a reply."""

    def add_ids(self, completion: dict[str, Any], body: dict[str, Any]) -> None: ...


class ScriptedEndpoint:
    """Answers requests with ``answers``, one after another; the last one again and again if ``forever``."""

    def __init__(
        self,
        answers: Iterable[Written],
        *,
        forever: bool = False,
        host: str = "127.0.0.1",
        tool_choice: Literal["obeyed", "ignored", "refused"] = "obeyed",
        strict: Strict | None = None,
        models: Sequence[str] | Status = (),
        key: str = "",
        tokens: Tokenizer | None = None,
    ) -> None:
        """Listen.

        Args:
            answers: what is said, one after the other.
            forever: whether the last answer is repeated.
            host: where it listens.
            tool_choice: what is done with ``"tool_choice": "none"``. Obeyed, a reply's calls are left out.
            strict: whose rules for messages hold.
            models: what it lists, or its answer to that question.
            key: what every request needs, if there is one.
            tokens: renders prompts to ids; without it, no request gets any.
        """
        self.requests: list[dict[str, Any]] = []
        self.listed: list[str] = []
        """What the requests for the list of models had as their authorization."""
        self.headers: list[dict[str, str]] = []
        self.ports: list[int] = []
        """The client's port of each request, which is another one for another connection."""
        self.complaints: list[str] = []
        self.asked = threading.Semaphore(0)
        """Released by each request."""
        self.left = threading.Event()
        """Set when the client of a hanging answer has gone."""
        self.hanging = threading.Event()
        """Set when an answer hangs."""
        self._answers = list(answers)
        self._forever = forever
        self._models = models
        self._key = key
        self._tokens = tokens
        self._host = host
        self._tool_choice = tool_choice
        self._strict = strict
        self._lock = threading.Lock()
        rig = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                try:
                    rig._answer(self, body)
                except ConnectionError:
                    self.close_connection = True

            def do_GET(self) -> None:
                rig.listed.append(self.headers.get("authorization", ""))
                answer = rig._list() if self.path == "/v1/models" else Status(404)
                rig._send_status(self, rig._unless_refused(self) or answer)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _next(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> Answer:
        with self._lock:
            self.requests.append(body)
            self.ports.append(handler.client_address[1])
            self.headers.append({name.lower(): value for name, value in handler.headers.items()})
            number = len(self.requests) - 1
        self.asked.release()
        if wrong := find_message_fault(body.get("messages")):
            self.complaints.append(wrong)
            return Status(400, {"error": {"message": wrong, "type": "invalid_request_error"}})
        if "tool_choice" in body and (self._tool_choice == "refused" or not body.get("tools")):
            said = f"{body['model']} does not support this tool_choice"
            return Status(400, {"error": {"message": said, "type": "invalid_request_error"}})
        if self._strict is not None and (refusal := self._strict.refuse(body)) is not None:
            self.complaints.append(json.dumps(refusal.body))
            return refusal
        if number >= len(self._answers) and not self._forever:
            return Status(400, {"error": {"message": "the script has ended"}})
        written = self._answers[min(number, len(self._answers) - 1)]
        answer = written(body) if callable(written) else written
        if body.get("tool_choice") == "none" and self._tool_choice == "obeyed":
            answer = _without_calls(answer)
        return self._strict.give(answer) if self._strict is not None else answer

    def _list(self) -> Status:
        if isinstance(self._models, Status):
            return self._models
        return Status(200, {"object": "list", "data": [{"id": each, "object": "model"} for each in self._models]})

    def _unless_refused(self, handler: BaseHTTPRequestHandler) -> Status | None:
        given = handler.headers.get("authorization", "")
        if not self._key or given == f"Bearer {self._key}":
            return None
        return Status(401, {"error": {"message": f"Incorrect API key provided: {given}", "code": "invalid_api_key"}})

    @staticmethod
    def _send_status(handler: BaseHTTPRequestHandler, answer: Status) -> None:
        data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        handler.send_response(answer.code)
        for name, value in {"content-type": "application/json", **answer.headers}.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        answer = self._unless_refused(handler) or self._next(handler, body)
        if isinstance(answer, Status):
            self._send_status(handler, answer)
            return
        if isinstance(answer, str):
            answer = say(answer)
        if isinstance(answer, Reply):
            answer = Streamed(answer)
        if not body.get("stream") and isinstance(answer, Streamed):
            self._send_whole(handler, answer, body)
            return
        hangs = isinstance(answer, Streamed) and answer.hang is not None
        try:
            handler.send_response(200)
            handler.send_header("content-type", "text/event-stream")
            handler.send_header("transfer-encoding", "chunked")
            handler.end_headers()
            if isinstance(answer, Raw):
                self._send(handler, [answer.body])
            else:
                self._stream(handler, answer, body["model"])
        finally:
            if hangs:
                self.left.set()

    def _send_whole(self, handler: BaseHTTPRequestHandler, answer: Streamed, body: dict[str, Any]) -> None:
        """Send a reply that is no stream, as vLLM does, with the ids that it asks for."""
        completion = _completion(answer, body["model"])
        if body.get("return_token_ids") and self._tokens is not None:
            self._tokens.add_ids(completion, body)
        data = json.dumps(completion).encode()
        stop = answer.cut if answer.cut is not None else len(data) if answer.hang is None else 1
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.send_header("x-request-id", f"req-{len(self.requests)}")
        handler.end_headers()
        handler.wfile.write(data[:stop])
        handler.wfile.flush()
        if answer.hang is not None:
            self.hanging.set()
            while handler.connection.recv(4096):
                pass
            self.left.set()
        handler.close_connection = stop < len(data)

    def _stream(self, handler: BaseHTTPRequestHandler, answer: Streamed, model: str) -> None:
        events = list(_events(answer, model))
        whole = b"".join(events)
        stop = answer.cut if answer.cut is not None else answer.hang
        if isinstance(stop, str):
            stop = whole.index(b"\n\n", whole.index(stop.encode())) + 2
        if stop is not None or answer.piece:
            kept = whole[:stop]
            size = answer.piece or max(len(kept), 1)
            events = [kept[start : start + size] for start in range(0, len(kept), size)]
        self._send(handler, events, end=stop is None)
        if answer.hang is not None:
            self.hanging.set()
            while handler.connection.recv(4096):
                pass
        if stop is not None:
            handler.close_connection = True

    @staticmethod
    def _send(handler: BaseHTTPRequestHandler, pieces: list[bytes], *, end: bool = True) -> None:
        for piece in filter(None, pieces):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        if end:
            handler.wfile.write(b"0\r\n\r\n")
        handler.wfile.flush()


def _without_calls(answer: Answer) -> Answer:
    reply = answer.reply if isinstance(answer, Streamed) else answer
    if not isinstance(reply, Reply):
        return answer
    reply = replace(reply, message=replace(reply.message, tool_calls=()), finish="stop")
    return replace(answer, reply=reply) if isinstance(answer, Streamed) else reply


def _completion(answer: Streamed, model: str) -> dict[str, Any]:
    message = answer.reply.message
    written: dict[str, Any] = {"role": "assistant", "content": message.content, **message.extras}
    if message.tool_calls:
        written["tool_calls"] = [{**call.to_wire(), **call.extras} for call in message.tool_calls]
    finish = answer.reply.finish if answer.finish == "as the reply" else answer.finish
    choice = {"index": 0, "message": written, "finish_reason": finish, "logprobs": None}
    frame = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
    return frame | ({"usage": answer.usage} if answer.usage is not None else {})


def _events(answer: Streamed, model: str) -> Iterator[bytes]:
    message = answer.reply.message
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}

    def event(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        return b"data: " + json.dumps({**frame, "choices": choices, **more}, ensure_ascii=False).encode() + b"\n\n"

    yield b": a comment, as some send to keep a connection\n\n"
    yield event({"role": "assistant", "content": ""})
    for fields in _extra_pieces(message.extras):
        yield event(fields)
    middle = len(message.content) // 2
    for text in (message.content[:middle], message.content[middle:]):
        if text:
            yield event({"content": text})
    for index, call in enumerate(message.tool_calls):
        for delta in _call_deltas(index, {**call.to_wire(), **call.extras}, answer.shape):
            yield event({"tool_calls": [delta]})
    yield event({}, answer.reply.finish if answer.finish == "as the reply" else answer.finish)
    if answer.usage is not None:
        yield event(None, usage=answer.usage)
    if answer.done:
        yield b"data: [DONE]\n\n"


def _extra_pieces(extras: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The extras of a message as a stream has them: texts in pieces, and those of several entries in turns."""
    for name, value in extras.items():
        if isinstance(value, str):
            yield from ({name: value[start : start + 7]} for start in range(0, len(value), 7))
        elif name == "reasoning_details":
            pieces = [list(_detail_pieces(entry)) for entry in value]
            yield from ({name: [each]} for turn in zip_longest(*pieces) for each in turn if each is not None)
        else:
            yield {name: value}


def _detail_pieces(entry: dict[str, Any]) -> Iterator[dict[str, Any]]:
    key = next((each for each in ("text", "summary") if each in entry), "")
    frame = {name: value for name, value in entry.items() if name not in (key, "signature")}
    if not key:
        yield entry
        return
    for start in range(0, len(entry[key]), 5):
        yield {**frame, key: entry[key][start : start + 5]}
    if "signature" in entry:
        yield {**frame, "signature": entry["signature"]}


def _call_deltas(index: int, call: dict[str, Any], shape: str) -> list[dict[str, Any]]:
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    first: dict[str, Any] = {"index": index, **call}
    if shape == "no id":
        del first["id"]
    if shape == "no index":
        del first["index"]
    if shape == "index 0":
        first["index"] = 0
    if shape == "object":
        first["function"] = {"name": name, "arguments": json.loads(arguments)}
    if shape != "pieces":
        return [first]
    first["function"] = {"name": name, "arguments": ""}
    return [first, *({"index": index, "function": {"arguments": each}} for each in arguments)]


def find_message_fault(messages: list[dict[str, Any]] | None) -> str:
    """Return why the strictest endpoint refuses the messages; empty if it does not."""
    if messages is None:
        return "the request has no list of messages"
    open_calls: list[str] = []
    before = ""
    for number, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in open_calls:
                return f"message {number}: a result of a call that was not made"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return f"message {number}: no result for {open_calls}"
        elif role == "user" and before == "tool":
            return f"message {number}: unexpected role 'user' after role 'tool'"
        elif role == "system" and number:
            return f"message {number}: the system's message is not the first"
        open_calls += [call["id"] for call in message.get("tool_calls", ())]
        before = role
    if open_calls or before not in ("user", "tool"):
        return "the last message is not one to answer"
    return ""
