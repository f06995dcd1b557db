"""What an endpoint's failure means: whether to ask again, and when."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.config.paths import shown
from hermes_exec_agent.errors import ContextTooLong, ModelError, ModelRefused
from hermes_exec_agent.models.assembly import Nothing, TooLong
from hermes_exec_agent.models.reply_extras import LIMIT, ExtrasTooLong

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.observe.redact import Redactor

_LONGEST = 300
"""Characters of an endpoint's own words that are repeated."""
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
_NEVER = frozenset({"insufficient_quota", "billing_hard_limit_reached", "account_deactivated"})
_TOO_LONG = re.compile(
    r"context[ _](?:length|size|window)|maximum context|prompt is too long|too many tokens|exceed_context",
    re.IGNORECASE,
)
_LIMIT = re.compile(r"(?:context length (?:is|of)|context size|context window)\D{0,24}(\d{3,8})", re.IGNORECASE)
_NO_WORDS = re.compile(r"^Error code: \d+(?: - )?")
"""What the SDK says of an answer that says nothing."""
_ROUTE = "/chat/completions"
"""What is asked where the base URL has no path."""
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
class Trouble:
    """One attempt that failed."""

    error: ModelError
    again: bool
    """Whether the same request may do better."""
    wait_s: float | None = None
    """What the endpoint asks to wait."""


def trouble(who: str, cause: BaseException, redactor: Redactor) -> Trouble | None:
    """What a failure of an attempt means; None if it is none of the endpoint's."""
    import httpx2
    import openai

    if isinstance(cause, openai.APIStatusError):
        return _answered(who, cause, redactor)
    if isinstance(cause, openai.APITimeoutError | TimeoutError | httpx2.TimeoutException):
        return Trouble(ModelError(f"{who}: it was silent for too long", remedy="a longer silence_s"), again=True)
    if isinstance(cause, openai.APIConnectionError | httpx2.TransportError):
        root = _words(str(_root(cause)) or type(_root(cause)).__name__, redactor)
        return Trouble(
            ModelError(f"{who}: the connection failed: {root}", remedy=f"look whether {_host(cause)} is up"), again=True
        )
    if isinstance(cause, openai.APIError):
        message = _words(cause.message, redactor)
        if _TOO_LONG.search(message):
            return Trouble(_too_long(who, message), again=False)
        return Trouble(ModelError(f"{who}: it failed in the middle of a reply: {message}"), again=True)
    if isinstance(cause, Nothing) and "html" in str(cause):
        return Trouble(ModelRefused(f"{who}: it sent a web page instead of a reply", remedy=_ADDRESS), again=False)
    if isinstance(cause, EOFError):
        remedy = _ADDRESS if isinstance(cause, Nothing) else ""
        return Trouble(ModelError(f"{who}: the stream ended before the reply did", remedy=remedy), again=True)
    if isinstance(cause, TooLong):
        return Trouble(ModelError(f"{who}: the reply has no end", remedy="a smaller max_tokens"), again=False)
    if isinstance(cause, ExtrasTooLong):
        what = f"{who}: the reasoning of its reply exceeds {LIMIT >> 20} MiB; nothing of that reply ran"
        return Trouble(ModelError(what, remedy="a lower effort"), again=False)
    if isinstance(
        cause, ValueError | TypeError | AttributeError | RecursionError | httpx2.HTTPError | httpx2.StreamError
    ):
        # What the SDK raises for a piece that is no JSON, or JSON of another shape.
        return Trouble(ModelError(f"{who}: it sent what is no reply ({_fault(cause)})", remedy=_ADDRESS), again=True)
    return None


def _fault(cause: Exception) -> str:
    if isinstance(cause, UnicodeDecodeError):
        return "not UTF-8"
    return "not JSON" if isinstance(cause, json.JSONDecodeError) else "JSON of another shape"


def _answered(who: str, cause: Any, redactor: Redactor) -> Trouble:
    status: int = cause.status_code
    message = _words(_told(cause.body) or _NO_WORDS.sub("", str(cause.message)), redactor)
    code = str(getattr(cause, "code", "") or "")
    if status in (400, 413, 422, 500) and (code == "context_length_exceeded" or _TOO_LONG.search(message)):
        return Trouble(_too_long(who, message), again=False)
    what = f"{who}: it answered {status}{': ' if message else ''}{message}"
    if status in _AGAIN and code not in _NEVER:
        return Trouble(ModelError(what), again=True, wait_s=asked_to_wait(cause.response.headers))
    remedy = _REMEDIES.get(402 if code in _NEVER else status, "")
    if status == 404 and cause.request.url.path == _ROUTE:
        remedy = f"{_host(cause)}/v1 as its base URL; or a model that it has, in DEFAULT_MODEL"
    return Trouble(ModelRefused(what, remedy=remedy), again=False)


def read_refusal(cause: BaseException) -> str:
    """All words with which an endpoint refused the form of a request; empty for every other failure."""
    import openai

    if not isinstance(cause, openai.APIStatusError) or cause.status_code not in (400, 422):
        return ""
    return f"{cause.message} {cause.body}"


def _host(cause: Any) -> str:
    """The address that was asked, without its path."""
    try:
        url = cause.request.url
    except RuntimeError:  # it was not asked yet
        return "the endpoint"
    return shown(f"{url.scheme}://{url.netloc.decode('ascii', 'replace')}")


def _too_long(who: str, message: str) -> ContextTooLong:
    found = _LIMIT.search(message)
    return ContextTooLong(
        f"{who}: the conversation is too long for its window: {message}",
        remedy="a new conversation, or a model with a larger window",
        window=int(found[1]) if found else None,
    )


def asked_to_wait(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """The seconds that an answer asks to wait (RFC 9110, 10.2.3), or None."""
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


def _told(body: object) -> str:
    """The words in an answer's body, in whichever of the usual forms."""
    if isinstance(body, list) and body and isinstance(body[0], dict):  # pyright: ignore[reportUnknownMemberType]  it is JSON
        return _told(cast("list[object]", body)[0])  # Gemini's
    if isinstance(body, dict):
        table = cast("dict[str, object]", body)
        for key in ("message", "error", "detail", "msg"):
            if found := _told(table.get(key)):
                return found
        return ""
    return body if isinstance(body, str) else json.dumps(body) if isinstance(body, list) else ""


def _root(error: BaseException) -> BaseException:
    for _ in range(8):
        if error.__cause__ is None:
            break
        error = error.__cause__
    return error


def _words(text: str, redactor: Redactor) -> str:
    """An endpoint's words as they can be put into a line: without our keys, short, and safe to print."""
    line = " ".join(redactor.text(text).split()).rstrip(".")  # the sentence goes on
    return shown(line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…")
