"""A link to a target that may migrate: it starts a new guest there, and restores the sessions.

A request that is pending when the target migrates fails with ``OutcomeUnknown``; a request that arrives meanwhile waits
for the new guest. A session restarts from its shell's last checkpoint, and its next result reports that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import SupportsHandover
from hermes_exec.errors import Closed, HermesError, OutcomeUnknown, PlaceGone, PlaceUnavailable
from hermes_exec.guest.core import wire
from hermes_exec.transport.call import GuestLost
from hermes_exec.transport.link import Link

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ASK_S = 30.0
_TRIES = 3
_PAUSE_S = 1.0
_log = logging.getLogger("hermes_exec.place")


class MigratingLink(Link):
    """A ``Link`` to a backend that reports its migrations; see ``SupportsHandover``."""

    async def open(self) -> None:
        """Start a guest in the target, and register for the backend's migrations.

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
                await self._warn_of_jobs()
                states = _read_states(await self.call("states", {}).result())
        except (HermesError, TimeoutError) as error:
            _log.warning("the target that is to migrate does not report its sessions: %s", str(error) or "no answer")
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._drop_channel()
        for call in list(self._calls.values()):
            operation, arguments = wire.unpack(call.frame[wire.HEADER.size :])
            if operation == "session" and not call.answer.done():
                payload = wire.pack([operation, {**arguments, "state": states.get(call.number, b"")}])
                call.restart(wire.frame(wire.REQUEST, 0, call.number, payload))
            else:
                del self._calls[call.number]
                call.set_error(OutcomeUnknown("the target migrated while this ran, and its processes there have ended"))
        return self._arrive

    async def _warn_of_jobs(self) -> None:
        from hermes_exec.terminal.job import list_jobs
        from hermes_exec.terminal.job_status import JobState

        running = [job.name or job.id for job in await list_jobs(self) if job.state is not JobState.ENDED]
        if running:
            _log.warning("these jobs end when the target migrates: %s", ", ".join(running))

    async def _arrive(self) -> None:
        """Start a guest in the migrated target; pending calls then continue, or fail with the reason."""
        for attempt in range(1, _TRIES + 1):
            if isinstance(self._lost, Closed):
                return
            try:
                welcome = await self._start()
            except PlaceUnavailable as error:
                if attempt == _TRIES or isinstance(error, PlaceGone):
                    self._lose(GuestLost(f"the target migrated, and no guest answers there: {error.what}"))
                    return
                await asyncio.sleep(_PAUSE_S)
            else:
                self._resume(welcome)
                return


def _read_states(answer: dict[str, Any]) -> dict[int, bytes]:
    """Return the session states of a guest's answer, without the invalid ones, as a guest is not trusted."""
    try:
        states: dict[Any, Any] = dict(answer["states"])
    except (KeyError, TypeError, ValueError):
        return {}
    return {number: state for number, state in states.items() if isinstance(number, int) and isinstance(state, bytes)}
