"""A child process as a channel: three pipes on the event loop, and its exit status.

The end is reported once both outputs have ended *and* the process is reaped; a pidfd (Linux 5.3) detects the exit
without a thread, elsewhere a thread waits. An ``ExitReceiver`` is notified of the process's exit alone as soon as the
data that the pipes held at that moment has been read.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import termios
from typing import TYPE_CHECKING

from hermes_exec.backend import Channel, Exit, ExitReceiver, Receiver
from hermes_exec.transport.write_buffer import WriteBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_READ = 256 << 10
_PIPE = 1 << 20
_SMALL = 64 << 10
"""A large buffer for a small read is slower than the read."""
_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 1031)


_left: set[ProcessChannel] = set()
"""Channels whose process outlives them, such as a guest that keeps jobs; each process is reaped after its end."""
_DYING_S = 2.0


def reap() -> None:
    """Reap ended processes whose event loop is closed, since no other code does."""
    for channel in list(_left):
        channel.reap()


async def wait_until_killed() -> None:
    """Return when the killed processes of this loop are gone, or hang in the kernel."""
    loop = asyncio.get_running_loop()
    dying = [channel.gone for channel in _left if channel.killed and channel.gone.get_loop() is loop]
    if dying:
        await asyncio.wait(dying, timeout=_DYING_S)


@atexit.register
def _let_go() -> None:
    """Silence Python's warnings about processes that are meant to outlive this one."""
    reap()
    for channel in _left:
        channel.let_go()


def _waiting_bytes(fd: int) -> int:
    """Return the number of bytes that a pipe holds."""
    return int(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0])


class ProcessChannel(Channel):
    """The streams of one child process, which leads a session of its own."""

    def __init__(self, argv: Sequence[str | bytes], receiver: Receiver, env: Mapping[str, str]) -> None:
        """Start ``argv``; raises OSError when it cannot be started."""
        reap()
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.killed = False
        self._receiver = receiver
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
            bufsize=0,
        )
        self._in, self._out, err = (
            stream.fileno()
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr)
            if stream is not None
        )
        self._readers: dict[int, Callable[[bytes], None]] = {
            self._out: receiver.on_data,
            err: receiver.on_stderr,
        }
        self._outgoing = WriteBuffer()
        self._eof = False
        self._writing = False
        self._paused = False
        self._told = False
        self._unread: dict[int, int] | None = None  # bytes in each output when the process ended
        self._size = _SMALL
        for fd in (self._in, *self._readers):
            os.set_blocking(fd, False)
            with contextlib.suppress(OSError):  # over the user's pipe limit: the size stays
                fcntl.fcntl(fd, _F_SETPIPE_SZ, _PIPE)
        self.resume()
        self._watch_exit()

    def _watch_exit(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except (AttributeError, OSError):
            self._pidfd = -1
            waiting = self._loop.run_in_executor(None, self._process.wait)
            waiting.add_done_callback(lambda _: self._handle_end())
        else:
            self._loop.add_reader(self._pidfd, self._handle_exit)

    def _handle_exit(self) -> None:
        self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._handle_end()

    def reap(self) -> None:
        """Reap the process, if it has ended and its event loop is closed."""
        if self._loop.is_closed() and self._process.poll() is not None:
            _left.discard(self)
            if self._pidfd >= 0:
                os.close(self._pidfd)

    def let_go(self) -> None:
        """Mark the process as reaped: it is meant to outlive this one, so its Popen must not warn."""
        self._process.returncode = 0

    def _handle_end(self) -> None:
        _left.discard(self)
        if not self.gone.done():
            self.gone.set_result(None)
        if isinstance(self._receiver, ExitReceiver):
            self._unread = {fd: _waiting_bytes(fd) for fd in self._readers}
        self._check_end()

    def _check_end(self) -> None:
        if self._process.returncode is None or self._told:
            return
        code = self._process.returncode
        exit = Exit(code=code) if code >= 0 else Exit(signal=-code)
        if self._unread is not None and not any(left > 0 for left in self._unread.values()):
            self._unread = None
            if isinstance(self._receiver, ExitReceiver):
                self._receiver.on_exit(exit)
        if not self._readers:
            self._close_stdin()
            self._tell(exit)

    def _tell(self, exit: Exit) -> None:
        if not self._told:
            self._told = True
            self._outgoing.clear()
            self._receiver.on_close(exit)

    def _readable(self, fd: int) -> None:
        try:
            data = os.read(fd, self._size)
        except BlockingIOError:
            return
        if data:
            self._size = _READ if len(data) == self._size else _SMALL
            self._readers[fd](data)
            if self._unread is not None and fd in self._unread:
                self._unread[fd] -= len(data)
                self._check_end()
        else:
            self._close_reader(fd)
            self._check_end()

    def _close_reader(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        del self._readers[fd]
        if self._unread is not None:
            self._unread.pop(fd, None)
        stream = self._process.stdout if fd == self._out else self._process.stderr
        if stream is not None:
            stream.close()

    def write(self, *parts: bytes | memoryview) -> None:
        """Queue bytes for standard input, and write as many as it accepts at once."""
        if self._in < 0 or self._eof:
            return
        self._outgoing.add(parts)
        if not self._writing:
            self._flush()

    def _flush(self) -> None:
        try:
            done = self._outgoing.flush(self._send)
        except OSError:
            self._close_stdin()
            return
        if not done and not self._writing:
            self._loop.add_writer(self._in, self._flush)
        elif done and self._writing:
            self._loop.remove_writer(self._in)
        self._writing = not done
        if done and self._eof:
            self._close_stdin()

    def _send(self, parts: Sequence[bytes | memoryview]) -> int:
        try:
            return os.writev(self._in, parts)
        except BlockingIOError:
            return 0

    def _close_stdin(self) -> None:
        if self._in >= 0:
            self._loop.remove_writer(self._in)
            self._in = -1
            self._outgoing.clear()
            if self._process.stdin is not None:
                self._process.stdin.close()

    def write_eof(self) -> None:
        """Close standard input after what is queued."""
        self._eof = True
        if not self._outgoing.size:
            self._close_stdin()

    @property
    def unsent(self) -> int:
        """Return the number of bytes that the process has not taken."""
        return self._outgoing.size

    async def drain(self) -> None:
        """Wait until at most 1 MiB is queued, or the process takes no more."""
        await self._outgoing.drain()

    def pause(self) -> None:
        """Stop reading; full pipes stop the process."""
        self._paused = True
        for fd in self._readers:
            self._loop.remove_reader(fd)

    def resume(self) -> None:
        """Continue reading."""
        self._paused = False
        for fd in self._readers:
            self._loop.add_reader(fd, self._readable, fd)

    def abandon(self) -> None:
        """Close this side's pipe ends at once; the process is reaped when it ends."""
        if self._process.returncode is None:
            _left.add(self)
        self._close_stdin()
        for fd in list(self._readers):
            self._close_reader(fd)
        self._tell(Exit(lost="the channel was closed here"))

    def kill(self) -> None:
        """Send SIGKILL to the process group, and close the pipes."""
        if self._process.returncode is None:
            self.killed = True
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self.abandon()
