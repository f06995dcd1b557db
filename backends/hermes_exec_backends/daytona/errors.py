"""Translation of the SDK's errors: by class and HTTP status, never by a command's output."""

from __future__ import annotations

import contextlib
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from hermes_exec.config.registry import explain_missing_sdk
from hermes_exec.errors import HermesError, PlaceGone, PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator

_LONGEST = 400
KEYS = "make a key at app.daytona.io/dashboard/keys, and export DAYTONA_API_KEY or set `api_key`"
_QUOTA = "hermes-exec backends --cost shows what is alive; end some of it, or ask for a higher limit"


class Refused(PlaceUnavailable):
    """The error for a request that the service refused. Nothing was done."""


class RateLimited(PlaceUnavailable):
    """The error for too many requests; ``wait_s`` is the wait that the service asks for. Nothing was done."""

    def __init__(self, what: str, wait_s: float) -> None:
        self.wait_s = wait_s
        super().__init__(f"{what}: too many requests for now (429)", remedy=f"try again in {wait_s:g} s")


class AmbiguousRequest(PlaceUnavailable):
    """The error for no response, or a failure of the service: the request may have been carried out all the same."""


class NotConnected(PlaceUnavailable):
    """The error for a connection that could not be opened, so the request was not sent."""


@contextlib.contextmanager
def sdk_errors(what: str) -> Generator[None]:
    """Translate the SDK's errors; ``what`` names the attempted operation."""
    try:
        yield
    except ImportError as error:
        raise explain_missing_sdk("daytona", error) from error
    except Exception as error:
        raise translate_error(what, error) from error


def translate_error(what: str, error: Exception) -> Exception:
    """Return the translation of an SDK error; return any other error unchanged."""
    import daytona  # its errors are cheap: the package loads names on demand

    what = f"daytona: {what}"
    if isinstance(error, HermesError) or not isinstance(error, daytona.DaytonaError):
        return error
    said = describe_error(error)
    if isinstance(error, daytona.DaytonaAuthenticationError):
        return Refused(f"{what}: the key was refused (401): {said}", remedy=KEYS)
    if isinstance(error, daytona.DaytonaForbiddenError):
        return Refused(f"{what}: not allowed (403): {said}", remedy=_QUOTA)
    if isinstance(error, daytona.DaytonaNotFoundError):
        return PlaceGone(f"{what}: there is none: {said}")
    if isinstance(error, daytona.DaytonaRateLimitError):
        return RateLimited(what, retry_after_s(error))
    if isinstance(error, daytona.DaytonaSpotEvictedError):
        return PlaceGone(f"{what}: it was evicted for a customer who pays more: {said}", remedy="open it without spot")
    if isinstance(error, daytona.DaytonaQueueTimeoutError):
        return PlaceUnavailable(f"{what}: no machine was free in time: {said}", remedy="another region or size")
    if _is_before_sending(error):
        return NotConnected(f"{what}: {said}", remedy="hermes-exec doctor daytona")
    if (
        isinstance(error, daytona.DaytonaConnectionError | daytona.DaytonaTimeoutError)
        or (error.status_code or 500) >= 500
    ):
        return AmbiguousRequest(f"{what}: {said}", remedy="hermes-exec doctor daytona")
    return Refused(f"{what}: {said}")


def _is_before_sending(error: BaseException) -> bool:
    """Return whether an SDK error means that no connection was opened (name, port, proxy, certificate)."""
    from aiohttp import ClientConnectorError, ClientHttpProxyError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ClientConnectorError | ClientHttpProxyError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def is_of(error: BaseException, operation: str) -> bool:
    """Return whether an error comes from that operation of the service, and not from a later request of the SDK.

    Only the method that raised distinguishes them; if an upgrade renames it, the result is false.
    """
    cause: BaseException | None = error
    while cause is not None:
        trace = cause.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_name == operation:
                return True
            trace = trace.tb_next
        cause = cause.__cause__ or cause.__context__
    return False


def describe_error(error: Exception) -> str:
    """Return the reason in one line."""
    status = getattr(error, "status_code", None)
    said = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
    return f"{said} ({status})" if status and str(status) not in said else said


def retry_after_s(error: Exception) -> float:
    """Return the wait that a refused request's headers ask for: ``Retry-After``, also suffixed with the throttler."""
    headers: dict[str, str] = getattr(error, "headers", {})
    found = [value for name, value in headers.items() if name.lower().startswith("retry-after")]
    return max((_seconds(value) for value in found), default=1.0)


def _seconds(value: str) -> float:
    """Parse a number of seconds, or the time until a date."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 1.0
