"""Frames of a link that belong to no part and no stream: requests, answers, and word of the answers that came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ProtocolError
from hermes_exec.guest import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hermes_exec.link.link import Link

_RECEIPTS_S = 0.05


def request_frame(number: int, operation: str, arguments: Mapping[str, Any]) -> bytes:
    """The frame of a request; raises ProtocolError on one that is too large, of which nothing was sent."""
    payload = wire.pack([operation, arguments])
    if len(payload) > wire.MAX_REQUEST:
        raise ProtocolError("the request is larger than 64 MiB", remedy="send it as a file")
    return wire.frame(wire.REQUEST, 0, number, payload)


def read_answer(payload: bytes) -> dict[str, Any]:
    """The fields of an answer, unchecked; raises WireError unless the payload is a map."""
    answer: Any = wire.unpack(payload)
    if not isinstance(answer, dict):
        raise wire.WireError("RESULT payload is not a map")
    return answer  # pyright: ignore[reportUnknownVariableType]  each field is checked by its reader


class Receipts:
    """Which answers have arrived: told to the guest with the next request, or soon."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers: list[int] = []
        self._due = False

    def add(self, number: int) -> None:
        """The answer to this request is here."""
        self._link.damages = 0
        self._numbers.append(number)
        if not self._due:
            self._due = True
            self._link.loop.call_later(_RECEIPTS_S, self._send)

    def take(self) -> list[bytes]:
        """A frame for those not told of yet, if there are any. One that is lost is made good on attaching."""
        if not self._numbers:
            return []
        payload = b"".join(map(wire.OFFSET.pack, self._numbers))
        self._numbers.clear()
        return [wire.frame(wire.FORGET, 0, 0, payload)]

    def _send(self) -> None:
        self._due = False
        if self._numbers:
            self._link.send(*self.take())
