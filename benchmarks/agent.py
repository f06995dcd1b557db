"""What the agent's loop costs beside the model: a turn whose model answers at once, with the log on this disk."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hermes_exec
from benchmarks.figures import Figure, median
from hermes_exec.errors import Unsupported
from hermes_exec_agent.events import EventLog
from hermes_exec_agent.loop import Conversation, Options
from hermes_exec_agent.messages import Message
from hermes_exec_agent.models import Models, ScriptedModel, ask, say
from hermes_exec_agent.models.protocol import ToolSpec, Usage
from hermes_exec_agent.tools.envelope import Envelope
from hermes_exec_agent.tools.tool import Context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_exec import Terminal
    from hermes_exec_agent.models.scripted import Written

LIMIT_MS = 5.0


class Nobody:
    async def approve(self, tool: str, summary: str) -> bool:
        raise Unsupported(f"nobody is there to allow {tool}: {summary}")

    async def clarify(self, question: str, choices: Sequence[str]) -> str:
        raise Unsupported(f"nobody is there to answer {question} ({len(choices)} choices)")


class Nothing:
    """A tool that costs nothing."""

    spec = ToolSpec("nothing", "Does nothing.", {"type": "object", "properties": {"n": {"type": "integer"}}})
    changes = True

    async def call(self, arguments: dict[str, Any], context: Context) -> Envelope:
        return Envelope(ok=True, place=context.place, output=str(arguments["n"]))


async def _turns(
    terminal: Terminal, rounds: int, replies: Sequence[Written], history: tuple[Message, ...] = ()
) -> float:
    """Milliseconds of a turn, the median."""
    with tempfile.TemporaryDirectory() as folder, EventLog(Path(folder, "conversations.sqlite")) as log:
        conversation = Conversation(
            models=Models(ScriptedModel([*replies] * (rounds + 2), window=1 << 20)),
            tools=[Nothing()],
            context=Context(terminal, "local", Nobody(), ""),
            log=log,
            options=Options(history=history),
        )
        await conversation.begin()
        took: list[float] = []
        for _ in range(rounds + 2):
            begin = time.perf_counter()
            await conversation.ask("go")
            took.append(time.perf_counter() - begin)
    return median(took[2:]) * 1e3


async def _measured(rounds: int) -> list[Figure]:
    long = tuple(Message("user" if number % 2 == 0 else "assistant", "word " * 100) for number in range(400))
    # The endpoint counts tokens, and that is not the loop's work.
    done, call = (replace(each, usage=Usage(prompt=100)) for each in (say("done"), ask(("nothing", {"n": 1}))))
    async with hermes_exec.open("local", audit=False) as terminal:
        plain = await _turns(terminal, rounds, [done])
        called = await _turns(terminal, rounds, [call, done])
        later = await _turns(terminal, rounds, [call, done], long)
    return [
        Figure(name, "ms", ours, "the limit", LIMIT_MS, 1.0)
        for name, ours in (
            ("agent, a turn of one reply", plain),
            ("agent, a turn of one call and its answer", called),
            ("the same after 400 messages", later),
        )
    ]


def figures(rounds: int) -> list[Figure]:
    return asyncio.run(_measured(rounds))
