"""The base classes of the generated classes of ``hermes_exec.sync``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from hermes_exec._arguments import check_calls
from hermes_exec.errors import UsageError
from hermes_exec.terminal.encoding import describe_kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from hermes_exec._sync.portal import Portal

T = TypeVar("T")


class BlockingProxy:
    """A blocking object: an asynchronous object, and the portal to its loop."""

    __slots__ = ("__weakref__", "_core", "_portal", "_unread")
    _core: Any

    def __init__(self, portal: Portal, core: object) -> None:
        self._portal = portal
        self._core = core
        self._unread: list[Any] = []  # values that came together with Ctrl-C

    def __init_subclass__(cls) -> None:
        """Let calls with wrong arguments raise UsageError."""
        super().__init_subclass__()
        check_calls(cls)

    def __repr__(self) -> str:
        """Return that of the asynchronous object."""
        return repr(self._core)

    def _end(self, closing: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine that closes the object; see ``Portal.end``."""
        self._portal.end(closing)

    def _step(self, source: AsyncIterator[T]) -> T:
        """Return the next value of an asynchronous iterator."""
        unread: list[T] = self._unread
        if unread:
            return unread.pop()
        try:
            return self._portal.call(source.__anext__(), unread)
        except StopAsyncIteration:
            raise StopIteration from None


def unwrap(proxies: Any) -> Any:
    """Return the asynchronous objects of blocking ones; the call refuses a value that is not a list of these."""
    if not isinstance(proxies, Iterable):
        return proxies
    listed: list[Any] = [*proxies]  # pyright: ignore[reportUnknownArgumentType]  each is looked at below
    for each in listed:
        if not isinstance(each, BlockingProxy):
            what = f"terminals: {describe_kind(each)} is not a terminal of hermes_exec.sync"
            raise UsageError(what, remedy="hermes_exec.sync.open(…)")
    return [proxy._core for proxy in listed]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  of this module


class BlockingIterator(BlockingProxy, Generic[T]):
    """An iterator over an asynchronous source. ``close`` it, or leave its ``with``, to end the source early."""

    __slots__ = ()
    _core: AsyncIterator[T]

    def __iter__(self) -> Self:
        """Return the iterator itself."""
        return self

    def __next__(self) -> T:
        """Wait for the next value and return it."""
        return self._step(self._core)

    def close(self) -> None:
        """End the source. Safe to call twice."""
        source: AsyncIterator[T] | AsyncGenerator[T, Any] = self._core
        if isinstance(source, AsyncGenerator):
            self._end(source.aclose())

    def __enter__(self) -> Self:
        """Return the iterator itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


class BlockingContextManager(BlockingProxy, Generic[T]):
    """The blocking form of an asynchronous context manager."""

    __slots__ = ("_turn",)
    _core: AbstractAsyncContextManager[Any]

    def __init__(self, portal: Portal, core: object, turn: Callable[[Portal, Any], T]) -> None:
        super().__init__(portal, core)
        self._turn = turn  # converts the value of the ``async with`` to its blocking form

    def __enter__(self) -> T:
        """Enter the context and return its value in the blocking form."""
        return self._turn(self._portal, self._portal.call(self._core.__aenter__()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the context."""

        async def leave() -> None:
            await self._core.__aexit__(kind, error, trace)

        self._end(leave())
