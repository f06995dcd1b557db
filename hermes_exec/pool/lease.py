"""A lease: the exclusive right to use a terminal, its duration and its release."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from hermes_exec._arguments import check_calls
from hermes_exec.errors import Closed, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from hermes_exec.pool.pooled_terminal import PooledTerminal
    from hermes_exec.terminal.terminal import Terminal


@check_calls
class Lease:
    """The right to use a terminal alone. Made by ``Orchestrator.lease``; leave its ``async with`` to give it back.

    It ends by ``release``, when its time is over, when the terminal is found unhealthy, or when the orchestrator
    closes. After that, calls of the terminal raise Closed.
    """

    def __init__(
        self,
        member: PooledTerminal,
        key: str,
        hold_s: float | None,
        *,
        give_back: Callable[[Lease], None],
        revoke: Callable[[Lease, str], None],
    ) -> None:
        """Hold ``member`` for ``key``; called by the dispatcher.

        Args:
            member: the terminal and its target.
            key: the caller that it is held for.
            hold_s: seconds after which the lease is revoked; None for no limit.
            give_back: returns the terminal to the dispatcher.
            revoke: ends the lease, and all that runs on the terminal, for a reason.
        """
        self.member = member
        self.key = key
        self.over: str = ""
        """Why it is over; empty while it holds."""
        self._give_back = give_back
        self._revoke = revoke
        self._timer: asyncio.TimerHandle | None = None
        if hold_s is not None:
            self.extend(hold_s)

    def __repr__(self) -> str:
        """Return the key of its caller, and whether it has ended."""
        return f"<Lease for {self.key!r}{f', ended: {self.over}' if self.over else ''}>"

    @property
    def terminal(self) -> Terminal:
        """The terminal that is leased."""
        return self.member.terminal

    @property
    def profile(self) -> str:
        """The name of its pool."""
        return self.member.entry.profile

    def extend(self, hold_s: float | None) -> None:
        """Let it last ``hold_s`` seconds from now on; None for as long as it is wanted.

        Raises:
            Closed: it is over, and why.
        """
        if self.over:
            raise Closed(f"the lease is over: {self.over}")
        if hold_s is not None and hold_s <= 0:
            raise UsageError(f"a lease of {hold_s} s", remedy="more than 0, or None")
        self._stop_clock()
        if hold_s is not None:
            why = f"its {hold_s:g} s are over"
            self._timer = asyncio.get_running_loop().call_later(hold_s, self._revoke, self, why)

    async def release(self) -> None:
        """Give the terminal back. It is closed, or cleaned for the next one, in the background. Safe to call twice."""
        self._give_back(self)

    def end(self, why: str) -> None:
        """Mark the lease as over; called by the dispatcher."""
        self.over = why
        self._stop_clock()

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def __aenter__(self) -> Self:
        """The lease itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release it."""
        await self.release()
