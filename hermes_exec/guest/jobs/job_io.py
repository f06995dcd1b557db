"""The input and output of a job: its standard input, and the pipes that feed its log."""

import errno
import os

from ..core import wire
from ..core.fdutil import enlarge_pipe
from ..process.runner import open_pipes
from ..streams.input_stream import InputStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from ..core.loop import Loop
    from ..core.server import Request
    from .job_log import JobLogFile


class JobLogRecorder:
    """A reader of a job's two outputs into its log; the job waits while the log is full.

    ``on_failure`` is called with the reason when no more output can be kept.
    """

    def __init__(self, loop: "Loop", log: "JobLogFile", on_failure: "Callable[[str], None]") -> None:
        self._loop = loop
        self._log = log
        self._on_failure = on_failure
        self._pipes: "dict[int, int]" = {}

    def open(self) -> "list[int]":
        """Open new pipes; return the write ends for standard output and standard error."""
        theirs: "list[int]" = []
        for channel, (ours, end) in zip((wire.STDOUT, wire.STDERR), open_pipes(2)):
            self._pipes[channel] = ours
            theirs.append(end)
            os.set_blocking(self._pipes[channel], False)
            self._watch(channel, self._pipes[channel])
        return theirs

    def _watch(self, channel: int, fd: int) -> None:
        self._loop.on_read(fd, lambda: self._read(channel, fd))

    def _read(self, channel: int, fd: int) -> None:
        room = self._log.room
        if not room:
            self._ignore()
            return
        try:
            data = os.read(fd, min(wire.CHUNK, room))
        except BlockingIOError:
            return
        if not data:
            self._loop.ignore_read(fd)
            return
        if len(data) >= 65536:
            enlarge_pipe(fd)
        self._keep(channel, data)

    def _keep(self, channel: int, data: bytes) -> bool:
        try:
            self._log.append(channel, data)
        except OSError as error:
            self._ignore()
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            self._on_failure(
                "the target's disk was full" if full else "its log could not be written ({})".format(error.strerror)
            )
            return False
        return True

    def _ignore(self) -> None:
        for fd in self._pipes.values():
            self._loop.ignore_read(fd)

    def close(self) -> None:
        """Close the pipes after the last byte, which is kept even beyond the log's cap."""
        self._ignore()
        for channel, fd in self._pipes.items():
            while self._rest(channel, fd):
                pass
            os.close(fd)
        self._pipes = {}

    def _rest(self, channel: int, fd: int) -> bool:
        try:
            data = os.read(fd, wire.CHUNK)
        except BlockingIOError:
            return False
        return bool(data) and self._keep(channel, data)


class JobInput:
    """The standard input of a job, written by any number of requests, one after the other."""

    def __init__(self) -> None:
        self._fd = -1

    def open(self) -> int:
        """Open a new pipe; return the read end for the job."""
        theirs, self._fd = os.pipe()
        os.set_blocking(self._fd, False)
        return theirs

    def take(self, request: "Request", last: bool) -> None:
        """Write the request's input, then answer it; after the ``last`` request the input ends."""
        if self._fd < 0:
            request.fail("closed", "the job's standard input is closed")
            return

        def on_write() -> None:
            if last:
                self.close()
            request.finish({})

        feed = request.input = _Feed(request, on_write)
        request.cancel = feed.close
        feed.write_to(os.dup(self._fd))

    def close(self) -> None:
        """End the input."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _Feed(InputStream):
    """The input of one request; ``done`` is called when all of it was written, or the reader is gone."""

    def __init__(self, request: "Request", on_write: "Callable[[], None]") -> None:
        super().__init__(request.client.server.loop, request.send_credit)
        self._done = on_write

    def close(self) -> None:
        """Release the descriptor."""
        if not self.closed:
            super().close()
            self._done()
