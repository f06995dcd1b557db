"""An input stream: bytes from the link, written to a file descriptor in the target."""

import os
from _collections import deque  # collections itself is slow to import

from ..core.wire import OFFSET, WINDOW, DamageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Deque

    from ..core.loop import Loop


class InputStream:
    """Bytes from the link for a descriptor, which may be set after the first bytes have arrived.

    ``credit`` sends the number of bytes written so far.
    """

    def __init__(self, loop: "Loop", credit: "Callable[[int], None]") -> None:
        self.received = 0
        self.closed = False
        self._loop = loop
        self._fd = -1
        self._credit = credit
        self._written = 0
        self._told = 0
        self._queue: "Deque[bytes | memoryview]" = deque()
        self._ended = False

    def write_to(self, fd: int) -> None:
        """Set the descriptor to write to; the stream owns it from now on."""
        if self.closed:
            os.close(fd)
            return
        self._fd = fd
        self._write()

    def receive(self, position: int, data: bytes) -> None:
        """Accept bytes from the link; raise DamageError unless they continue at the expected offset."""
        self._expect(position)
        self.received = position + len(data)
        self.feed(data)

    def receive_end(self, payload: bytes) -> None:
        """Handle the end of input; raise DamageError unless every byte has arrived."""
        self._expect(OFFSET.unpack(payload)[0])
        self.end()

    def _expect(self, position: int) -> None:
        if position != self.received and not self.closed:  # the writer may skip bytes for a closed stream
            raise DamageError("input continues at {} after {} bytes".format(position, self.received))

    def feed(self, data: "bytes | memoryview") -> None:
        """Queue bytes for the descriptor."""
        if self.closed:
            return
        self._queue.append(data)
        if len(self._queue) == 1 and self._fd >= 0:
            self._write()

    def end(self) -> None:
        """Close the descriptor after the last queued byte was written."""
        self._ended = True
        if not self._queue and self._fd >= 0:
            self.close()

    def close(self) -> None:
        """Close the descriptor now, drop unwritten bytes, and grant the writer unlimited credit."""
        if not self.closed:
            self.closed = True
            if self._fd >= 0:
                self._loop.ignore_write(self._fd)
                os.close(self._fd)
            self._queue.clear()
            self._written = 1 << 62  # no reader is left: never make the writer wait
            self.send_credit()

    def _write(self) -> None:
        while self._queue:
            data = self._queue[0]
            try:
                done = os.write(self._fd, data)
            except BlockingIOError:
                self._loop.on_write(self._fd, self._write)
                return
            except OSError:
                self.close()
                return
            self._written += done
            if done < len(data):
                self._queue[0] = memoryview(data)[done:]
            else:
                self._queue.popleft()
        self._loop.ignore_write(self._fd)
        if self._ended:
            self.close()
        elif self._written - self._told >= WINDOW // 4:
            self.send_credit()

    def send_credit(self) -> None:
        """Send the number of bytes written; repeated after a reconnect, as the last report may be lost."""
        self._told = self._written
        self._credit(self._written)
