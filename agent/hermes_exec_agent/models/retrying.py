"""A model behind an endpoint, asked again where that can help.

The retries of SDKs are off: one time limit covers all attempts and waits, and the caller is notified of each.
Importing a vendor's SDK takes most of a second, so a thread connects: in `prepare`, or with the first request.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from hermes_exec.observe.redact import Redactor
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models.call_trace import Sampling
from hermes_exec_agent.models.dialects import Reasoning
from hermes_exec_agent.models.price_list import look_up_price
from hermes_exec_agent.models.protocol import Reply, Retried, estimate_usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Sequence

    from hermes_exec.config.secrets import Secret
    from hermes_exec_agent.models.call_trace import CallTrace, Capture
    from hermes_exec_agent.models.failures import EndpointFailure
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Finish, Item, Price, Text, Thought, ToolChoice, ToolSpec, Usage

_log = logging.getLogger("hermes_exec.models")
T = TypeVar("T")


class Assembly(Protocol):
    """A reply that is arriving."""

    usage: Usage | None
    model: str

    def message(self, origin: str = "") -> Message:
        """Return the reply as a message of the endpoint ``origin``."""
        ...

    def finish_reason(self) -> Finish:
        """Return the finish reason."""
        ...


R = TypeVar("R")
"""The type of a request."""
A = TypeVar("A", bound=Assembly)


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


class RetryingModel(ABC, Generic[R, A]):
    """One model of one endpoint."""

    scripted = False

    def __init__(  # noqa: PLR0913  each is a choice of its own
        self,
        name: str,
        *,
        base_url: str,
        key: Secret | None,
        window: int,
        price: Price | None,
        patience: Patience | None,
        reasoning: Reasoning | None,
        sampling: Sampling | None,
        origin: str,
    ) -> None:
        """``name`` is the endpoint's name of the model; ``origin`` identifies both, and the protocol."""
        self.name = name
        self.base_url = base_url
        self.window = window
        self.origin = hashlib.sha256(origin.encode()).hexdigest()[:16]
        """Identifies messages of this endpoint and model. It is a digest, as a URL may contain a secret."""
        self.reasoning: Reasoning = reasoning or Reasoning()
        """Settings that apply from the next request on."""
        self.whole = False
        """Whether replies are requested whole, which costs less for a program that shows none of their pieces."""
        self.capture: Capture = "none"
        """Whether token ids are requested; their replies are whole."""
        self.key = key
        self._sampling = sampling or Sampling()
        self._price = price
        self._has_price = price is not None
        self._patience = patience or Patience()
        self._redactor = Redactor([key] if key else [])
        self._client: Any = None
        """The client, once created."""
        self._connecting = threading.Lock()

    @property
    def price(self) -> Price | None:
        """US dollars for a million tokens: as configured, else as published; None if unknown."""
        if not self._has_price:
            self._price, self._has_price = look_up_price(self.name, self.base_url), True
        return self._price

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, base_url={self._redactor.redact(self.base_url)!r})"

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
            MissingExtra: its library is not installed.
        """
        give_up = time.monotonic() + self._patience.total_s
        if self._client is None:
            await asyncio.to_thread(self._ensure_client)
        request = self._build_body(messages, tools, max_tokens, schema, tool_choice)
        # The table of prices takes long to load, and the endpoint works meanwhile.
        pricing = None if self._has_price else asyncio.create_task(asyncio.to_thread(lambda: self.price))
        attempt = 0
        while True:
            attempt += 1
            assembly = self._create_assembly()
            try:
                async with aclosing(self._attempt(request, assembly, give_up)) as pieces:
                    async for piece in pieces:
                        yield piece
            except Exception as cause:  # noqa: BLE001  errors that are not the endpoint's are raised again
                if adapted := self._adapt(cause):
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

    @abstractmethod
    def _build_body(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        max_tokens: int | None,
        schema: dict[str, Any] | None,
        tool_choice: ToolChoice | None,
    ) -> R:
        """Return the request."""

    def _ensure_client(self) -> Any:
        """Return the client, which keeps the connections open, and create it if there is none; called in a thread."""
        with self._connecting:
            if self._client is None:
                self._client = self._connect()
            return self._client

    @abstractmethod
    def _connect(self) -> Any:
        """Return a client; its ``close()`` gives the connections back. Nothing is sent yet."""

    @abstractmethod
    def _create_assembly(self) -> A:
        """Return the assembly of an attempt."""

    @abstractmethod
    def _attempt(self, request: R, assembly: A, give_up: float) -> AsyncGenerator[Text | Thought]:
        """Yield the content of one attempt. The time limit covers waiting for chunks, not processing them."""

    @abstractmethod
    def _classify(self, cause: BaseException) -> EndpointFailure | None:
        """Classify the failure of an attempt; None if the endpoint did not cause it."""

    @abstractmethod
    def _create_trace(self, request: R, assembly: A) -> CallTrace:
        """Return the record of a request.

        Raises:
            ModelError: a required part of it is missing.
        """

    def _adapt(self, cause: BaseException) -> bool:  # noqa: ARG002  most protocols have one form
        """Leave out what the endpoint refuses in all further requests; return False if it is not known how."""
        return False

    def _again(self, cause: Exception, attempt: int, give_up: float, *, adapted: bool) -> Retried:
        """What to do after a failed attempt; ``adapted``: the next request avoids its cause.

        Raises:
            ModelError: nothing more.
        """
        found = self._classify(cause)
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
        usage = assembly.usage or estimate_usage(messages, tools, reply)
        if usage.cost is None and (price := self.price) is not None:
            return replace(usage, cost=price.cost_of(usage))
        return usage

    def prepare(self) -> None:
        """Create the client before the first request; call it in a thread, as the import of its library takes long.

        An error here occurs again with the first request, which reports it.
        """
        with suppress(Exception):
            self._ensure_client()

    async def close(self) -> None:
        """Give the connections back."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()


async def read_until(events: AsyncIterator[T], bound: float) -> AsyncGenerator[T]:
    """Yield events; each is awaited until ``bound``, a time of the loop's clock.

    Raises:
        TimeoutError: it passed before the end.
    """
    while True:
        try:
            async with asyncio.timeout_at(bound):
                event = await anext(events)
        except StopAsyncIteration:
            return
        yield event
