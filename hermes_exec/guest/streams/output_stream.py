"""An output stream: bytes from a file descriptor in the target to their reader on the client's side.

An ``OutputStream`` numbers its bytes from 0 and keeps those that the reader has not consumed, so that a new
connection can resume where the old one broke. The reader reports how far it has consumed; at most WINDOW bytes
beyond that are read from the producer, which then blocks on its pipe. While no client is connected, further output
is spooled to a file, up to CAP bytes, so that a command can continue.
"""

import errno
import fcntl
import os
from _collections import deque  # collections itself is slow to import

from ..core.fdutil import enlarge_pipe
from ..core.wire import CHUNK, CREDIT, DATA, HEADER, OFFSET, RESENT, RETURN_FIELDS, WINDOW, Sealer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Deque

    from ..core.loop import Loop


_FIONREAD = 0x541B

CAP = 256 << 20
"""Bytes of one stream that are kept; beyond them the producer waits."""


def waiting_bytes(fd: int) -> int:
    """Return the number of bytes that can be read from a pipe without blocking."""
    return int.from_bytes(fcntl.ioctl(fd, _FIONREAD, b"\0\0\0\0"), "little")


class OutputStream:
    """Bytes on their way to the reader. ``wake`` is called when there is something to send."""

    def __init__(self, loop: "Loop", wake: "Callable[[OutputStream], None]", request: int, channel: int) -> None:
        self.request = request
        self.channel = channel
        self.queued = False
        self.ended = False  # whether the descriptor has reached its end
        self._loop = loop
        self._wake = wake
        self._chunks: "Deque[bytes]" = deque()
        self._start = 0  # offset of the first byte in _chunks
        self._end = 0
        self._consumed = 0
        self._unsent = 0  # index in _chunks of the first one not sent on this connection
        self._skip = 0  # bytes of that chunk that the reader already has
        self._position = 0  # offset of the next byte to send on this connection
        self._most = CHUNK  # bytes of the next DATA frame
        self._fd = -1
        self._spool: "Spool | None" = None
        self._spool_folder: "Callable[[], str] | None" = None
        self._watched = False
        self._bulk = False
        self._on_end: "Callable[[], None] | None" = None
        self._drain_left = -1
        self._on_drained: "Callable[[], None] | None" = None
        self.on_disk_full: "Callable[[], None] | None" = None
        self.on_room: "Callable[[], None] | None" = None
        self.on_emptied: "Callable[[], None] | None" = None

    def read_from(self, fd: int, on_end: "Callable[[], None] | None" = None) -> None:
        """Send the bytes of ``fd``, which the caller keeps open; ``on_end`` is called at its end."""
        self._fd = fd
        self._on_end = on_end
        self._watch(True)

    def release(self) -> None:
        """Stop reading the descriptor; bytes read so far are still delivered."""
        self._watch(False)
        self._fd = -1

    def on_pipe_returned(self, received: int, consumed: int) -> None:
        """Handle the return of a pipe that was handed off; a plain stream never hands one off."""

    def spool_to(self, folder: "Callable[[], str]") -> None:
        """Keep reading without a client: spool to a file in ``folder()`` once the window is full."""
        self.queued = False
        self._spool_folder = folder
        self._pump_on()

    def drain(self, done: "Callable[[], None]") -> None:
        """Call ``done`` once the bytes that are now in the pipe have been read."""
        self._drain_left = waiting_bytes(self._fd) if self._fd >= 0 and not self.ended else 0
        self._on_drained = done
        self._drain_on()
        self._settle()

    def _drain_on(self) -> None:
        while self._drain_left > 0 and self._room():
            left = self._drain_left
            self._pump()
            if self._drain_left == left:  # no further bytes arrived
                self._drain_left = 0

    def put(self, data: bytes) -> None:
        """Add bytes that come from another source than the descriptor."""
        self._chunks.append(data)
        self._end += len(data)
        self._wake(self)

    @property
    def full(self) -> bool:
        """Whether the reader has to consume bytes before more are added."""
        return self._end - self._consumed >= WINDOW

    def on_consumed(self, offset: int) -> None:
        """Drop the bytes below ``offset``, which the reader has consumed."""
        if not self._consumed < offset <= self._end:
            return
        self._consumed = offset
        self._drop(offset)
        if self.on_room is not None and not self.full:
            call = self.on_room
            self.on_room = None
            call()
        self._pump_on()

    def resume(self, received: int) -> None:
        """Resume on a new connection, at the offset up to which the reader has received."""
        self._spool_folder = None
        self.queued = False
        self.on_emptied = None
        self._drop(min(received, self._end))
        self._unsent = 0
        self._skip = max(0, received - self._start)
        self._position = self._start + self._skip
        self._most = RESENT
        if self._chunks:
            self._wake(self)
        self._pump_on()

    @property
    def spooled(self) -> bool:
        """Whether bytes wait on disk; ``on_emptied`` is called when the last of them was taken for sending."""
        return self._spool is not None

    @property
    def pending(self) -> bool:
        """Whether there is something to send on this connection."""
        return self._unsent < len(self._chunks)

    def next_chunk(self) -> bytes:
        """Return the next bytes to send on this connection, at most CHUNK; empty when there are none."""
        if self._unsent >= len(self._chunks):
            return b""
        most = self._most
        data = self._chunks[self._unsent]
        if len(data) - self._skip > most:
            data = data[self._skip : self._skip + most]
            self._skip += most
            self._most = min(most + most // 4, CHUNK)
        else:
            data = data[self._skip :]
            self._unsent += 1
            self._skip = 0
        self._position += len(data)
        return data

    def data_frame(self, chunk: bytes, sealer: Sealer) -> "tuple[bytes | memoryview, ...]":
        """Return the parts of the DATA frame for the chunk that ``next_chunk`` just returned."""
        head = HEADER.pack(len(chunk), DATA, self.channel, self.request, self._position - len(chunk))
        return sealer.parts(head, chunk)

    def on_reader_frame(self, kind: int, payload: bytes) -> None:
        """Handle a CREDIT or RETURN frame from the reader."""
        if kind == CREDIT:
            self.on_consumed(OFFSET.unpack(payload)[0])
        else:
            self.on_pipe_returned(*RETURN_FIELDS.unpack(payload))

    def close(self) -> None:
        """Drop all buffered and spooled bytes and stop reading."""
        self.release()
        self._chunks.clear()
        self._unsent = 0
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def _drop(self, offset: int) -> None:
        while self._chunks and self._start + len(self._chunks[0]) <= offset:
            self._start += len(self._chunks.popleft())
            self._unsent = max(0, self._unsent - 1)

    def _watch(self, on: bool) -> None:
        if on != self._watched and self._fd >= 0:
            self._watched = on
            if on:
                self._loop.on_read(self._fd, self._pump)
            else:
                self._loop.ignore_read(self._fd)

    def _room(self) -> bool:
        if self._spool_folder:
            return self._spool is None or not self._spool.full
        return self._spool is None and not self.full

    def _pump_on(self) -> None:
        while self._spool is not None and not self._spool_folder and not self.full:
            data = self._spool.take()
            if data:
                self.put(data)
            if not self._spool.size:
                self._spool.close()
                self._spool = None
                if self.on_emptied is not None:
                    self.on_emptied()
        if self._fd >= 0:
            self._drain_on()
            self._watch(self._room() and not self.ended)
        self._settle()

    def _settle(self) -> None:
        if self._drain_left == 0 and self._on_drained is not None:
            done = self._on_drained
            self._on_drained = None
            self._drain_left = -1
            done()

    def _pump(self) -> None:
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EIO:  # EIO: the other side of the PTY was closed
                raise
            data = b""
        if not data:
            self.ended = True
            self._watch(False)
            self._drain_left = min(self._drain_left, 0)
            self._settle()
            if self._on_end is not None:
                self._on_end()
            return
        if len(data) >= 65536 and not self._bulk:
            self._bulk = True
            enlarge_pipe(self._fd)
        if self._drain_left > 0:
            self._drain_left = max(0, self._drain_left - len(data))
        self._store(data)
        if not self._room():
            self._watch(False)
        self._settle()

    def _store(self, data: bytes) -> None:
        if self._spool is None and (self._spool_folder is None or not self.full):
            self.put(data)
            return
        if self._spool is None and self._spool_folder is not None:
            try:
                self._spool = Spool(self._spool_folder())
            except OSError:
                self.put(data)  # may exceed the window by one read; the producer waits from now on
        if self._spool is None or not self._spool.put(data):
            self._watch(False)
            if self.on_disk_full is not None:
                self.on_disk_full()


class Spool:
    """A first-in first-out file of bounded size, without a name on disk."""

    def __init__(self, folder: str) -> None:
        self._file = nameless_file(folder)
        self._read = 0
        self._written = 0
        self._rest = b""  # bytes that did not fit on the disk

    @property
    def size(self) -> int:
        """Return the number of bytes added and not yet taken."""
        return self._written - self._read + len(self._rest)

    @property
    def full(self) -> bool:
        """Whether the spool accepts no more bytes."""
        return bool(self._rest) or self.size >= CAP

    def put(self, data: bytes) -> bool:
        """Append bytes; return False when the disk is full: the unwritten rest is then kept in memory."""
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._file, data[done:], self._written + done)
        except OSError:
            self._rest = data[done:]
        self._written += done
        return not self._rest

    def take(self) -> bytes:
        """Return the next bytes, at most CHUNK."""
        if self._read == self._written:
            data, self._rest = self._rest, b""
            return data
        data = os.pread(self._file, min(CHUNK, self._written - self._read), self._read)
        self._read += len(data)
        return data

    def close(self) -> None:
        """Close the file, which frees its disk space."""
        os.close(self._file)


def nameless_file(folder: str) -> int:
    """Open a new read-write file and unlink it."""
    path = "{}/{}".format(folder, os.urandom(8).hex())
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(path)
    return fd
