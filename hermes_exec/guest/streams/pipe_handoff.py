"""Bulk output whose reader is on this very machine: the reader takes over the pipe, so nothing is copied twice.

Once much has come, and all of it is sent, the reader is told the descriptor (LEND), reads the pipe itself
through /proc, and says how far it has read when it gives the pipe back (RETURN): at its end, or when it is
wanted back (RECALL). It lets go of the pipe before a channel is closed, so that never both sides read; how
far it had come by then is what it says on attaching again.
"""

import os

from ..core import wire
from .output_stream import OutputStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..core.server import Client

_WORTH = 4 << 20
"""Bytes that have come before a loan pays, so that a command with less of them knows nothing of it."""
_OWN, _LEAVING, _LENT = range(3)


class HandoffOutputStream(OutputStream):
    """An outlet that lends its pipe until that is returned, once, or until the connection breaks."""

    def __init__(self, client: "Client", request: int, channel: int) -> None:
        super().__init__(client.server.loop, client.output_ready, request, channel)
        self._client = client
        self._state = _OWN
        self._may = False  # not before the reader speaks: then it has taken notice of a new connection
        self._over = False
        self._lost = False  # the connection broke while it was lent, so nobody here knows how far it was read
        self._at = 0  # offset from which on it was lent
        self._on_returned: "Callable[[], None] | None" = None

    def spool_to(self, folder: "Callable[[], str]") -> None:
        """Nobody is connected, so nobody else reads."""
        self._lost = self._lost or self._state == _LENT
        self._state = _OWN
        super().spool_to(folder)
        self._own_again()

    def resume(self, received: int) -> None:
        """Go on; what was read here after a loan begins where the reader had come to."""
        ahead = received - self._at if self._lost or self._state == _LENT else 0
        if ahead > 0:
            self._drop(self._at)
            self._start += ahead
            self._end += ahead
        self._lost = False
        self._may = False
        self._state = _OWN
        super().resume(received)
        self._own_again()

    def on_consumed(self, offset: int) -> None:
        """The reader has consumed everything below ``offset``."""
        self._may = not self._over
        super().on_consumed(offset)

    def drain(self, done: "Callable[[], None]") -> None:
        """Get the pipe back first."""
        if self._state == _LENT:
            self._on_returned = done
            self._tell(wire.RECLAIM, b"")
        else:
            self._state = _OWN
            super().drain(done)

    def release(self) -> None:
        """Stop reading the descriptor, whoever does."""
        if self._state == _LENT:
            self._tell(wire.RECLAIM, b"")
        else:
            self._state = _OWN
        super().release()

    def next_chunk(self) -> bytes:
        """What to send next; a loan follows the last of it."""
        data = super().next_chunk()
        if self._state == _LEAVING and not self.pending:
            self._state = _LENT
            self._at = self._end
            self._tell(
                wire.HANDOFF, wire.HANDOFF_FIELDS.pack(os.getpid(), self._fd, os.fstat(self._fd).st_ino, self._at)
            )
        return data

    def on_pipe_returned(self, received: int, consumed: int) -> None:
        """The reader reads no more; it has come to ``received``."""
        if self._state != _LENT:
            return
        if not self._at <= received or not self._consumed <= consumed <= received:
            raise ValueError("a pipe returned at an impossible offset")
        self._drop(self._at)
        self._start = self._end = self._position = received
        self._consumed = consumed
        self._state = _OWN
        self._over = True
        self._own_again()

    def _tell(self, kind: int, payload: bytes) -> None:
        self._client.send_control(kind, self.channel, self.request, payload)

    def _own_again(self) -> None:
        done = self._on_returned
        self._on_returned = None
        if done is not None:
            self.drain(done)
        else:
            self._pump_on()

    def _room(self) -> bool:
        return self._state == _OWN and super()._room()

    def _store(self, data: bytes) -> None:
        super()._store(data)
        if self._may and self._end >= _WORTH and not self._is_needed_here():
            self._may = False
            self._state = _LEAVING

    def _is_needed_here(self) -> bool:
        return self._drain_left >= 0 or self.spooled or self._spool_folder is not None
