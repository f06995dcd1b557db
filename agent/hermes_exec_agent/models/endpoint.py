"""A model behind an endpoint that speaks OpenAI's chat completions, by the ``openai`` SDK.

The SDK's own retries are off: here one bound holds for all attempts and waits together, and whoever listens is told
of each. Messages and tools go around the SDK's own types, as it would walk every message of every request again. To
import the SDK takes most of a second, so that is done in a thread: by `prepare`, or by the first request.
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
from hermes_exec_agent.models.assembly import Assembly, Nothing
from hermes_exec_agent.models.dialects import OPENAI, Dialect, Reasoning, heed, wire_messages
from hermes_exec_agent.models.failures import read_refusal, trouble
from hermes_exec_agent.models.protocol import Reply, Retried, estimated_usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    import httpx2
    from openai import AsyncOpenAI, AsyncStream
    from openai.types.chat import ChatCompletionChunk

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Item, Price, Text, Thought, ToolChoice, ToolSpec, Usage

_log = logging.getLogger("hermes_exec.models")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often a model is asked."""

    attempts: int = 5
    total_s: float = 600.0
    """Of all attempts and the waits between them. A reply that goes on for longer is given up too."""
    silence_s: float = 180.0
    """Until the first piece, and between two: a large prompt takes a machine of one's own minutes."""
    connect_s: float = 15.0
    first_wait_s: float = 0.5
    """Doubled from wait to wait, where the endpoint does not say how long to wait."""
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
    ) -> None:
        """``name`` is the endpoint's for the model. ``newer_limit``: see `Provider`."""
        self.name = name
        self.base_url = base_url
        self.window = window
        self.origin = hashlib.sha256(f"{base_url}\n{name}".encode()).hexdigest()[:16]
        """The same for the same base URL and model, and for no other: it tells which messages are its own. A digest, as
        an address may have a secret in it."""
        self.reasoning: Reasoning = reasoning or Reasoning()
        """How much it is asked to think, from the next request on."""
        self._dialect = dialect
        self.key = key
        self._price = price
        self._patience = patience or Patience()
        self._limit = "max_completion_tokens" if newer_limit else "max_tokens"
        self._redactor = Redactor([key] if key else [])
        self._client: AsyncOpenAI | None = None
        self._connecting = threading.Lock()

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, base_url={self._redactor.text(self.base_url)!r})"

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        max_tokens: int | None = None,
        schema: dict[str, Any] | None = None,
        tool_choice: ToolChoice | None = None,
    ) -> AsyncGenerator[Item]:
        """Ask, and ask again where that can help; see `Model.stream`.

        Raises:
            ModelError: no whole reply came within ``Patience``; ModelRefused and ContextTooLong at once.
            MissingExtra: the ``openai`` package is not installed.
        """
        request = self._build_body(messages, tools, max_tokens, schema, tool_choice)
        give_up = time.monotonic() + self._patience.total_s
        client = await asyncio.to_thread(self._connected) if self._client is None else self._client
        attempt = 0
        while True:
            attempt += 1
            assembly = Assembly()
            try:
                async with aclosing(self._attempt(client, request, assembly, give_up)) as pieces:
                    async for piece in pieces:
                        yield piece
            except Exception as cause:  # noqa: BLE001  what is not the endpoint's is raised again
                if adapted := heed(self._dialect, read_refusal(cause)):
                    self._dialect = adapted
                    request = self._build_body(messages, tools, max_tokens, schema, tool_choice)
                retried = self._again(cause, attempt, give_up, adapted=adapted is not None)
                yield retried
                await asyncio.sleep(retried.wait_s)
            else:
                message, finish = assembly.message(self.origin), assembly.finish()
                usage = self._usage(assembly, messages, tools, message)
                yield Reply(message, finish, usage, assembly.model or self.name)
                return

    def _build_body(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        max_tokens: int | None,
        schema: dict[str, Any] | None,
        tool_choice: ToolChoice | None,
    ) -> dict[str, Any]:
        """The body of a request, but for the model's name and for ``stream``."""
        body: dict[str, Any] = {
            "messages": wire_messages(
                messages, self._dialect, origin=self.origin, model=self.name, reasoning=self.reasoning
            ),
            "stream_options": {"include_usage": True},
            **self._dialect.ask(self.reasoning),
        }
        if tools:
            body["tools"] = [tool.wire() for tool in tools]
            if tool_choice is not None:  # without tools endpoints refuse it
                body["tool_choice"] = tool_choice
        if max_tokens is not None:
            body[self._limit] = max_tokens
        if schema is not None:
            named = {"name": "reply", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body

    async def _attempt(
        self, client: AsyncOpenAI, request: dict[str, Any], assembly: Assembly, give_up: float
    ) -> AsyncGenerator[Text | Thought]:
        """What one attempt's pieces add. The bound covers waiting for them, not what is done with them."""
        bound = asyncio.get_running_loop().time() + max(give_up - time.monotonic(), 0.0)
        create = cast("Any", client.chat.completions.create)
        async with asyncio.timeout_at(bound):
            chunks: AsyncStream[ChatCompletionChunk] = await create(
                model=self.name, messages=[], stream=True, extra_body=request
            )
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
            # What breaks after the last piece takes nothing from the reply.
            if not assembly.finished:
                raise
        finally:
            await chunks.close()
        if not assembly.finished:
            raise EOFError if assembly.begun else Nothing(chunks.response.headers.get("content-type", ""))

    def _again(self, cause: Exception, attempt: int, give_up: float, *, adapted: bool) -> Retried:
        """What to do after a failed attempt; ``adapted``: the next request avoids its cause.

        Raises:
            ModelError: nothing more.
        """
        found = trouble(self.name, cause, self._redactor)
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

    def _usage(
        self, assembly: Assembly, messages: Sequence[Message], tools: Sequence[ToolSpec], reply: Message
    ) -> Usage:
        usage = assembly.usage or estimated_usage(messages, tools, reply)
        if usage.cost is None and self._price is not None:
            return replace(usage, cost=self._price.of(usage))
        return usage

    def prepare(self) -> None:
        """Import the SDK and set it up, so that the first request need not: for a thread, as it takes most of a second.

        What fails here fails again with that request, which tells it.
        """
        with suppress(Exception):
            self._connected()

    def _connected(self) -> AsyncOpenAI:
        """The one client, which keeps the connections."""
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
