"""OpenTelemetry spans, which do nothing until ``use_tracer`` is called.

with span("terminal.run", {"target": target}) as here:
    …
    here.set("exit_code", 0)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol, Self

from hermes_exec.extras import missing_extra
from hermes_exec.observe.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

AttributeValue = str | int | float | bool


class OtelSpan(Protocol):
    """The part of OpenTelemetry's span that we use; it is an optional dependency, so its types are not imported."""

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        """Add an attribute."""

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Set whether the operation failed."""


class Tracer(Protocol):
    """The part of OpenTelemetry's tracer that we use."""

    def start_as_current_span(
        self,
        name: str,
        *,
        attributes: Mapping[str, AttributeValue],
        record_exception: bool,
        set_status_on_exception: bool,
    ) -> AbstractContextManager[OtelSpan]:
        """Begin a span as a child of the current one."""
        ...


class Span(Protocol):
    """A timed operation with attributes. An exception that leaves it marks it as failed."""

    def __enter__(self) -> Self:
        """Begin the span, as a child of the current one."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """End the span; an exception is not suppressed."""

    def set(self, key: str, value: AttributeValue, /) -> None:
        """Add an attribute."""


class _Nothing:
    """The span that is used while tracing is off: one object for all of them."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass

    def set(self, key: str, value: AttributeValue, /) -> None:
        pass


class _Real:
    __slots__ = ("_redactor", "_scope", "_span")

    def __init__(self, scope: AbstractContextManager[OtelSpan], redactor: Redactor) -> None:
        self._scope = scope
        self._redactor = redactor

    def __enter__(self) -> Self:
        self._span = self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if error is not None:
            self._record_failure(error)
        self._scope.__exit__(None, None, None)

    def set(self, key: str, value: AttributeValue, /) -> None:
        self._span.set_attribute(f"hermes_exec.{key}", _clean(value, self._redactor))

    def _record_failure(self, error: BaseException) -> None:
        codes = importlib.import_module("opentelemetry.trace").StatusCode
        # OpenTelemetry's own record of an exception would hold its text and traceback as they are.
        self._span.set_attribute("error.type", type(error).__qualname__)
        self._span.set_status(codes.ERROR, self._redactor.redact(str(error)))


_NOTHING = _Nothing()
_NO_SECRETS = Redactor()
_tracer: Tracer | None = None


def use_tracer(tracer: Tracer | None = None) -> None:
    """Start tracing, with ``tracer`` or with the one of the program's OpenTelemetry configuration.

    Raises:
        MissingExtra: OpenTelemetry is not installed.
    """
    global _tracer  # noqa: PLW0603  tracing is a property of the process, as OpenTelemetry's own set-up is
    if tracer is None:
        try:
            tracer = importlib.import_module("opentelemetry.trace").get_tracer("hermes_exec")
        except ImportError as error:
            raise missing_extra("otel", "opentelemetry", "tracing") from error
    _tracer = tracer


def stop_tracing() -> None:
    """Stop tracing; spans do nothing again."""
    global _tracer  # noqa: PLW0603  see use_tracer
    _tracer = None


def start_span(name: str, facts: Mapping[str, AttributeValue] | None = None, redactor: Redactor = _NO_SECRETS) -> Span:
    """Return a span called ``hermes_exec.NAME``, to be entered with ``with``."""
    if _tracer is None:
        return _NOTHING
    attributes = {f"hermes_exec.{key}": _clean(value, redactor) for key, value in (facts or {}).items()}
    scope = _tracer.start_as_current_span(
        f"hermes_exec.{name}", attributes=attributes, record_exception=False, set_status_on_exception=False
    )
    return _Real(scope, redactor)


def _clean(value: AttributeValue, redactor: Redactor) -> AttributeValue:
    return redactor.redact(value) if isinstance(value, str) else value
