"""Whether the guest answers: pings while somebody waits for it, and a clock of ours for requests with a time limit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import OutcomeUnknown, PlaceUnavailable
from hermes_exec.guest.core import wire
from hermes_exec.transport.call import GRACE_S
from hermes_exec.transport.heartbeat import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.transport.call import Call
    from hermes_exec.transport.link import Link

_log = logging.getLogger("hermes_exec.transport")
_PING = wire.frame(wire.PING, 0, 0)


class Silent(OutcomeUnknown):
    """The place was out of reach when the answer was due; what was asked for is ended as soon as it is reached."""

    def __init__(self, silence_s: float) -> None:
        super().__init__(
            f"no byte came from the place for {silence_s:.0f} s, and this should have ended by now",
            remedy="look there whether it ran, before it is run again",
            state="unknown: it ran once at most, and is ended when the place is reached",
        )


class Watch:
    """Gives a silent connection up, and requests that are overdue while the place is out of reach.

    An idle link sends nothing: a loss is noticed once there is a request again.
    """

    def __init__(self, link: Link, calls: Mapping[int, Call], interval_s: float) -> None:
        self._link = link
        self._calls = calls
        self._suspended = False
        self._heartbeat = Heartbeat(interval_s, lambda: link.send(_PING), self._break, self._is_awaited)
        self.heard = self._heartbeat.heard
        self.patience_s = self._heartbeat.patience_s

    def begin(self, call: Call, operation: str, arguments: Mapping[str, Any]) -> None:
        """Watch over a request that was just sent."""
        call.awaited = operation != "session"
        if call.awaited and self._link.connected:
            self._heartbeat.watch()
        if "timeout" in arguments:
            call.expect_answer(arguments["timeout"] + arguments.get("grace", GRACE_S))

    def connected(self) -> None:
        """Note that there is a new connection."""
        self._heartbeat.heard()
        self._heartbeat.watch()

    def disconnected(self) -> None:
        """Note that there is no connection any more."""
        self._heartbeat.stop()
        self._give_up_overdue()

    def suspend(self, *, on: bool) -> None:
        """Expect nothing of the guest while its place is suspended."""
        self._suspended = on
        self._heartbeat.stop()
        if not on and self._link.connected:
            self._heartbeat.watch()

    def fall_due(self, call: Call) -> None:
        """Give a request up whose answer should be here, once the place was out of reach for too long."""
        call.overdue = True
        self._give_up_overdue()

    def _is_awaited(self) -> bool:
        return not self._suspended and any(call.awaited and not call.answer.done() for call in self._calls.values())

    def _break(self) -> None:
        _log.info("the guest was silent for %g s, so its connection counts as broken", self.patience_s)
        self._link.cut()

    def _give_up_overdue(self) -> None:
        overdue = [call for call in self._calls.values() if call.overdue and not call.answer.done()]
        if not overdue or self._suspended or self._link.connected:
            return  # a guest within reach answers by itself, and the end of a connection leads here again
        left_s = self.patience_s - self._heartbeat.silence_s
        if left_s > 0:
            self._link.loop.call_later(left_s, self._give_up_overdue)
            return
        for call in overdue:
            if call.number <= self._link.sent:
                call.give_up(Silent(self._heartbeat.silence_s))
            elif call.cancelled:
                call.give_up(None)
            else:
                call.give_up(PlaceUnavailable("the place was out of reach for the whole time limit, so nothing ran"))
