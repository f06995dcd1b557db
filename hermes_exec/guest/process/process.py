"""Programs started from an argv list: the pool of runners, and one running program."""

import _socket
import os
from _collections import deque

from ..core import process_tree
from . import runner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque

    from ..core.loop import Loop

_SPARE = 4
"""Idle runners that are kept."""


class Runner:
    """The guest's handle of one runner process."""

    def __init__(self, loop: "Loop", pool: "RunnerPool") -> None:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                runner.serve(theirs.fileno())
            finally:
                os._exit(1)
        theirs.close()
        self._loop = loop
        self._pool = pool
        self._channel = ours
        self._on_started: "Callable[[int], None] | None" = None
        self._on_end: "Callable[[int, int], None] | None" = None
        self._kills = 0
        self._new = True
        self._ended: "bool | None" = None  # whether the program left processes, once it has ended
        loop.on_read(ours.fileno(), self._on_reply)
        loop.on_exit(self.pid, lambda _: None)

    def start(
        self,
        spec: "dict[str, Any]",
        fds: "list[int]",
        on_end: "Callable[[int, int], None]",
        on_started: "Callable[[int], None] | None" = None,
    ) -> None:
        """Start a program; ``on_end`` gets the kind of the reply and its value (``runner.REPLY``)."""
        self._on_end = on_end
        self._on_started = on_started
        spec["tell"] = on_started is not None
        new, self._new = self._new, False
        try:
            runner.send_spec(self._channel, spec, fds)
        except OSError:
            if new:  # it could not become a runner; its reply has the reason
                return
            self._on_end = None
            raise

    def _on_reply(self) -> None:
        try:
            data = self._channel.recv(runner.REPLY.size)
        except OSError:
            data = b""
        if not data:
            kind, left, value = runner.ENDED, 0, 9  # the runner itself was killed
            self.close()
            self._pool.forget(self)
        else:
            kind, left, value = runner.REPLY.unpack(data)
        if kind == runner.STARTED:
            if self._on_started is not None:
                self._on_started(value)
            return
        on_end = self._on_end
        self._on_end = None
        if data:
            self._ended = bool(left)
            self._give_back()
        if on_end is not None:
            on_end(kind, value)

    def _give_back(self) -> None:
        """Return to the pool, unless a kill is still in progress below this runner."""
        if self._ended is not None and not self._kills:
            left, self._ended = self._ended, None
            self._pool.give_back(self, left)

    @property
    def free(self) -> bool:
        """Whether no process that its programs started is alive."""
        return not process_tree.living_processes(process_tree.descendants([self.pid]))

    def kill(self, grace_s: float, done: "Callable[[list[int]], None]") -> process_tree.TreeKill:
        """End the program and its process tree."""

        def on_kill(pids: "list[int]") -> None:
            self._kills -= 1
            done(pids)
            self._give_back()

        self._kills += 1
        return process_tree.TreeKill(self._loop, lambda: process_tree.descendants([self.pid]), grace_s, on_kill)

    def close(self) -> None:
        """Close the runner; its remaining processes become the guest's children."""
        self._loop.ignore_read(self._channel.fileno())
        self._channel.close()


class RunnerPool:
    """The runners of one client: idle ones, and those with processes left behind."""

    def __init__(self, loop: "Loop") -> None:
        self._loop = loop
        self._idle: "list[Runner]" = []
        self._left: "Deque[Runner]" = deque()
        self._closed = False

    def take(self) -> Runner:
        """Return a runner that has no processes below it."""
        if self._left:  # round robin, so that there are never more of these than runners in use
            used = self._left.popleft()
            if used.free:
                return used
            self._left.append(used)
        return self._idle.pop() if self._idle else Runner(self._loop, self)

    def start(self, spec: "dict[str, Any]", fds: "list[int]", on_end: "Callable[[int, int], None]") -> Runner:
        """Start a program below a runner that has no other processes below it."""
        while True:
            used = self.take()
            try:
                used.start(spec, fds, on_end)
            except (BrokenPipeError, ConnectionResetError):
                continue  # that runner was killed
            return used

    def give_back(self, used: Runner, left: bool) -> None:
        """Take back a runner whose program has ended, with or without leaving processes behind."""
        if self._closed:
            self._end(used)
        elif left:
            self._left.append(used)
        elif len(self._idle) < _SPARE:
            self._idle.append(used)
        else:
            used.close()

    def forget(self, gone: Runner) -> None:
        """Drop a runner that was killed from outside."""
        if gone in self._idle:
            self._idle.remove(gone)
        if gone in self._left:
            self._left.remove(gone)

    def _end(self, used: Runner) -> None:
        used.kill(0.2, lambda _: used.close())

    def close(self) -> None:
        """End the processes that programs left behind, and the runners."""
        self._closed = True
        for used in [*self._left, *self._idle]:
            self._end(used)
        self._left.clear()
        self._idle.clear()
