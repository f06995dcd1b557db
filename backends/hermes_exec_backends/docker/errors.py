"""Translation of the SDK's errors: by the engine's status, never by a command's output."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hermes_exec.config.registry import explain_missing_sdk
from hermes_exec.errors import HermesError, PlaceUnavailable
from hermes_exec_backends.docker.address import START, no_permission

if TYPE_CHECKING:
    from collections.abc import Generator

    from hermes_exec_backends.docker.address import Address

_LONGEST = 500


class Refused(PlaceUnavailable):
    """The error for a refused request: ``status`` is the HTTP status, ``said`` is the engine's reason. Nothing ran."""

    def __init__(self, what: str, status: int, said: str, *, remedy: str = "") -> None:
        self.status = status
        self.said = said[:_LONGEST]
        super().__init__(f"{what}: {self.said or f'status {status}'}", remedy=remedy)


@contextlib.contextmanager
def sdk_errors(what: str, where: Address) -> Generator[None]:
    """Translate the SDK's errors; ``what`` names the attempted operation."""
    try:
        yield
    except ImportError as error:
        raise explain_missing_sdk("docker", error) from error
    except Exception as error:
        raise translate_error(what, where, error) from error


def translate_error(what: str, where: Address, error: Exception) -> Exception:
    """Return the translation of an SDK error; return any other error unchanged."""
    from docker.errors import APIError, BuildError, DockerException, TLSParameterError
    from requests.exceptions import RequestException

    if isinstance(error, Refused):
        return Refused(what, error.status, error.said)
    if isinstance(error, HermesError):
        return error
    if isinstance(error, APIError):
        return Refused(what, error.status_code or 0, str(error.explanation or error).strip())
    if isinstance(error, TLSParameterError):
        return PlaceUnavailable(f"{what}: {str(error)[:_LONGEST]}", remedy="check DOCKER_CERT_PATH")
    if isinstance(error, BuildError):
        return PlaceUnavailable(f"{what}: {error.msg}")
    if isinstance(error, DockerException | RequestException | OSError):
        return unreachable(what, where, error)
    return error


def unreachable(what: str, where: Address, error: Exception) -> PlaceUnavailable:
    """Return the error for an engine that does not answer, with the operating system's reason."""
    reason: BaseException | None = error
    seen: set[int] = set()
    while reason is not None and id(reason) not in seen:
        seen.add(id(reason))
        if isinstance(reason, PermissionError):
            return no_permission(where.path or str(where))
        if isinstance(reason, FileNotFoundError | ConnectionRefusedError):
            return PlaceUnavailable(f"{what}: no engine answers at {where}", remedy=START)
        inner = [each for each in reason.args if isinstance(each, BaseException)]
        reason = reason.__cause__ or reason.__context__ or (inner[0] if inner else None)
    if isinstance(error, TimeoutError):
        return PlaceUnavailable(f"{what}: no answer from {where} in time")
    return PlaceUnavailable(f"{what}: {str(error)[:_LONGEST] or type(error).__name__} ({where})")
