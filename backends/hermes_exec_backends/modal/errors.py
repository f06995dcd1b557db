"""Translation of the SDK's errors. The meaning of each class was measured, not derived from its name.

Failures of a worker are raised as the built-in ``ConnectionError``, those of the control plane as the SDK's own, which
is not a subclass of it; an ended sandbox is "not found" on the handle that saw it running, and a conflict on a new one.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from hermes_exec.config.registry import explain_missing_sdk
from hermes_exec.errors import ConfigError, HermesError, PlaceGone, PlaceUnavailable
from hermes_exec.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Generator

_LONGEST = 500
NEW_TOKEN = "modal token new, or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"  # noqa: S105  the command that makes one


DOCTOR = "hermes-exec doctor modal"


class Refused(PlaceUnavailable):
    """The error for a request that Modal refused. Nothing ran."""


class Gone(Refused):
    """The error for a sandbox that has ended. Nothing ran."""


class NotFound(Gone):
    """The error for a name or ID that Modal does not know. Nothing ran."""


class Taken(Refused):
    """The error for a name that is taken. Nothing ran."""


class AmbiguousOutcome(PlaceUnavailable):
    """The error for no response, or an inconclusive one: the request may have been carried out."""

    state = "unknown: it may have been done"


class Exhausted(Refused):
    """The error for a quota, the spending limit, or too many requests. Nothing ran."""


class Trouble(AmbiguousOutcome):
    """The error for a possibly temporary failure of the service or the connection."""


@contextlib.contextmanager
def sdk_errors(what: str) -> Generator[None]:
    """Translate the SDK's errors; ``what`` names the attempted operation."""
    try:
        yield
    except ImportError as error:
        raise explain_missing_sdk("modal", error) from error
    except Exception as error:
        raise translate_error(what, error) from error


def translate_error(what: str, error: Exception) -> Exception:
    """Return the translation of an SDK error; return any other error unchanged."""
    if isinstance(error, HermesError):
        return error
    exception = _exceptions()
    said = f"{what}: {_describe(error)}"
    if isinstance(error, exception.AuthError):
        return Refused(f"{what}: the token is missing or not accepted", remedy=NEW_TOKEN)
    if isinstance(error, exception.PermissionDeniedError):
        return Refused(said, remedy="a token of a member who may do that")
    if isinstance(error, exception.ResourceExhaustedError):
        return Exhausted(
            f"{said} (a quota, the spending limit, no capacity, or too many requests)",
            remedy="hermes-exec backends --cost shows what is alive; try again later, or raise the limit",
        )
    if isinstance(error, exception.AlreadyExistsError):
        return Taken(said)
    if isinstance(error, exception.NotFoundError):
        return NotFound(said)
    if isinstance(error, exception.ImageBuildError):
        return Refused(f"{what}: the image could not be built: {str(error)[-_LONGEST:]}")
    if isinstance(error, exception.SandboxTimeoutError | exception.SandboxTerminatedError):
        return PlaceGone(f"{what}: the sandbox has ended")
    if isinstance(error, exception.ConflictError):
        return PlaceGone(said)
    if isinstance(error, exception.UnimplementedError):
        return Refused(said, remedy=install_command("modal", upgrade=True))
    if isinstance(error, exception.InvalidError):
        return ConfigError(said)
    if isinstance(error, TimeoutError | exception.TimeoutError):
        return AmbiguousOutcome(f"{what}: no answer in time", remedy=DOCTOR)
    if isinstance(error, (exception.Error, OSError, *_of_the_transport())):
        return Trouble(f"{said} (Modal cannot be reached, or has trouble)", remedy=DOCTOR)
    return error


def _describe(error: Exception) -> str:
    return str(error).strip()[:_LONGEST] or type(error).__name__


def _of_the_transport() -> tuple[type[Exception], ...]:
    """Return the transport library's errors that the SDK does not translate, such as repeated connection failures."""
    from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

    return GRPCError, ProtocolError, StreamTerminatedError


def _exceptions() -> Any:
    import modal.exception

    return modal.exception
