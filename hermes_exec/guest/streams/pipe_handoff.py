"""Bulk output to a reader on the same machine: the reader takes over the pipe, which avoids a second copy.

After many bytes, when all of them are sent, the guest sends the descriptor to the reader (HANDOFF). The reader reads
the pipe itself through /proc, and reports how far it has read when it returns the pipe (RETURN): at the end of the
output, or when the guest reclaims it (RECLAIM). The reader releases the pipe before a channel is closed, so that the
two sides never read at the same time; when it attaches again, it reports how far it had read.
"""

import os

from ..core import wire
from .output_stream import OutputStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..core.server import Client

_WORTH = 4 << 20
"""Bytes of output from which a handoff pays off; a command with less output never has one."""
_OWN, _LEAVING, _LENT = range(3)


class HandoffOutputStream(OutputStream):
    """An output stream that hands off its pipe at most once, until it is returned or the connection breaks."""

    def __init__(self, client: "Client", request: int, channel: int) -> None:
        super().__init__(client.server.loop, client.output_ready, request, channel)
        self._client = client
        self._state = _OWN
        self._may = False  # set by the first frame of the reader: then it knows the new connection
        self._over = False
        self._lost = False  # the connection broke during the handoff, so the read offset is unknown
        self._at = 0  # offset at which the handoff began
        self._on_returned: "Callable[[], None] | None" = None

    def spool_to(self, folder: "Callable[[], str]") -> None:
        """Spool as the base class does; without a connection no other process reads the pipe."""
        self._lost = self._lost or self._state == _LENT
        self._state = _OWN
        super().spool_to(folder)
        self._own_again()

    def resume(self, received: int) -> None:
        """Resume; bytes read here after a handoff begin at the offset that the reader had reached."""
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
        """Drop the bytes below ``offset``, which the reader has consumed."""
        self._may = not self._over
        super().on_consumed(offset)

    def drain(self, done: "Callable[[], None]") -> None:
        """Reclaim the pipe, then drain it."""
        if self._state == _LENT:
            self._on_returned = done
            self._tell(wire.RECLAIM, b"")
        else:
            self._state = _OWN
            super().drain(done)

    def release(self) -> None:
        """Stop reading the descriptor, on this side or the reader's."""
        if self._state == _LENT:
            self._tell(wire.RECLAIM, b"")
        else:
            self._state = _OWN
        super().release()

    def next_chunk(self) -> bytes:
        """Return the next bytes to send; after the last of them the pipe may be handed off."""
        data = super().next_chunk()
        if self._state == _LEAVING and not self.pending:
            self._state = _LENT
            self._at = self._end
            self._tell(
                wire.HANDOFF, wire.HANDOFF_FIELDS.pack(os.getpid(), self._fd, os.fstat(self._fd).st_ino, self._at)
            )
        return data

    def on_pipe_returned(self, received: int, consumed: int) -> None:
        """Take the pipe back; the reader has read up to ``received``."""
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
