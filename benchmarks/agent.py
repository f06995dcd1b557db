"""The agent's cost beside the model's: turns over HTTP, an endpoint that answers at once, and the log on this disk.

A turn is two requests with a call of a tool between them; the second one has the number of messages that the row names.
Beside it a raw socket sends requests of the same size and reads the same answers: no SDK, no loop, no log. The endpoint
is a process of its own on this machine, so neither the way to a real one nor its model is in these figures.
"""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hermes_exec
from benchmarks.figures import BLOCK, Figure, median
from benchmarks.replies import END, Replies
from hermes_exec.errors import Unsupported
from hermes_exec_agent.models import Models
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.models.messages import Message, ToolCall
from hermes_exec_agent.models.protocol import ToolSpec
from hermes_exec_agent.runtime import Conversation, Options
from hermes_exec_agent.runtime.events import EventLog
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.tool import Context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec import Terminal

SIZES = (4, 400)
"""Messages of a turn's second request."""
GROWTH_MS = 5.0


class Nobody:
    async def approve(self, tool: str, summary: str, scope: str = "") -> bool:  # noqa: ARG002  the shape of `Person`
        raise Unsupported(f"nobody is there to allow {tool}: {summary}")

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        raise Unsupported(f"nobody is there to answer {question} ({len(choices)} choices)")


class Nothing:
    """A tool that costs nothing."""

    spec = ToolSpec("nothing", "Does nothing.", {"type": "object", "properties": {"n": {"type": "integer"}}})
    changes = True

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        return Envelope(ok=True, place=context.place, output=str(arguments["n"]))


def _history(count: int) -> tuple[Message, ...]:
    """Turns of one call each, as a conversation has them."""
    messages: list[Message] = []
    for number in range(count // 4):
        call = ToolCall(f"call_{number}_earlier", "nothing", json.dumps({"n": number}))
        messages += [
            Message("user", f"request {number}: " + "word " * 40),
            Message("assistant", "I look.", (call,)),
            Message("tool", json.dumps({"ok": True, "output": "word " * 100}), tool_call_id=call.id),
            Message("assistant", f"answer {number}: " + "word " * 40),
        ]
    return tuple(messages)


class Ours:
    """The agent, with a conversation of its own for each turn."""

    def __init__(self, terminal: Terminal, log: EventLog, replies: Replies, size: int) -> None:
        self.turns: list[float] = []
        self.gaps: list[float] = []
        self.messages: list[Message] = []
        """Of the latest conversation, with its last answer."""
        self.endpoint = Endpoint("m", base_url=f"http://127.0.0.1:{replies.port}/v1", window=1 << 20)
        self._terminal, self._log, self._replies = terminal, log, replies
        self._history = _history(size - 4)  # the prompt, the request, the call and its result are four

    async def block(self, rounds: int) -> None:
        """So many turns over a connection that has been used."""
        for number in range(rounds + 1):
            took = await self._turn()
            between = [self._replies.gap() for _ in range(2 if number else 1)][-1]
            if number:
                self.turns.append(took)
                self.gaps.append(between)
        await self.endpoint.close()

    async def _turn(self) -> float:
        context = Context(self._terminal, "local", Nobody(), "")
        models, options = Models(self.endpoint), Options(history=self._history)
        conversation = Conversation(models=models, tools=[Nothing()], context=context, log=self._log, options=options)
        await conversation.begin()
        begin = time.perf_counter()
        await conversation.ask("go")
        took = time.perf_counter() - begin
        self.messages = conversation.messages
        return took


class Floor:
    """A socket that sends the two requests of a turn, and reads their answers."""

    def __init__(self, replies: Replies, messages: Sequence[Message]) -> None:
        self.turns: list[float] = []
        self.gaps: list[float] = []
        self._replies = replies
        self._requests = [_request(replies.port, messages[:-3]), _request(replies.port, messages[:-1])]

    def block(self, rounds: int) -> None:
        """So many turns over a connection that has been used."""
        with socket.create_connection(("127.0.0.1", self._replies.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in range(rounds + 1):
                begin = time.perf_counter()
                for request in self._requests:
                    connection.sendall(request)
                    answer = b""
                    while not answer.endswith(END):
                        answer += connection.recv(1 << 16)
                took = time.perf_counter() - begin
                between = [self._replies.gap() for _ in range(2 if number else 1)][-1]
                if number:
                    self.turns.append(took)
                    self.gaps.append(between)


def _request(port: int, messages: Sequence[Message]) -> bytes:
    body = json.dumps(
        {
            "model": "m",
            "messages": [message.to_wire() for message in messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [Nothing.spec.to_wire()],
        }
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def _measured(rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder, EventLog(Path(folder, "log.sqlite")) as log, Replies() as replies:
        async with hermes_exec.open("local", audit=False) as terminal:
            ours = [Ours(terminal, log, replies, size) for size in SIZES]
            floors: list[Floor] = []
            for each in ours:  # the SDK is imported and the first request is made
                await each.block(1)
                floors.append(Floor(replies, each.messages))
                each.turns, each.gaps = [], []
            for _ in range(max(1, rounds // BLOCK)):
                for agent, floor in zip(ours, floors, strict=True):
                    await agent.block(BLOCK)
                    floor.block(BLOCK)
    figures: list[Figure] = []
    for size, agent, floor in zip(SIZES, ours, floors, strict=True):
        figures += [
            _figure(f"agent over HTTP, a turn of one call at {size} messages", agent.turns, floor.turns),
            _figure(f"agent over HTTP, between its two requests at {size} messages", agent.gaps, floor.gaps),
        ]
    growth = (median(ours[1].gaps) - median(ours[0].gaps)) * 1e3
    name = f"agent over HTTP, what {SIZES[1]} messages add to {SIZES[0]} between two requests"
    return [*figures, Figure(name, "ms", growth, "the limit", GROWTH_MS, 1.0)]


def _figure(name: str, ours: list[float], floor: list[float]) -> Figure:
    return Figure(name, "ms", median(ours) * 1e3, "the same over a raw socket", median(floor) * 1e3)


def figures(rounds: int) -> list[Figure]:
    return asyncio.run(_measured(rounds))
