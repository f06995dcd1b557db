"""What the generated classes of ``hermes_exec.sync`` are made of."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from hermes_exec._sync.portal import Portal

T = TypeVar("T")


class BlockingProxy:
    """A blocking object: an asynchronous one, and the portal to the loop that it belongs to."""

    __slots__ = ("__weakref__", "_core", "_portal", "_unread")
    _core: Any

    def __init__(self, portal: Portal, core: object) -> None:
        self._portal = portal
        self._core = core
        self._unread: list[Any] = []  # what came together with Ctrl-C

    def _end(self, closing: Coroutine[Any, Any, None]) -> None:
        """Wait for what closes the object; see ``Portal.end``."""
        self._portal.end(closing)

    def _step(self, source: AsyncIterator[T]) -> T:
        """The next value of an asynchronous iterator."""
        unread: list[T] = self._unread
        if unread:
            return unread.pop()
        try:
            return self._portal.call(source.__anext__(), unread)
        except StopAsyncIteration:
            raise StopIteration from None


class BlockingIterator(BlockingProxy, Generic[T]):
    """Values as they come. ``close`` it, or leave its ``with``, to end the source before it is exhausted."""

    __slots__ = ()
    _core: AsyncIterator[T]

    def __iter__(self) -> Self:
        """The values."""
        return self

    def __next__(self) -> T:
        """The next value; waits for it."""
        return self._step(self._core)

    def close(self) -> None:
        """End the source. Safe to call twice."""
        source: AsyncIterator[T] | AsyncGenerator[T, Any] = self._core
        if isinstance(source, AsyncGenerator):
            self._end(source.aclose())

    def __enter__(self) -> Self:
        """The iteration itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


class BlockingContextManager(BlockingProxy, Generic[T]):
    """Something that is there for the length of a ``with``."""

    __slots__ = ("_turn",)
    _core: AbstractAsyncContextManager[Any]

    def __init__(self, portal: Portal, core: object, turn: Callable[[Portal, Any], T]) -> None:
        super().__init__(portal, core)
        self._turn = turn  # makes the blocking form of what the asynchronous block gives

    def __enter__(self) -> T:
        """Wait until it is there."""
        return self._turn(self._portal, self._portal.call(self._core.__aenter__()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""

        async def leave() -> None:
            await self._core.__aexit__(kind, error, trace)

        self._end(leave())
