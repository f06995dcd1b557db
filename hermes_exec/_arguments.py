"""Calls with wrong arguments raise UsageError, which names the parameter, instead of a TypeError.

Values are checked where they are used (`hermes_exec.terminal.encoding`). Here are the mistakes that Python itself
finds: an unknown keyword, a missing argument, one too many.
"""

from __future__ import annotations

import difflib
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

_MOST_NAMES = 12


def check_call(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function``, whose calls with wrong arguments raise UsageError."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None:  # raised by the function's own code
                raise
            raise explain_call(function, args, kwargs, error) from None

    return call


def check_calls(cls: type[T]) -> type[T]:
    """Apply ``check_call`` to the public methods and the constructor of a class."""
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, check_call(member))
    return cls


def explain_call(
    function: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any], error: TypeError
) -> UsageError:
    """Return the error for arguments that ``function`` does not take."""
    import inspect

    signature = inspect.signature(function)
    names = [name for name in signature.parameters if name not in {"self", "args", "kwargs", "options"}]
    unknown = [name for name in kwargs if name not in signature.parameters]
    takes_any = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    if unknown and not takes_any:
        return unknown_parameter(unknown[0], names)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        text = str(problem)
    else:
        text = str(error)
    qualified: str = getattr(function, "__qualname__", "")
    name = qualified.removesuffix(".__init__").rpartition(".")[2]
    return UsageError(f"{name}: {text}", remedy=f"{name}({', '.join(names)})")


def unknown_parameter(name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a keyword that a call does not take; it suggests the parameter that is most like it."""
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(known[:_MOST_NAMES]) + (", …" if len(known) > _MOST_NAMES else "")
    return UsageError(f"there is no parameter {name!r}", remedy=close[0] if close else listed)
