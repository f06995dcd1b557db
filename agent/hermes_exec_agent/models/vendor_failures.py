"""Classify the failures of vendors' own APIs, as `models.failures` does those of chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hermes_exec_agent.errors import ModelError, ModelRefused, RequestRefused
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

if TYPE_CHECKING:
    from hermes_exec.observe.redact import Redactor


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
        return EndpointFailure(ModelError(f"{who}: it sent what is no reply: {message}"), again=True)
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
        error = ModelError(f"{who}: the connection failed: {message}", remedy="look whether the endpoint is up")
        return EndpointFailure(error, again=True)
    again = not isinstance(cause, exceptions.ModelRequestRejectedError)
    return EndpointFailure(ModelError(f"{who}: it failed in the middle of a reply: {message}"), again=again)
