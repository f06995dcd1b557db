"""One request: a turn of a conversation, answered whole or as a stream."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from aiohttp import web

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import HermesError
from hermes_exec_agent.frontends.http import protocol
from hermes_exec_agent.runtime.links import LinkFilter
from hermes_exec_agent.runtime.updates import CallEnded, Ended, Replied, Retried, Text, Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hermes_exec_agent.frontends.http.metrics import Metrics
    from hermes_exec_agent.runtime import Answer, Conversation
    from hermes_exec_agent.runtime.updates import Update

_log = logging.getLogger("hermes_exec.server")
CONVERSATION = "X-Hermes-Conversation"
"""The header with the id of a conversation, in requests and responses."""
PERSON = "X-Hermes-Person"
"""The header with the person that a request's conversation belongs to."""
_SILENCE_S = 15.0
"""After this time without a piece, a comment is sent."""
_SEND_LIMIT_S = 60.0
"""The time limit for a client to read a piece."""
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


async def answer_whole(conversation: Conversation, completion: protocol.Completion, metrics: Metrics) -> web.Response:
    """Answer with the whole reply.

    Raises:
        HermesError: the model or the target failed; tools may have run before.
    """
    pieces: list[str] = []
    collector = TextCollector(pieces.append, _count_calls(conversation, metrics), lambda: conversation.hosts)
    answer = await _ask(conversation, completion, collector, metrics)
    reply = protocol.CompletionWriter(conversation.id, conversation.model.name)
    return web.json_response(reply.format_whole("".join(pieces), answer), headers={CONVERSATION: conversation.id})


async def answer_streamed(
    request: web.Request, conversation: Conversation, completion: protocol.Completion, metrics: Metrics
) -> web.StreamResponse:
    """Answer with server-sent events as the reply arrives; a failure is one more event."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",  # else nginx buffers the pieces
            CONVERSATION: conversation.id,
        }
    )
    await response.prepare(request)
    reply = protocol.CompletionWriter(conversation.id, conversation.model.name)
    waiting: asyncio.Queue[str | None] = asyncio.Queue()
    collector = TextCollector(waiting.put_nowait, _count_calls(conversation, metrics), lambda: conversation.hosts)
    turn = asyncio.create_task(_ask(conversation, completion, collector, metrics))
    turn.add_done_callback(lambda _: waiting.put_nowait(None))
    try:
        await _send(response, reply.format_piece("", first=True))
        while (piece := await _next(waiting)) is not None:
            await _send(response, reply.format_piece(piece) if piece else protocol.KEEPALIVE)
        answer = await turn
        await _send(response, reply.format_end(answer))
        if completion.wants_usage:
            await _send(response, reply.format_usage(answer))
        await _send(response, protocol.DONE)
    except HermesError as error:
        await _send(
            response, protocol.format_event(protocol.error_to_json(str(error), kind="server_error", code="turn_failed"))
        )
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


async def _ask(
    conversation: Conversation, completion: protocol.Completion, collector: TextCollector, metrics: Metrics
) -> Answer:
    began = time.monotonic()
    metrics.running.inc()
    try:
        answer = await conversation.ask(completion.request, collector.update, images=completion.images)
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


def _count_calls(conversation: Conversation, metrics: Metrics) -> Callable[[CallEnded], None]:
    known = {spec.name for spec in conversation.specs}
    return lambda ended: metrics.count_call(ended, known=ended.call.name in known)


async def _next(waiting: asyncio.Queue[str | None]) -> str | None:
    """Return the next piece; empty after a long silence, None at the end."""
    try:
        async with asyncio.timeout(_SILENCE_S):
            return await waiting.get()
    except TimeoutError:
        return ""


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(_SEND_LIMIT_S):
        await response.write(data)
