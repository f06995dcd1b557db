"""One request: a turn of a conversation, answered whole or as a stream."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import HermesError
from hermes_exec_agent.frontends.http import protocol
from hermes_exec_agent.runtime.links import LinkFilter
from hermes_exec_agent.runtime.updates import CallEnded, Ended, Replied, Retried, Text, Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from hermes_exec_agent.frontends.http.metrics import Metrics
    from hermes_exec_agent.models.images import Image
    from hermes_exec_agent.runtime import Answer, Conversation
    from hermes_exec_agent.runtime.updates import Update

_log = logging.getLogger("hermes_exec.server")
CONVERSATION = "X-Hermes-Conversation"
"""The header with the id of a conversation, in requests and responses."""
PERSON = "X-Hermes-Person"
"""The header with the person that a request's conversation belongs to."""
SILENCE_S = 15.0
"""After this time without a piece, a comment is sent."""
_SEND_LIMIT_S = 60.0
"""The time limit for a client to read a piece."""
STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # else nginx buffers the pieces
}
_AGAIN = "\n\n[the reply was interrupted and requested again]\n\n"


class TextCollector:
    """The text of a turn for its client: joins several replies of the model."""

    def __init__(
        self, write: Callable[[str], None], seen: Callable[[CallEnded], None], hosts: Callable[[], Collection[str]]
    ) -> None:
        """``write`` is called with each piece, ``seen`` with each finished call of a tool.

        Links and images to hosts that are not in ``hosts`` become text, as clients fetch the one and hide the other.
        """
        self._links = LinkFilter(write, hosts)
        self._write = self._links.feed
        self._seen = seen
        self._has_text = False
        self._needs_break = False

    def update(self, update: Update) -> None:
        """Handle an event of the turn."""
        if isinstance(update, Text):
            if self._needs_break and update.text:
                self._write("\n\n")
                self._needs_break = False
            self._write(update.text)
            self._has_text = self._has_text or bool(update.text)
        elif isinstance(update, Replied | Warned):
            self._links.flush()
            self._needs_break = self._has_text
        elif isinstance(update, Retried) and self._has_text:
            self._write(_AGAIN)
        elif isinstance(update, CallEnded):
            self._seen(update)
        elif isinstance(update, Ended):
            self._links.flush()


class StreamWriter(Protocol):
    """Formats the stream of one turn for its client."""

    def begin(self) -> bytes:
        """Return the first event."""
        ...

    def update(self, update: Update) -> None:
        """Handle an event of the turn; what it means for the client is written by a function of the constructor."""
        ...

    def end(self, answer: Answer) -> bytes:
        """Return the last events."""
        ...

    def fail(self, error: HermesError) -> bytes:
        """Return the last event of a turn that failed."""
        ...


class ChatWriter:
    """The stream of a chat completion."""

    def __init__(self, conversation: Conversation, completion: protocol.Completion, write: Callable[[bytes], None],
                 seen: Callable[[CallEnded], None]) -> None:  # fmt: skip
        self._reply = protocol.CompletionWriter(conversation.id, conversation.model.name)
        self._wants_usage = completion.wants_usage
        self._collector = TextCollector(
            lambda text: write(self._reply.format_piece(text)), seen, lambda: conversation.hosts
        )

    def begin(self) -> bytes:
        """Return the chunk with the role."""
        return self._reply.format_piece("", first=True)

    def update(self, update: Update) -> None:
        """Write the text of the turn."""
        self._collector.update(update)

    def end(self, answer: Answer) -> bytes:
        """Return the chunks with the reason of the end and the usage."""
        usage = self._reply.format_usage(answer) if self._wants_usage else b""
        return self._reply.format_end(answer) + usage + protocol.DONE

    def fail(self, error: HermesError) -> bytes:
        """Return the error as one more event."""
        return protocol.format_event(protocol.error_to_json(str(error), kind="server_error", code="turn_failed"))


async def answer_whole(conversation: Conversation, completion: protocol.Completion, metrics: Metrics) -> web.Response:
    """Answer with the whole reply.

    Raises:
        HermesError: the model or the target failed; tools may have run before.
    """
    pieces: list[str] = []
    collector = TextCollector(pieces.append, count_calls(conversation, metrics), lambda: conversation.hosts)
    answer = await ask(conversation, completion.request, collector.update, metrics, completion.images)
    reply = protocol.CompletionWriter(conversation.id, conversation.model.name)
    return web.json_response(reply.format_whole("".join(pieces), answer), headers={CONVERSATION: conversation.id})


async def answer_streamed(
    request: web.Request,
    conversation: Conversation,
    text: str,
    create_writer: Callable[[Callable[[bytes], None]], StreamWriter],
    metrics: Metrics,
    images: Sequence[Image] = (),
) -> web.StreamResponse:
    """Answer with server-sent events as the reply arrives; a failure is one more event."""
    response = web.StreamResponse(headers={**STREAM_HEADERS, CONVERSATION: conversation.id})
    await response.prepare(request)
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
    writer = create_writer(waiting.put_nowait)
    turn = asyncio.create_task(ask(conversation, text, writer.update, metrics, images))
    turn.add_done_callback(lambda _: waiting.put_nowait(None))
    try:
        await send(response, writer.begin())
        while (piece := await next_piece(waiting)) is not None:
            await send(response, piece)
        await send(response, writer.end(await turn))
    except HermesError as error:
        await send(response, writer.fail(error))
    except (TimeoutError, ConnectionError):
        _log.info("a client stopped reading", extra={"conversation": conversation.id})
    finally:
        turn.cancel()  # a client that has disconnected needs no more work
        await shield_to_completion(
            _wait_for_end(turn), limit_s=None
        )  # after which another request may use the conversation
    return response


async def _wait_for_end(turn: asyncio.Task[Answer]) -> None:
    """Wait for the end of a turn. Its error was sent, or the client has disconnected."""
    await asyncio.gather(turn, return_exceptions=True)


async def ask(
    conversation: Conversation,
    text: str,
    listener: Callable[[Update], None],
    metrics: Metrics,
    images: Sequence[Image] = (),
) -> Answer:
    """Run a turn, and count it.

    Raises:
        HermesError: see `Conversation.ask`.
    """
    began = time.monotonic()
    metrics.running.inc()
    try:
        answer = await conversation.ask(text, listener, images=images)
    except asyncio.CancelledError:
        metrics.count_turn("interrupted", time.monotonic() - began)
        raise
    except HermesError:
        metrics.count_turn("failed", time.monotonic() - began)
        raise
    finally:
        metrics.running.dec()
    metrics.count_answer(answer, time.monotonic() - began)
    return answer


def count_calls(conversation: Conversation, metrics: Metrics) -> Callable[[CallEnded], None]:
    """Return a function that counts calls of tools."""
    known = {spec.name for spec in conversation.specs}
    return lambda ended: metrics.count_call(ended, known=ended.call.name in known)


async def next_piece(waiting: asyncio.Queue[bytes | None]) -> bytes | None:
    """Return the next piece; a comment after a long silence, None at the end."""
    try:
        async with asyncio.timeout(SILENCE_S):
            return await waiting.get()
    except TimeoutError:
        return protocol.KEEPALIVE


async def send(response: web.StreamResponse, data: bytes) -> None:
    """Send a piece.

    Raises:
        TimeoutError, ConnectionError: the client does not read it.
    """
    async with asyncio.timeout(_SEND_LIMIT_S):
        await response.write(data)
