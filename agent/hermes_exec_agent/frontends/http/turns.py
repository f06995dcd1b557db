"""One request: a turn of a conversation, answered whole or as it comes."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from aiohttp import web

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import HermesError
from hermes_exec_agent.frontends.http import protocol
from hermes_exec_agent.runtime.updates import CallEnded, Replied, Retried, Text, Warned

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_exec_agent.frontends.http.metrics import Metrics
    from hermes_exec_agent.runtime import Answer, Conversation
    from hermes_exec_agent.runtime.updates import Update

_log = logging.getLogger("hermes_exec.server")
CONVERSATION = "X-Hermes-Conversation"
"""The header with the id of a conversation, in requests and in replies."""
_SILENCE_S = 15.0
"""After so long without a piece a comment is sent."""
_PATIENCE_S = 60.0
"""So long a client may take to read a piece."""
_AGAIN = "\n\n[the reply broke off and was asked for again]\n\n"


class TextCollector:
    """The text of a turn as its client sees it: several replies of the model are one text."""

    def __init__(self, write: Callable[[str], None], seen: Callable[[CallEnded], None]) -> None:
        """``write`` takes each piece, ``seen`` each call of a tool that ended."""
        self._write = write
        self._seen = seen
        self._said = False
        self._fresh = False

    def update(self, update: Update) -> None:
        """Something happened in the turn."""
        if isinstance(update, Text):
            if self._fresh and update.text:
                self._write("\n\n")
                self._fresh = False
            self._write(update.text)
            self._said = self._said or bool(update.text)
        elif isinstance(update, Replied | Warned):
            self._fresh = self._said
        elif isinstance(update, Retried) and self._said:
            self._write(_AGAIN)
        elif isinstance(update, CallEnded):
            self._seen(update)


async def answer_whole(conversation: Conversation, asked: protocol.Completion, metrics: Metrics) -> web.Response:
    """Answer at once.

    Raises:
        HermesError: the model or the place failed; it may have done something before.
    """
    pieces: list[str] = []
    words = TextCollector(pieces.append, _count_calls(conversation, metrics))
    answer = await _ask(conversation, asked, words, metrics)
    reply = protocol.CompletionWriter(conversation.id, conversation.model.name)
    return web.json_response(reply.format_whole("".join(pieces), answer), headers={CONVERSATION: conversation.id})


async def answer_streamed(
    request: web.Request, conversation: Conversation, asked: protocol.Completion, metrics: Metrics
) -> web.StreamResponse:
    """Answer as it comes, as server-sent events. What fails is told as one more of them."""
    response = web.StreamResponse(
        headers={
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",  # nginx would hold the pieces back
            CONVERSATION: conversation.id,
        }
    )
    await response.prepare(request)
    reply = protocol.CompletionWriter(conversation.id, conversation.model.name)
    waiting: asyncio.Queue[str | None] = asyncio.Queue()
    words = TextCollector(waiting.put_nowait, _count_calls(conversation, metrics))
    turn = asyncio.create_task(_ask(conversation, asked, words, metrics))
    turn.add_done_callback(lambda _: waiting.put_nowait(None))
    try:
        await _send(response, reply.format_piece("", first=True))
        while (piece := await _next(waiting)) is not None:
            await _send(response, reply.format_piece(piece) if piece else protocol.KEEPALIVE)
        answer = await turn
        await _send(response, reply.format_end(answer))
        if asked.wants_usage:
            await _send(response, reply.format_usage(answer))
        await _send(response, protocol.DONE)
    except HermesError as error:
        await _send(
            response, protocol.format_event(protocol.error_to_json(str(error), kind="server_error", code="turn_failed"))
        )
    except (TimeoutError, ConnectionError):
        _log.info("a client stopped reading", extra={"conversation": conversation.id})
    finally:
        turn.cancel()  # a client that went away has no use for what would still be done
        await shield_to_completion(_wait_for_end(turn), limit_s=None)  # and the conversation is another's then
    return response


async def _wait_for_end(turn: asyncio.Task[Answer]) -> None:
    """Wait for it; what it failed with was told, or nobody is there any more to hear of it."""
    await asyncio.gather(turn, return_exceptions=True)


async def _ask(
    conversation: Conversation, asked: protocol.Completion, words: TextCollector, metrics: Metrics
) -> Answer:
    began = time.monotonic()
    metrics.running.inc()
    try:
        answer = await conversation.ask(asked.request, words.update)
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
    """The next piece; empty after a long silence, None at the end."""
    try:
        async with asyncio.timeout(_SILENCE_S):
            return await waiting.get()
    except TimeoutError:
        return ""


async def _send(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        await response.write(data)
