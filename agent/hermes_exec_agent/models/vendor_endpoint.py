"""A model behind a vendor's own API, by the vendor's SDK and the direct requests of ``pydantic-ai-slim``.

The library translates messages, tools and settings; it runs no agent and no tool, and its retries and those of the SDKs
are off. Parts of replies that only their vendor can read, such as signatures of reasoning, are kept in the extras of a
message (`models.vendor_messages`), and are sent to that endpoint alone.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hermes_exec.extras import require
from hermes_exec_agent.errors import ModelError, ModelRefused, RequestRefused
from hermes_exec_agent.models.assembly import EmptyStream
from hermes_exec_agent.models.call_trace import CallTrace
from hermes_exec_agent.models.failures import (
    EndpointFailure,
    classify_failure,
    classify_status,
    extract_message,
    is_too_long,
    quote_message,
    root_cause,
    too_long_error,
)
from hermes_exec_agent.models.http_api import LOOPBACK
from hermes_exec_agent.models.retrying import RetryingModel, read_until
from hermes_exec_agent.models.vendor_messages import VendorAssembler, to_vendor_messages, to_vendor_tools

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    import httpx2
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters

    from hermes_exec.config.secrets import Secret
    from hermes_exec.observe.redact import Redactor
    from hermes_exec_agent.models.call_trace import Sampling
    from hermes_exec_agent.models.dialects import Reasoning
    from hermes_exec_agent.models.messages import Message
    from hermes_exec_agent.models.protocol import Price, Text, Thought, ToolChoice, ToolSpec
    from hermes_exec_agent.models.providers import VendorApi
    from hermes_exec_agent.models.retrying import Patience

_ID = 200
"""Characters of a reply's id that are recorded."""


@dataclass(frozen=True, slots=True)
class VendorRequest:
    """One request, in the library's form."""

    messages: list[ModelMessage]
    settings: dict[str, Any]
    parameters: ModelRequestParameters


@dataclass(frozen=True, slots=True)
class _Client:
    """The library's model, and what closes its connections."""

    model: Model[Any]
    close: Callable[[], Awaitable[object]]


class VendorEndpoint(RetryingModel[VendorRequest, VendorAssembler]):
    """One model of one vendor's own API."""

    def __init__(  # noqa: PLR0913  each is a choice of its own
        self,
        name: str,
        *,
        api: VendorApi,
        base_url: str,
        key: Secret | None = None,
        window: int = 128_000,
        price: Price | None = None,
        patience: Patience | None = None,
        reasoning: Reasoning | None = None,
        marks_cache: bool = False,
        sampling: Sampling | None = None,
    ) -> None:
        """``name`` is the vendor's name of the model."""
        super().__init__(
            name, base_url=base_url, key=key, window=window, price=price, patience=patience, reasoning=reasoning,
            sampling=sampling, origin=f"{api}\n{base_url}\n{name}",
        )  # fmt: skip
        self.api: VendorApi = api
        self._marks_cache = marks_cache

    def _build_body(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        max_tokens: int | None,
        schema: dict[str, Any] | None,
        tool_choice: ToolChoice | None,
    ) -> VendorRequest:
        if self.capture == "tokens":
            raise ModelError(f"{self.name}: its API returns no token ids", remedy="vLLM or SGLang")
        settings: dict[str, Any] = self._sampling.to_wire()
        if self.api == "anthropic":
            settings.pop("seed", None)  # it has none
            settings["cache"] = self._marks_cache
        if self.api == "openai-responses":
            settings["openai_store"] = False
        if max_tokens is not None:
            settings["max_tokens"] = max_tokens
        if tools and tool_choice is not None:
            settings["tool_choice"] = tool_choice
        if self.reasoning.thinking == "off" or (self.api == "anthropic" and self._continues_another(messages)):
            settings["thinking"] = False
        elif self.reasoning.effort or self.reasoning.thinking:
            settings["thinking"] = self.reasoning.effort or True
        enforces = schema is not None and bool(self._model.profile.get("supports_json_schema_output"))
        return VendorRequest(
            to_vendor_messages(messages, origin=self.origin, vendor=self._model.system),
            settings,
            to_vendor_tools(tools, schema if enforces else None),
        )

    def _continues_another(self, messages: Sequence[Message]) -> bool:
        """Return whether another model made calls in the open turn.

        Anthropic's models think in such a turn only if its calls have their own thoughts.
        """
        for message in reversed(messages):
            if message.role == "user":
                return False
            if message.tool_calls and message.origin != self.origin:
                return True
        return False

    def _create_assembly(self) -> VendorAssembler:
        return VendorAssembler()

    async def _attempt(
        self, request: VendorRequest, assembly: VendorAssembler, give_up: float
    ) -> AsyncGenerator[Text | Thought]:
        from pydantic_ai.direct import model_request, model_request_stream

        bound = asyncio.get_running_loop().time() + max(give_up - time.monotonic(), 0.0)
        arguments: dict[str, Any] = {
            "model_settings": request.settings, "model_request_parameters": request.parameters, "instrument": False,
        }  # fmt: skip
        if self.whole:
            async with asyncio.timeout_at(bound):
                reply = await model_request(self._model, request.messages, **arguments)
            for piece in assembly.add_whole(reply):
                yield piece
            return
        async with AsyncExitStack() as stack:
            async with asyncio.timeout_at(bound):
                opening = model_request_stream(self._model, request.messages, **arguments)
                stream = await stack.enter_async_context(opening)
            try:
                async for event in read_until(aiter(stream), bound):
                    for piece in assembly.add(event):
                        yield piece
            except Exception:
                # An error after the finish reason does not affect the reply.
                if stream.finish_reason is None:
                    raise
            assembly.end(stream.get())
        if not assembly.is_finished:
            raise EOFError if assembly.has_begun else EmptyStream

    def _classify(self, cause: BaseException) -> EndpointFailure | None:

        return classify_vendor_failure(self.name, cause, self._redactor)

    def _create_trace(self, request: VendorRequest, assembly: VendorAssembler) -> CallTrace:
        sent = ("temperature", "top_p", "seed", "max_tokens")
        sampling = {name: request.settings[name] for name in sent if name in request.settings}
        return CallTrace(sampling, assembly.request_id[:_ID])

    @property
    def _model(self) -> Model[Any]:
        client: _Client = self._ensure_client()
        return client.model

    def _connect(self) -> _Client:
        require("providers", f"to ask models of {self.api}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of SDKs, about variables that are not used here
            return _CLIENTS[self.api](self)

    def http_client(self, create: Callable[..., httpx2.AsyncClient]) -> httpx2.AsyncClient:
        """Return a client of HTTP with the time limits of this model; no proxy can reach this machine's own address."""
        import httpx2

        timeout = httpx2.Timeout(self._patience.silence_s, connect=self._patience.connect_s)
        return create(trust_env=urlsplit(self.base_url).hostname not in LOOPBACK, timeout=timeout)

    @property
    def silence_s(self) -> float:
        """Seconds until the first piece, and between two."""
        return self._patience.silence_s

    def reveal_key(self) -> str:
        """Return the key; SDKs take no empty one."""
        return self.key.reveal() if self.key else "none"


def _connect_anthropic(endpoint: VendorEndpoint) -> _Client:
    import anthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    sdk = anthropic.AsyncAnthropic(
        api_key=endpoint.reveal_key(),
        base_url=endpoint.base_url,
        max_retries=0,
        http_client=endpoint.http_client(anthropic.DefaultAsyncHttpxClient),
    )
    return _Client(AnthropicModel(endpoint.name, provider=AnthropicProvider(anthropic_client=sdk)), sdk.close)


def _connect_google(endpoint: VendorEndpoint) -> _Client:
    import httpx2
    from google.genai import Client
    from google.genai.types import HttpOptions
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    http = endpoint.http_client(httpx2.AsyncClient)
    options = HttpOptions(base_url=endpoint.base_url, timeout=int(endpoint.silence_s * 1000), httpx_async_client=http)
    sdk = Client(vertexai=False, api_key=endpoint.reveal_key(), http_options=options)
    return _Client(GoogleModel(endpoint.name, provider=GoogleProvider(client=sdk)), http.aclose)


def _connect_responses(endpoint: VendorEndpoint) -> _Client:
    import openai
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    sdk = openai.AsyncOpenAI(
        api_key=endpoint.reveal_key(),
        base_url=endpoint.base_url,
        max_retries=0,
        http_client=endpoint.http_client(openai.DefaultAsyncHttpxClient),
    )
    return _Client(OpenAIResponsesModel(endpoint.name, provider=OpenAIProvider(openai_client=sdk)), sdk.close)


_CLIENTS: dict[VendorApi, Callable[[VendorEndpoint], _Client]] = {
    "anthropic": _connect_anthropic,
    "google": _connect_google,
    "openai-responses": _connect_responses,
}


def classify_vendor_failure(who: str, cause: BaseException, redactor: Redactor) -> EndpointFailure | None:
    """Classify the failure of an attempt; None if the endpoint did not cause it."""
    from pydantic_ai import exceptions

    if isinstance(cause, exceptions.ModelAPIError):
        return _classify_api_error(who, cause, redactor)
    if isinstance(cause, exceptions.ContentFilterError):
        return EndpointFailure(RequestRefused(f"{who}: its filter refuses the reply"), again=False)
    if isinstance(cause, exceptions.UserError | NotImplementedError):
        message = quote_message(str(cause), redactor)
        return EndpointFailure(ModelRefused(f"{who}: the request cannot be sent: {message}"), again=False)
    if isinstance(cause, exceptions.AgentRunError):
        message = quote_message(str(cause), redactor)
        return EndpointFailure(ModelError(f"{who}: its response is not a reply: {message}"), again=True)
    return classify_failure(who, cause, redactor)


def _classify_api_error(who: str, cause: BaseException, redactor: Redactor) -> EndpointFailure:
    from pydantic_ai import exceptions

    assert isinstance(cause, exceptions.ModelAPIError)  # noqa: S101  for type checkers
    text = extract_message(cause.body) or str(root_cause(cause)) or type(root_cause(cause)).__name__
    message = quote_message(text, redactor)
    if isinstance(cause, exceptions.ModelContextWindowExceededError) or is_too_long(message):
        return EndpointFailure(too_long_error(who, message), again=False)
    if isinstance(cause, exceptions.ModelTimeoutError | exceptions.ModelRequestTimeout):
        error = ModelError(f"{who}: it was silent for too long", remedy="a longer silence_s")
        return EndpointFailure(error, again=True)
    if isinstance(cause, exceptions.ModelHTTPError):
        spent = isinstance(cause, exceptions.ModelQuotaExceededError)
        code = "insufficient_quota" if spent else cause.provider_error_code or cause.provider_error_type or ""
        return classify_status(who, cause.status_code, text, code, wait_s=cause.retry_after, redactor=redactor)
    if isinstance(cause, exceptions.ModelConnectionError):
        error = ModelError(f"{who}: the connection failed: {message}", remedy="check that the endpoint is running")
        return EndpointFailure(error, again=True)
    again = not isinstance(cause, exceptions.ModelRequestRejectedError)
    return EndpointFailure(ModelError(f"{who}: it failed in the middle of a reply: {message}"), again=again)
