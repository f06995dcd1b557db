"""A model behind an endpoint with OpenAI's chat completions API."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from hermes_exec.extras import require
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models.assembly import EmptyStream, ReplyAssembler
from hermes_exec_agent.models.call_trace import CallTrace, Sampling, read_tokens
from hermes_exec_agent.models.dialects import OPENAI, Dialect, Reasoning, adapt_dialect, wire_messages
from hermes_exec_agent.models.http_api import ApiClient, connect, create_options, read_events, read_reply
from hermes_exec_agent.models.prompt_cache import mark_messages, refuses_marks
from hermes_exec_agent.models.retrying import Patience, RetryingModel, read_until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    import httpx2

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.models.failures import EndpointFailure
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Price, Text, Thought, ToolChoice, ToolSpec

__all__ = ["Endpoint", "Patience"]
_ID = 200
"""Characters of a request's id that are recorded."""
_DRAIN_S = 0.1
"""How long the end of a stream is awaited after its last event, so that its connection can be used again."""


class Endpoint(RetryingModel[dict[str, Any], ReplyAssembler]):
    """One model of one endpoint."""

    def __init__(  # noqa: PLR0913  each is a choice of its own
        self,
        name: str,
        *,
        base_url: str,
        key: Secret | None = None,
        window: int = 128_000,
        price: Price | None = None,
        patience: Patience | None = None,
        newer_limit: bool = False,
        dialect: Dialect = OPENAI,
        reasoning: Reasoning | None = None,
        marks_cache: bool = False,
        sampling: Sampling | None = None,
        vision: bool = False,
    ) -> None:
        """``name`` is the endpoint's name of the model. ``newer_limit``: see `Provider`."""
        super().__init__(
            name, base_url=base_url, key=key, window=window, price=price, patience=patience, reasoning=reasoning,
            sampling=sampling, origin=f"{base_url}\n{name}",
        )  # fmt: skip
        self.vision = vision
        """Whether it takes images."""
        self._dialect = dialect
        self._marks_cache = marks_cache
        self._limit = "max_completion_tokens" if newer_limit else "max_tokens"

    def _create_assembly(self) -> ReplyAssembler:
        return ReplyAssembler()

    def _classify(self, cause: BaseException) -> EndpointFailure | None:
        from hermes_exec_agent.models.failures import classify_failure  # few conversations need it

        return classify_failure(self.name, cause, self._redactor)

    def _adapt(self, cause: BaseException) -> bool:
        from hermes_exec_agent.models.failures import read_refusal

        refusal = read_refusal(cause)
        if self._marks_cache and refuses_marks(refusal):
            self._marks_cache = False
            return True
        if adapted := adapt_dialect(self._dialect, refusal):
            self._dialect = adapted
        return adapted is not None

    def _build_body(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        max_tokens: int | None,
        schema: dict[str, Any] | None,
        tool_choice: ToolChoice | None,
    ) -> dict[str, Any]:
        """Return the body of a request, without the model's name and ``stream``."""
        wired = wire_messages(
            messages,
            self._dialect,
            origin=self.origin,
            model=self.name,
            reasoning=self.reasoning,
            vision=self.vision,
        )
        if self._marks_cache:
            mark_messages(wired)
        body: dict[str, Any] = {"messages": wired, **self._dialect.ask(self.reasoning), **self._sampling.to_wire()}
        if self.capture == "tokens":
            body |= {"return_token_ids": True, "logprobs": True}
        elif not self.whole:
            body["stream_options"] = {"include_usage": True}
        if tools:
            body["tools"] = [tool.to_wire() for tool in tools]
            if tool_choice is not None:  # endpoints refuse it without tools
                body["tool_choice"] = tool_choice
        if max_tokens is not None:
            body[self._limit] = max_tokens
        if schema is not None:
            named = {"name": "reply", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body

    async def _attempt(
        self, request: dict[str, Any], assembly: ReplyAssembler, give_up: float
    ) -> AsyncGenerator[Text | Thought]:
        client: ApiClient = self._ensure_client()
        bound = asyncio.get_running_loop().time() + max(give_up - time.monotonic(), 0.0)
        streamed = not self.whole and self.capture != "tokens"
        async with asyncio.timeout_at(bound):
            # Without a stream the endpoint is silent until the reply is complete.
            body = {"model": self.name, **request, **({"stream": True} if streamed else {})}
            read_s = None if streamed else max(give_up - time.monotonic(), 1.0)
            response = await client.open(body, read_s=read_s)
        try:
            assembly.request_id = response.headers.get("x-request-id", "")
            if streamed:
                async with aclosing(_stream(response, assembly, bound)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            if "html" in (kind := response.headers.get("content-type", "")):
                raise EmptyStream(kind)
            async with asyncio.timeout_at(bound):
                reply = await read_reply(response)
            for piece in assembly.add_whole(reply):
                yield piece
            if not assembly.is_finished:
                raise EmptyStream
        finally:
            await response.aclose()

    def _create_trace(self, request: dict[str, Any], assembly: ReplyAssembler) -> CallTrace:
        limit = {"max_tokens": request[self._limit]} if self._limit in request else {}
        tokens = None
        if self.capture == "tokens":
            if assembly.whole is None:
                raise ModelError(f"{self.name}: the reply has no token ids")
            tokens = read_tokens(self.name, assembly.whole)
        return CallTrace({**self._sampling.to_wire(), **limit}, assembly.request_id[:_ID], tokens)

    def _connect(self) -> ApiClient:
        require("agent", "to ask models")
        return connect(self.http_client(), self.name, self.base_url, self.key)

    def http_client(self) -> httpx2.AsyncClient:
        """A client for requests of HTTP to this endpoint, by the same way as its own."""
        import httpx2

        patience = self._patience
        return httpx2.AsyncClient(
            **create_options(self.base_url, read_s=patience.silence_s, connect_s=patience.connect_s)
        )


async def _stream(response: httpx2.Response, assembly: ReplyAssembler, bound: float) -> AsyncGenerator[Text | Thought]:
    chunks = response.aiter_bytes()
    try:
        async for event in read_until(read_events(chunks), bound):
            for piece in assembly.add(event):
                yield piece
    except Exception:
        # An error after the last chunk does not affect the reply.
        if not assembly.is_finished:
            raise
        return
    if not assembly.is_finished:
        raise EOFError if assembly.has_begun else EmptyStream(response.headers.get("content-type", ""))
    with suppress(Exception):
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass
