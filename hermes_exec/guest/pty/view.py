"""The viewers of a PTY, and its recent output."""

import os

from ..core import wire
from ..process.runner import open_pipes
from ..streams.input_stream import InputStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.server import Request

HISTORY = 256 << 10
"""Most bytes of recent output that a new viewer gets."""
_BEHIND = 2 << 20
"""Bytes that a viewer may be behind before the program waits: twice the step of an InputStream's credit."""
_QUESTIONS = (
    rb"\x1b\[[?>=]?[\d;]*(?:[cnt]|\$p)|\x1b\[>\d*q|\x1b\[\?u"
    rb"|\x1b\][\d;]+;\?(?:\x07|\x1b\\)|\x1bP[+$]q[^\x1b]*\x1b\\|\x05"
)
"""Queries that a terminal answers: an answer to an old query would be read as typed input."""


class OutputHistory:
    """The last HISTORY bytes that a PTY has output."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._cut = False
        self.total = 0
        """Bytes of output so far."""

    def add(self, data: bytes) -> None:
        """Add the latest output."""
        self._bytes += data
        self.total += len(data)
        if len(self._bytes) > 2 * HISTORY:
            self._cut = True
            del self._bytes[:-HISTORY]

    @property
    def start(self) -> int:
        """The number of the first byte that is kept."""
        return self.total - len(self._bytes)

    def since(self, offset: int) -> "bytes | None":
        """Return the output from the byte with this number on; None if it is not kept, or has not come."""
        if not self.start <= offset <= self.total:
            return None
        return bytes(self._bytes[offset - self.start :])

    def replay(self) -> bytes:
        """Return the output to show to a new viewer; empty if there was none yet."""
        recent = bytes(self._bytes[-HISTORY:])
        if not recent:
            return b""
        import re  # slow to import, and few viewers attach a second time

        if self._cut or len(recent) < len(self._bytes):
            recent = recent.partition(b"\n")[2] or recent  # without a partial line or escape sequence
        return re.sub(_QUESTIONS, b"", recent)


class KeyboardInput(InputStream):
    """The input of a viewer. ``on_end`` is called when it has ended and all of it was typed."""

    def __init__(self, request: "Request", on_end: "Callable[[], None]") -> None:
        InputStream.__init__(self, request.client.server.loop, request.send_credit)
        self.in_line = False  # the last line was not finished
        self._on_end = on_end

    def feed(self, data: "bytes | memoryview") -> None:
        """Queue typed bytes."""
        self.in_line = bytes(data[-1:]) not in (b"\r", b"\n")
        InputStream.feed(self, data)

    def close(self) -> None:
        """Stop typing."""
        ended = self._ended and not self.closed
        InputStream.close(self)
        if ended:
            self._on_end()


class PtyView:
    """A view of a PTY. A pipe holds the output until the request's output stream takes or spools it."""

    def __init__(
        self,
        request: "Request",
        master: int,
        on_room: "Callable[[], None]",
        on_left: "Callable[[PtyView], None]",
        on_end: "Callable[[], None]",
    ) -> None:
        self._request = request
        self._on_room = on_room
        self._on_left = on_left
        self._answer: "dict[str, Any]" = {"detached": True}
        self._shown = 0
        self._taken = 0
        typed = os.dup(master) if master >= 0 else -1
        try:
            ((self._pipe, end),) = open_pipes(1)
        except OSError:
            if typed >= 0:
                os.close(typed)
            raise
        os.set_blocking(self._pipe, False)
        os.set_blocking(end, False)
        self._tee = InputStream(request.client.server.loop, self._on_passed)
        self._tee.write_to(end)
        self._outlet = request.open_output(wire.STDOUT)
        self._outlet.read_from(self._pipe, self._finish)
        self.keys = request.input = KeyboardInput(request, on_end)
        if typed >= 0:
            self.keys.write_to(typed)
        request.cancel = self._detach

    @property
    def full(self) -> bool:
        """Whether the program must wait for this viewer."""
        return self._shown - self._taken >= _BEHIND

    def show(self, data: bytes) -> None:
        """Add output of the program."""
        self._shown += len(data)
        self._tee.feed(data)

    def _on_passed(self, offset: int) -> None:
        self._taken = offset
        self._on_room()

    def end(self, answer: "dict[str, Any]") -> None:
        """Set the answer, which is sent after the output."""
        self._answer = answer
        self._tee.end()

    def hang_up(self) -> None:
        """Close the viewer's input."""
        self.keys.close()

    def _detach(self) -> None:
        """Remove the viewer; the program continues."""
        self._on_left(self)
        self._tee.close()
        self._finish()

    def _finish(self) -> None:
        if self._pipe >= 0:
            self._outlet.release()
            os.close(self._pipe)
            self._pipe = -1
            self.hang_up()
            self._request.finish(self._answer)
