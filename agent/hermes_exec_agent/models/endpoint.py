"""A model behind an endpoint with OpenAI's chat completions API, through the ``openai`` SDK.

The SDK's own retries are off: one time limit covers all attempts and waits, and the caller is notified of each.
Messages and tools bypass the SDK's types, which would validate every message of every request again. Importing the
SDK takes most of a second, so a thread does it: in `prepare`, or with the first request.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import threading
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.extras import require
from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models.assembly import EmptyStream, ReplyAssembler
from hermes_exec_agent.models.call_trace import CallTrace, Sampling, read_tokens
from hermes_exec_agent.models.dialects import OPENAI, Dialect, Reasoning, adapt_dialect, wire_messages
from hermes_exec_agent.models.failures import classify_failure, read_refusal
from hermes_exec_agent.models.price_list import look_up_price
from hermes_exec_agent.models.prompt_cache import mark_messages, refuses_marks
from hermes_exec_agent.models.protocol import Reply, Retried, estimate_usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    import httpx2
    from openai import AsyncOpenAI, AsyncStream
    from openai.types.chat import ChatCompletionChunk

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.models.call_trace import Capture
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Item, Price, Text, Thought, ToolChoice, ToolSpec, Usage

_log = logging.getLogger("hermes_exec.models")
_ID = 200
"""Characters of a request's id that are recorded."""
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits and number of attempts of a request."""

    attempts: int = 5
    total_s: float = 600.0
    """For all attempts and the waits between them. A longer reply is aborted."""
    silence_s: float = 180.0
    """Until the first chunk, and between two: a local machine may need minutes for a large prompt."""
    connect_s: float = 15.0
    first_wait_s: float = 0.5
    """Doubled after each attempt, unless the endpoint names a time."""
    longest_wait_s: float = 30.0


class Endpoint:
    """One model of one endpoint."""

    scripted = False

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
        self.name = name
        self.base_url = base_url
        self.window = window
        self.origin = hashlib.sha256(f"{base_url}\n{name}".encode()).hexdigest()[:16]
        """Identifies messages of this base URL and model. It is a digest, as a URL may contain a secret."""
        self.reasoning: Reasoning = reasoning or Reasoning()
        """Settings that apply from the next request on."""
        self.vision = vision
        """Whether it takes images."""
        self._dialect = dialect
        self._marks_cache = marks_cache
        self._sampling = sampling or Sampling()
        self.whole = False
        """Whether replies are requested whole, which costs less for a program that shows none of their pieces."""
        self.capture: Capture = "none"
        """Whether token ids are requested; their replies are whole."""
        self.key = key
        self._price = price
        self._has_price = price is not None
        self._patience = patience or Patience()
        self._limit = "max_completion_tokens" if newer_limit else "max_tokens"
        self._redactor = Redactor([key] if key else [])
        self._client: AsyncOpenAI | None = None
        self._connecting = threading.Lock()

    @property
    def price(self) -> Price | None:
        """US dollars for a million tokens: as configured, else as published; None if unknown."""
        if not self._has_price:
            self._price, self._has_price = look_up_price(self.name, self.base_url), True
        return self._price

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, base_url={self._redactor.redact(self.base_url)!r})"

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> AsyncGenerator[Item]:
        """Request a reply, and retry if that can help; see `Model.stream`.

        Raises:
            ModelError: no complete reply arrived within ``Patience``; ModelRefused and ContextTooLong are not retried.
            MissingExtra: the ``openai`` package is not installed.
        """
        request = self._build_body(messages, tools, max_tokens, schema, tool_choice)
        give_up = time.monotonic() + self._patience.total_s
        client = await asyncio.to_thread(self._ensure_client) if self._client is None else self._client
        # The table of prices takes long to load, and the endpoint works meanwhile.
        pricing = None if self._has_price else asyncio.create_task(asyncio.to_thread(lambda: self.price))
        attempt = 0
        while True:
            attempt += 1
            assembly = ReplyAssembler()
            try:
                async with aclosing(self._attempt(client, request, assembly, give_up)) as pieces:
                    async for piece in pieces:
                        yield piece
            except Exception as cause:  # noqa: BLE001  errors that are not the endpoint's are raised again
                if adapted := self._adapt(read_refusal(cause)):
                    request = self._build_body(messages, tools, max_tokens, schema, tool_choice)
                retried = self._again(cause, attempt, give_up, adapted=adapted)
                yield retried
                await asyncio.sleep(retried.wait_s)
            else:
                message, finish = assembly.message(self.origin), assembly.finish_reason()
                if pricing is not None:
                    await pricing
                usage = self._usage(assembly, messages, tools, message)
                trace = self._create_trace(request, assembly)
                yield Reply(message, finish, usage, assembly.model or self.name, trace)
                return

    def _adapt(self, refusal: str) -> bool:
        """Leave out what the endpoint refuses in all further requests; return False if it is not known how."""
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
        self, client: AsyncOpenAI, request: dict[str, Any], assembly: ReplyAssembler, give_up: float
    ) -> AsyncGenerator[Text | Thought]:
        """Yield the content of one attempt. The time limit covers waiting for chunks, not processing them."""
        bound = asyncio.get_running_loop().time() + max(give_up - time.monotonic(), 0.0)
        create = cast("Any", client.chat.completions.create)
        if self.whole or self.capture == "tokens":
            async with asyncio.timeout_at(bound):
                # The endpoint is silent until the reply is complete.
                reply = await create(
                    model=self.name, messages=[], extra_body=request, timeout=max(give_up - time.monotonic(), 1.0)
                )
            for piece in assembly.add_whole(reply):
                yield piece
            if not assembly.is_finished:
                raise EmptyStream
            return
        async with asyncio.timeout_at(bound):
            chunks: AsyncStream[ChatCompletionChunk] = await create(
                model=self.name, messages=[], stream=True, extra_body=request
            )
        assembly.request_id = chunks.response.headers.get("x-request-id", "")
        try:
            while True:
                try:
                    async with asyncio.timeout_at(bound):
                        pieces = assembly.add(await anext(chunks))
                except StopAsyncIteration:
                    break
                for piece in pieces:
                    yield piece
        except Exception:
            # An error after the last chunk does not affect the reply.
            if not assembly.is_finished:
                raise
        finally:
            await chunks.close()
        if not assembly.is_finished:
            raise EOFError if assembly.has_begun else EmptyStream(chunks.response.headers.get("content-type", ""))

    def _again(self, cause: Exception, attempt: int, give_up: float, *, adapted: bool) -> Retried:
        """What to do after a failed attempt; ``adapted``: the next request avoids its cause.

        Raises:
            ModelError: nothing more.
        """
        found = classify_failure(self.name, cause, self._redactor)
        if found is None:
            raise cause
        reason, remedy = found.error.what, found.error.remedy
        if adapted:
            return Retried(reason, 0.0, self.name)
        if not found.again:
            raise found.error from None
        patience = self._patience
        longest = min(patience.first_wait_s * 2 ** (attempt - 1), patience.longest_wait_s)
        # Many that were refused at once must not come back at once.
        wait_s = longest * random.uniform(0.5, 1.0) if found.wait_s is None else found.wait_s  # noqa: S311  no secret
        if attempt >= patience.attempts:
            raise ModelError(f"{reason}; asked {attempt} times", remedy=remedy) from None
        if time.monotonic() + wait_s >= give_up:
            hint = f"; it asks to wait {wait_s:.0f} s" if found.wait_s is not None else ""
            times = "attempt" if attempt == 1 else "attempts"
            raise ModelError(f"{reason}{hint}; given up after {attempt} {times}", remedy="later") from None
        _log.info("asking again", extra={"model": self.name, "reason": reason, "wait_s": round(wait_s, 3)})
        return Retried(reason, wait_s, self.name)

    def _create_trace(self, request: dict[str, Any], assembly: ReplyAssembler) -> CallTrace:
        """Return what is recorded of a request.

        Raises:
            ModelError: token ids were requested, and the reply has none.
        """
        limit = {"max_tokens": request[self._limit]} if self._limit in request else {}
        tokens = None
        if self.capture == "tokens":
            if assembly.whole is None:
                raise ModelError(f"{self.name}: the reply has no token ids")
            tokens = read_tokens(self.name, assembly.whole)
        return CallTrace({**self._sampling.to_wire(), **limit}, assembly.request_id[:_ID], tokens)

    def _usage(
        self, assembly: ReplyAssembler, messages: Sequence[Message], tools: Sequence[ToolSpec], reply: Message
    ) -> Usage:
        usage = assembly.usage or estimate_usage(messages, tools, reply)
        if usage.cost is None and (price := self.price) is not None:
            return replace(usage, cost=price.cost_of(usage))
        return usage

    def prepare(self) -> None:
        """Import and configure the SDK before the first request; call it in a thread, as it takes most of a second.

        An error here occurs again with the first request, which reports it.
        """
        with suppress(Exception):
            self._ensure_client()

    def _ensure_client(self) -> AsyncOpenAI:
        """Return the client, which keeps the connections open."""
        with self._connecting:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> AsyncOpenAI:
        """The SDK's client. Nothing is sent yet."""
        require("agent", "to ask models")
        import openai

        timeout = openai.Timeout(self._patience.silence_s, connect=self._patience.connect_s)
        return openai.AsyncOpenAI(
            api_key=self.key.reveal() if self.key else "none",
            base_url=self.base_url,
            max_retries=0,
            timeout=timeout,
            http_client=self.http_client(),
        )

    def http_client(self) -> httpx2.AsyncClient:
        """A client for requests of HTTP to this endpoint, by the same way as its own."""
        from urllib.parse import urlsplit

        import openai

        timeout = openai.Timeout(self._patience.silence_s, connect=self._patience.connect_s)
        # No proxy can reach this machine's own addresses for us.
        return openai.DefaultAsyncHttpxClient(
            trust_env=urlsplit(self.base_url).hostname not in _LOOPBACK, timeout=timeout
        )

    async def close(self) -> None:
        """Give the connections back."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
