"""Classify an endpoint's failures: whether to retry, and when."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import to_printable
from hermes_exec_agent.errors import ContextTooLong, ModelError, ModelRefused, RequestRefused
from hermes_exec_agent.models.assembly import EmptyStream, ReplyTooLong
from hermes_exec_agent.models.http_api import ReplyError, StatusError
from hermes_exec_agent.models.reply_extras import LIMIT, ExtrasTooLong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.observe.redact import Redactor

_LONGEST = 300
"""Characters of an endpoint's message that are quoted."""
_REQUEST = frozenset({400, 422})
"""Codes of HTTP for a request that is refused for its form or its content."""
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_NEVER = frozenset({"insufficient_quota", "billing_hard_limit_reached", "account_deactivated"})
_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window)|maximum context|prompt is too long|too many tokens|exceed_context",
    re.IGNORECASE,
)
_LIMIT = re.compile(r"(?:context length (?:is|of)|context size|context window)\D{0,24}(\d{3,8})", re.IGNORECASE)
_ROUTE = "/chat/completions"
"""The path of a request if the base URL has none."""
_ADDRESS = "the endpoint's own address as its base URL, which ends in /v1 mostly"
_REMEDIES = {
    401: "the right key in OPENAI_API_KEY, or in the provider's own variable",
    402: "credit for the account of this key",
    403: "a key with the right to use this model",
    301: _ADDRESS,
    302: _ADDRESS,
    307: _ADDRESS,
    308: _ADDRESS,
    404: "a model that the endpoint has, in DEFAULT_MODEL; and its base URL, which ends in /v1 mostly",
}


@dataclass(frozen=True, slots=True)
class EndpointFailure:
    """One failed attempt."""

    error: ModelError
    again: bool
    """Whether the same request may succeed later."""
    wait_s: float | None = None
    """How long the endpoint asks to wait."""


def classify_failure(who: str, cause: BaseException, redactor: Redactor) -> EndpointFailure | None:
    """Classify the failure of an attempt; None if the endpoint did not cause it."""
    import httpx2

    if isinstance(cause, StatusError):
        return _classify_status(who, cause, redactor)
    if isinstance(cause, TimeoutError | httpx2.TimeoutException):
        return EndpointFailure(
            ModelError(f"{who}: it was silent for too long", remedy="a longer silence_s"), again=True
        )
    if isinstance(cause, httpx2.TransportError):
        root = quote_message(str(root_cause(cause)) or type(root_cause(cause)).__name__, redactor)
        return EndpointFailure(
            ModelError(
                f"{who}: the connection failed: {root}", remedy=f"check that {_format_origin(cause)} is running"
            ),
            again=True,
        )
    if isinstance(cause, ReplyError):
        message = quote_message(str(cause), redactor)
        if _TOO_LONG.search(message):
            return EndpointFailure(too_long_error(who, message), again=False)
        return EndpointFailure(ModelError(f"{who}: it failed in the middle of a reply: {message}"), again=True)
    if isinstance(cause, EmptyStream) and "html" in str(cause):
        return EndpointFailure(
            ModelRefused(f"{who}: it sent a web page instead of a reply", remedy=_ADDRESS), again=False
        )
    if isinstance(cause, EOFError):
        remedy = _ADDRESS if isinstance(cause, EmptyStream) else ""
        return EndpointFailure(ModelError(f"{who}: the stream ended before the reply did", remedy=remedy), again=True)
    if isinstance(cause, ReplyTooLong):
        return EndpointFailure(ModelError(f"{who}: the reply has no end", remedy="a smaller max_tokens"), again=False)
    if isinstance(cause, ExtrasTooLong):
        what = f"{who}: the reasoning of its reply exceeds {LIMIT >> 20} MiB; nothing of that reply ran"
        return EndpointFailure(ModelError(what, remedy="a lower effort"), again=False)
    if isinstance(
        cause, ValueError | TypeError | AttributeError | RecursionError | httpx2.HTTPError | httpx2.StreamError
    ):
        # Raised for a chunk that is not JSON, or JSON of another shape.
        return EndpointFailure(
            ModelError(f"{who}: its response is not a reply ({_describe_fault(cause)})", remedy=_ADDRESS), again=True
        )
    return None


def _describe_fault(cause: Exception) -> str:
    if isinstance(cause, UnicodeDecodeError):
        return "not UTF-8"
    return "not JSON" if isinstance(cause, json.JSONDecodeError) else "JSON of another shape"


def _classify_status(who: str, cause: StatusError, redactor: Redactor) -> EndpointFailure:
    body: Any = cause.body
    code = str(cast("dict[str, object]", body).get("code") or "") if isinstance(body, dict) else ""
    remedy = ""
    if cause.status == 404 and cause.request.url.path == _ROUTE:
        remedy = f"{_format_origin(cause)}/v1 as its base URL; or a model that it has, in DEFAULT_MODEL"
    wait_s = parse_retry_after(cause.headers)
    text = extract_message(cause.body)
    return classify_status(who, cause.status, text, code, wait_s=wait_s, redactor=redactor, remedy=remedy)


def classify_status(
    who: str, status: int, text: str, code: str, *, wait_s: float | None, redactor: Redactor, remedy: str = ""
) -> EndpointFailure:
    """Classify an answer with an HTTP status; ``text`` is its message, and ``code`` that of the vendor.

    ``wait_s`` is how long the endpoint asks to wait, and ``remedy`` replaces the one of the status.
    """
    message = quote_message(text, redactor)
    if status in (400, 413, 422, 500) and (code == "context_length_exceeded" or _TOO_LONG.search(message)):
        return EndpointFailure(too_long_error(who, message), again=False)
    what = f"{who}: it answered {status}{': ' if message else ''}{message}"
    if status in _AGAIN and code not in _NEVER:
        return EndpointFailure(ModelError(what), again=True, wait_s=wait_s)
    remedy = remedy or _REMEDIES.get(402 if code in _NEVER else status, "")
    refusal = RequestRefused if status in _REQUEST else ModelRefused
    return EndpointFailure(refusal(what, remedy=remedy), again=False)


def read_refusal(cause: BaseException) -> str:
    """Return the message of an endpoint that refused the form of a request; empty for other failures."""
    if not isinstance(cause, StatusError) or cause.status not in _REQUEST:
        return ""
    return str(cause.body)


def _format_origin(cause: Any) -> str:
    """Return the address of the request without its path."""
    try:
        url = cause.request.url
    except RuntimeError:  # no request was sent yet
        return "the endpoint"
    return to_printable(f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}")


def too_long_error(who: str, message: str) -> ContextTooLong:
    """Return the error of a conversation that does not fit the window."""
    found = _LIMIT.search(message)
    return ContextTooLong(
        f"{who}: the conversation is too long for its window: {message}",
        remedy="a new conversation, or a model with a larger window",
        window=int(found[1]) if found else None,
    )


def parse_retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3), or None."""
    try:
        if exact := headers.get("retry-after-ms"):
            return max(float(exact) / 1000, 0.0)
        value = headers.get("retry-after", "")
        if not value:
            return None
        if re.fullmatch(r"\d+(?:\.\d+)?", value):
            return float(value)
        return max(parsedate_to_datetime(value).timestamp() - (time.time() if now is None else now), 0.0)
    except ValueError:
        return None


def is_too_long(message: str) -> bool:
    """Return whether an endpoint's message says that a conversation does not fit the window."""
    return _TOO_LONG.search(message) is not None


def extract_message(body: object) -> str:
    """Return the message in a response's body, in any of the usual forms."""
    if isinstance(body, list) and body and isinstance(body[0], dict):  # pyright: ignore[reportUnknownMemberType]  it is JSON
        return extract_message(cast("list[object]", body)[0])  # Gemini's
    if isinstance(body, dict):
        table = cast("dict[str, object]", body)
        for key in ("message", "error", "detail", "msg"):
            if found := extract_message(table.get(key)):
                return found
        return ""
    return body if isinstance(body, str) else json.dumps(body) if isinstance(body, list) else ""


def root_cause(error: BaseException) -> BaseException:
    """Return the first cause of an error."""
    for _ in range(8):
        if error.__cause__ is None:
            break
        error = error.__cause__
    return error


def quote_message(text: str, redactor: Redactor) -> str:
    """Return an endpoint's message for use in a line: without keys, short, and safe to print."""
    line = " ".join(redactor.redact(text).split()).rstrip(".")  # more text follows
    return to_printable(line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…")
