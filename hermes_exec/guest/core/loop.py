"""The event loop: file descriptors by epoll(7), timers and child processes, on one thread."""

import _signal
import os
import select
import sys
import time
from _collections import deque  # collections itself is slow to import
from heapq import heapify, heappop, heappush

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Deque

READ = select.POLLIN
WRITE = select.POLLOUT
_ENDED = select.POLLHUP | select.POLLERR
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", 7)  # the constant came with Python 3.7, the clock with Linux 2.6.39


def _clock() -> "Callable[[], float]":
    """Return a clock that includes the time that the machine was suspended, if there is one."""
    try:
        time.clock_gettime(_BOOTTIME)
    except OSError:
        return time.monotonic
    return lambda: time.clock_gettime(_BOOTTIME)


now = _clock()


def report_exception(error: BaseException) -> None:
    """Print a caught exception to standard error, of which the link keeps the end."""
    sys.excepthook(type(error), error, error.__traceback__)


def _nothing(_: int, __: object) -> None:
    """A signal handler; having one makes a signal wake the loop."""


class Timer:
    """A callback at a time of ``now``; ``cancel`` may be called at any moment."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: "Callable[[], None]") -> None:
        self.when = when
        self.call: "Callable[[], None] | None" = call

    def __lt__(self, other: "Timer") -> bool:
        """Order timers by time, for the heap."""
        return self.when < other.when

    def cancel(self) -> None:
        """Never call back."""
        self.call = None


class Loop:
    """Runs callbacks; ``run`` returns after ``stop``."""

    def __init__(self) -> None:
        self._linux = hasattr(select, "epoll")
        self._poll = select.epoll() if self._linux else select.poll()
        self._readers: "dict[int, Callable[[], None]]" = {}
        self._writers: "dict[int, Callable[[], None]]" = {}
        self._timers: "list[Timer]" = []
        self._prune_at = 64  # cancelled timers stay in the heap until there are this many
        self._children: "dict[int, Callable[[int], None]]" = {}
        self._soon: "Deque[Callable[[], None]]" = deque()
        self._running = True
        self._catch_children()

    def _catch_children(self) -> None:
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        _signal.signal(_signal.SIGCHLD, _nothing)
        _signal.set_wakeup_fd(wake)
        self.on_read(self._woken, self._reap)

    def _reap(self) -> None:
        try:
            os.read(self._woken, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ended = self._children.pop(pid, None)  # None: an adopted orphan
            if ended is not None:
                ended(status)

    def on_exit(self, pid: int, call: "Callable[[int], None]") -> None:
        """Call back with the wait status when the child has ended."""
        self._children[pid] = call

    def own_children(self) -> "set[int]":
        """The children with an ``on_exit`` callback."""
        return set(self._children)

    def on_read(self, fd: int, call: "Callable[[], None]") -> None:
        """Call back whenever ``fd`` is readable or at its end."""
        self._readers[fd] = call
        self._update(fd)

    def on_write(self, fd: int, call: "Callable[[], None]") -> None:
        """Call back whenever ``fd`` is writable or at its end."""
        self._writers[fd] = call
        self._update(fd)

    def ignore_read(self, fd: int) -> None:
        """Undo ``on_read``; safe without it."""
        if self._readers.pop(fd, None) is not None:
            self._update(fd)

    def ignore_write(self, fd: int) -> None:
        """Undo ``on_write``; safe without it."""
        if self._writers.pop(fd, None) is not None:
            self._update(fd)

    def _update(self, fd: int) -> None:
        mask = (READ if fd in self._readers else 0) | (WRITE if fd in self._writers else 0)
        if not mask:
            self._poll.unregister(fd)
            return
        try:
            self._poll.register(fd, mask)
        except FileExistsError:
            self._poll.modify(fd, mask)

    def call_later(self, delay_s: float, call: "Callable[[], None]") -> "Timer":
        """Call back once, after ``delay_s`` seconds; at once if that is NaN, which a message can contain."""
        timer = Timer(now() + max(0.0, delay_s), call)
        if len(self._timers) > self._prune_at:
            self._timers = [other for other in self._timers if other.call is not None]
            heapify(self._timers)
            self._prune_at = 2 * len(self._timers) + 64
        heappush(self._timers, timer)
        return timer

    def call_soon(self, call: "Callable[[], None]") -> None:
        """Call back at the end of this iteration, before waiting again."""
        self._soon.append(call)

    def stop(self) -> None:
        """Leave ``run`` at the end of this iteration."""
        self._running = False

    def run(self) -> None:
        """Wait and call back until ``stop``."""
        poll = self._poll.poll
        readers = self._readers
        writers = self._writers
        while self._running:
            try:
                for fd, mask in poll(0 if self._soon else self._wait_time()):  # 0: an exception left some behind
                    if mask & (READ | _ENDED):
                        reader = readers.get(fd)
                        if reader is not None:
                            reader()
                    if mask & (WRITE | _ENDED):
                        writer = writers.get(fd)
                        if writer is not None:
                            writer()
                if self._timers:
                    self._fire()
                while self._soon:
                    self._soon.popleft()()
            except Exception as error:  # noqa: BLE001  a bug in one callback must not end the work of others
                report_exception(error)

    def _wait_time(self) -> float:
        timers = self._timers
        while timers and timers[0].call is None:
            heappop(timers)
        if not timers:
            return -1
        delay = max(0.0, timers[0].when - now())
        # epoll does not include the time that a machine was suspended: check at least each minute.
        return min(delay, 60.0) * (1 if self._linux else 1000)

    def _fire(self) -> None:
        time_now = now()
        while self._timers and self._timers[0].when <= time_now:
            call = heappop(self._timers).call
            if call is not None:
                call()
