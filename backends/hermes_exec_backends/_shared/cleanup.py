"""Removal of targets whose lease has expired and that could not end on their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from hermes_exec.backend import Leftover
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

T = TypeVar("T")


async def remove_expired(
    found: Iterable[T], target_of: Callable[[T], str], remove: Callable[[T], Awaitable[bool]]
) -> list[Leftover]:
    """Call ``remove`` for each; return those that it removed, and those that it could not remove with the reason.

    ``remove`` returns false for one that is still in use.
    """
    removed: list[Leftover] = []
    for each in found:
        try:
            if await remove(each):
                removed.append(Leftover(target_of(each)))
        except HermesError as error:
            removed.append(Leftover(target_of(each), error.what))
    return removed
