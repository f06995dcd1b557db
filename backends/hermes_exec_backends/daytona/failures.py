"""From what the SDK raises to our errors: by its class and the HTTP status, never by a command's output."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, PlaceGone, PlaceUnavailable
from hermes_exec.registry import sdk_missing

if TYPE_CHECKING:
    from collections.abc import Generator

_LONGEST = 400
KEYS = "make a key at app.daytona.io/dashboard/keys, and export DAYTONA_API_KEY or set `api_key`"
_QUOTA = "hermes-exec backends --cost shows what is alive; end some of it, or ask for a higher limit"


class RateLimited(PlaceUnavailable):
    """Too many requests; ``wait_s`` is what the service asks for. Nothing was done."""

    def __init__(self, what: str, wait_s: float) -> None:
        self.wait_s = wait_s
        super().__init__(f"{what}: too many requests for now (429)", remedy=f"try again in {wait_s:g} s")


class InDoubt(PlaceUnavailable):
    """The service gave no answer, or a failure of its own: what was asked for may have been done all the same."""


@contextlib.contextmanager
def sdk_errors(what: str) -> Generator[None]:
    """Turn what the SDK raises into our errors; ``what`` says what was attempted."""
    try:
        yield
    except ImportError as error:
        raise sdk_missing("daytona", error) from error
    except Exception as error:
        raise translated(what, error) from error


def translated(what: str, error: Exception) -> Exception:
    """The error of ours for one of the SDK's; any other is returned as it is."""
    import daytona  # its errors are cheap: the package loads what is asked for

    what = f"daytona: {what}"
    if isinstance(error, HermesError) or not isinstance(error, daytona.DaytonaError):
        return error
    said = said_by(error)
    if isinstance(error, daytona.DaytonaAuthenticationError):
        return PlaceUnavailable(f"{what}: the key was refused (401): {said}", remedy=KEYS)
    if isinstance(error, daytona.DaytonaForbiddenError):
        return PlaceUnavailable(f"{what}: not allowed (403): {said}", remedy=_QUOTA)
    if isinstance(error, daytona.DaytonaNotFoundError):
        return PlaceGone(f"{what}: there is none: {said}")
    if isinstance(error, daytona.DaytonaRateLimitError):
        return RateLimited(what, retry_after_s(error))
    if isinstance(error, daytona.DaytonaSpotEvictedError):
        return PlaceGone(f"{what}: it was evicted for somebody who pays more: {said}", remedy="open it without spot")
    if isinstance(error, daytona.DaytonaQueueTimeoutError):
        return PlaceUnavailable(f"{what}: no machine was free in time: {said}", remedy="another region or size")
    if (
        isinstance(error, daytona.DaytonaConnectionError | daytona.DaytonaTimeoutError)
        or (error.status_code or 500) >= 500
    ):
        return InDoubt(f"{what}: {said}", remedy="hermes-exec doctor daytona")
    return PlaceUnavailable(f"{what}: {said}")


def said_by(error: Exception) -> str:
    """Why, in one line."""
    status = getattr(error, "status_code", None)
    said = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
    return f"{said} ({status})" if status and str(status) not in said else said


def retry_after_s(error: Exception) -> float:
    """What a refused request's headers ask us to wait: ``Retry-After``, also with the throttler's name behind it."""
    headers: dict[str, str] = getattr(error, "headers", {})
    found = [value for name, value in headers.items() if name.lower().startswith("retry-after")]
    try:
        return max(float(value) for value in found)
    except ValueError:  # none, or a date
        return 1.0
