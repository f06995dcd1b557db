"""Calls that open something: ``await`` one for the thing, or ``async with`` it to have the thing closed at the end."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T", bound=AbstractAsyncContextManager[Any])


class Opening(Coroutine[Any, Any, T]):
    """A coroutine in every respect (``create_task``, ``gather``), and the ``async with`` of what it gives."""

    __slots__ = ("_coroutine", "_opened")
    _opened: T

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, T]:
        """Open it; closing is up to the caller."""
        return self._coroutine.__await__()

    def send(self, value: Any, /) -> Any:
        """See ``Coroutine``; tasks call it."""
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """See ``Coroutine``; tasks call it."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """See ``Coroutine``: it is not to be awaited any more."""
        self._coroutine.close()

    async def __aenter__(self) -> T:
        """Open it."""
        self._opened = await self._coroutine
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close what was opened."""
        return await self._opened.__aexit__(kind, error, trace)


def opens(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Opening[T]]:
    """Let ``async with`` take what the coroutines of ``function`` give, without an ``await``."""

    @wraps(function)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Opening[T]:
        return Opening(function(*args, **kwargs))

    return opening
