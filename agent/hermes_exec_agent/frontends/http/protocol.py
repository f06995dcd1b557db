"""Requests and replies in the form of OpenAI's chat completions."""

from __future__ import annotations

import json
import time
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hermes_exec.errors import UsageError
from hermes_exec_agent.models.images import MAX_IMAGES, Image, parse_data_url
from hermes_exec_agent.models.messages import Message

if TYPE_CHECKING:
    from aiohttp import web

    from hermes_exec_agent.models.protocol import Usage
    from hermes_exec_agent.runtime import Answer

MAX_BODY = 8 << 20
"""The limit of bytes of a request."""
_MOST_MESSAGES = 2000
_NOT_OURS = ("tools", "functions", "stop", "logprobs", "audio", "logit_bias")
"""Options that are refused, because ignoring them would change the meaning of the reply."""
_FINISH = {"answered": "stop", "empty": "stop", "filtered": "content_filter"}


class _TextPart(BaseModel):
    type: Literal["text"]
    text: str


class _ImageUrl(BaseModel):
    url: str = Field(max_length=MAX_BODY)


class _ImagePart(BaseModel):
    type: Literal["image_url"]
    image_url: _ImageUrl


class _RequestMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Annotated[_TextPart | _ImagePart, Field(discriminator="type")]]

    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, _TextPart))

    @cached_property
    def images(self) -> tuple[Image, ...]:
        """The images of a user's message.

        Raises:
            UsageError: one is invalid.
        """
        if isinstance(self.content, str) or self.role != "user":
            return ()
        urls = [part.image_url.url for part in self.content if isinstance(part, _ImagePart)]
        return tuple(parse_data_url(url, f"image {number}") for number, url in enumerate(urls, 1))


class _StreamOptions(BaseModel):
    include_usage: bool = False


class Completion(BaseModel):
    """A request. Sampling options are ignored; the configuration of the model applies."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(default="", max_length=200)
    messages: list[_RequestMessage] = Field(min_length=1, max_length=_MOST_MESSAGES)
    stream: bool = False
    stream_options: _StreamOptions | None = None
    n: Literal[1] | None = None
    conversation: str = Field(default="", max_length=100)
    """An extension of ours: the id of a conversation to continue."""
    person: str = Field(default="", max_length=64)
    """An extension of ours: the person that the conversation belongs to."""

    @property
    def request(self) -> str:
        """The text of the last message."""
        return self.messages[-1].text()

    @property
    def images(self) -> tuple[Image, ...]:
        """The images of the last message."""
        return self.messages[-1].images

    @property
    def instructions(self) -> str:
        """The text of the system messages of the client."""
        return "\n\n".join(said.text() for said in self.messages if said.role in {"system", "developer"})

    @property
    def history(self) -> tuple[Message, ...]:
        """The earlier messages, as sent by the client."""
        return tuple(
            Message("user" if said.role == "user" else "assistant", said.text(), images=said.images)
            for said in self.messages[:-1]
            if said.role in {"user", "assistant"}
        )

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


M = TypeVar("M", bound=BaseModel)


def read_model(model: type[M], body: bytes) -> M:
    """Parse a request of that form.

    Raises:
        UsageError: it has another one.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        first = max(found, key=lambda each: len(each["loc"]))  # of text or a list, the form that came closer
        where = ".".join(str(each) for each in first["loc"] if not (each == "str" or "[" in str(each)))
        raise UsageError(f"{where}: {first['msg']}" if where else first["msg"]) from None


def read_completion(body: bytes) -> Completion:
    """Parse a request.

    Raises:
        UsageError: the request is invalid or not supported.
    """
    asked = read_model(Completion, body)
    given = asked.model_extra or {}
    for name in _NOT_OURS:
        if given.get(name):
            raise UsageError(f"{name} is not supported: the agent selects its own tools and replies")
    if (response_format := given.get("response_format")) and response_format != {"type": "text"}:
        raise UsageError("response_format is not supported: the agent answers in text")
    if asked.messages[-1].role != "user" or not asked.request.strip():
        raise UsageError("the last message must be of the user, with text")
    if sum(len(said.images) for said in asked.messages) > MAX_IMAGES:
        raise UsageError(f"a request has {MAX_IMAGES} images at most")
    return asked


class CompletionWriter:
    """Formats one reply, whole or in pieces."""

    def __init__(self, conversation: str, model: str) -> None:
        """``conversation`` is the id in the log, ``model`` the name of the model."""
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{conversation}-{time.time_ns():x}",
            "created": int(time.time()),
            "model": model,
            "conversation": conversation,
        }

    def format_whole(self, text: str, answer: Answer) -> dict[str, Any]:
        """Return the whole reply."""
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "finish_reason": get_finish_reason(answer),
            "logprobs": None,
        }
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage_to_json(answer.usage)}

    def format_piece(self, text: str, *, first: bool = False) -> bytes:
        """Return a chunk with a piece of the text."""
        return self._chunk({"role": "assistant", "content": text} if first else {"content": text}, None)

    def format_end(self, answer: Answer) -> bytes:
        """Return the chunk with the reason of the end."""
        return self._chunk({}, get_finish_reason(answer))

    def format_usage(self, answer: Answer) -> bytes:
        """Return the chunk with the usage."""
        payload: dict[str, Any] = {
            "object": "chat.completion.chunk",
            "choices": [],
            "usage": usage_to_json(answer.usage),
        }
        return format_event({**self._head, **payload})

    def _chunk(self, delta: dict[str, str], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return format_event({**self._head, "object": "chat.completion.chunk", "choices": [choice]})


DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": working\n\n"
"""A comment that keeps proxies from closing a silent connection."""


def format_event(payload: dict[str, Any]) -> bytes:
    """Format a server-sent event."""
    return f"data: {json.dumps(payload, ensure_ascii=False)}\n\n".encode()


def get_finish_reason(answer: Answer) -> str:
    """Return the finish reason of an answer; a turn stopped by a budget or guardrail counts as cut."""
    return _FINISH.get(answer.outcome, "length")


def usage_to_json(usage: Usage) -> dict[str, Any]:
    """Return the usage in the form of the protocol."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def error_to_json(message: str, *, kind: str, code: str) -> dict[str, Any]:
    """Return an error in the form of the protocol."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def make_error_response(status: int, message: str, *, code: str, again: bool = False) -> web.Response:
    """Return an error response. ``again`` permits client libraries to repeat the request."""
    from aiohttp import web

    kind = "invalid_request_error" if status < 500 and status != 429 else "server_error"
    refused = web.json_response(error_to_json(message, kind=kind, code=code), status=status)
    refused.headers["x-should-retry"] = "true" if again else "false"  # obeyed by OpenAI's own clients
    return refused
