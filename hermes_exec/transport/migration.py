"""A link to a place that may move: it goes on with a new guest there, with the sessions, and tells what is lost.

A request that has no answer when the place moves is ``OutcomeUnknown``; one that comes meanwhile waits, and is sent to
the new guest alone. A session is begun anew with what its shell wrote down last, and its next result says so.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import SupportsHandover
from hermes_exec.errors import Closed, HermesError, OutcomeUnknown, PlaceGone, PlaceUnavailable
from hermes_exec.guest.core import wire
from hermes_exec.transport.call import Lost
from hermes_exec.transport.link import Link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ASK_S = 30.0
_TRIES = 3
_PAUSE_S = 1.0
_log = logging.getLogger("hermes_exec.place")


class MovingLink(Link):
    """A ``Link`` to a backend that reports its migrations; see ``SupportsHandover``."""

    async def open(self) -> None:
        """Start a guest in the place, and ask the backend to be told.

        Raises:
            PlaceUnavailable: no interpreter there could run it; nothing is left behind.
        """
        await super().open()
        if isinstance(self._backend, SupportsHandover):
            self._backend.handover = self._hand_over

    async def _hand_over(self) -> Callable[[], Awaitable[None]]:
        states: dict[int, bytes] = {}
        try:
            async with asyncio.timeout(_ASK_S):
                await self._say_jobs()
                states = _states(await self.call("states", {}).result())
        except (HermesError, TimeoutError) as error:
            _log.warning("the place that is to move does not say what it has: %s", str(error) or "no answer")
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._drop_channel()
        for call in list(self._calls.values()):
            operation, arguments = wire.unpack(call.frame[wire.HEADER.size :])
            if operation == "session" and not call.answer.done():
                payload = wire.pack([operation, {**arguments, "state": states.get(call.number, b"")}])
                call.begin_anew(wire.frame(wire.REQUEST, 0, call.number, payload))
            else:
                del self._calls[call.number]
                call.failed(OutcomeUnknown("the place moved while this ran, and what ran there has ended"))
        return self._arrive

    async def _say_jobs(self) -> None:
        from hermes_exec.terminal.job import list_jobs
        from hermes_exec.terminal.job_status import JobState

        running = [job.name or job.id for job in await list_jobs(self) if job.state is not JobState.ENDED]
        if running:
            _log.warning("these jobs end with the place that is to move: %s", ", ".join(running))

    async def _arrive(self) -> None:
        """Start a guest in the new place; whoever waits goes on, or hears why not."""
        for attempt in range(1, _TRIES + 1):
            if isinstance(self._lost, Closed):
                return
            try:
                welcome = await self._start()
            except PlaceUnavailable as error:
                if attempt == _TRIES or isinstance(error, PlaceGone):
                    self._lose(Lost(f"the place moved, and no guest answers there: {error.what}"))
                    return
                await asyncio.sleep(_PAUSE_S)
            else:
                self._resume(welcome)
                return


def _states(answer: dict[str, Any]) -> dict[int, bytes]:
    """What a guest says of its sessions, which is untrusted: what makes no sense is left out."""
    try:
        told: dict[Any, Any] = dict(answer["states"])
    except (KeyError, TypeError, ValueError):
        return {}
    return {number: state for number, state in told.items() if isinstance(number, int) and isinstance(state, bytes)}
