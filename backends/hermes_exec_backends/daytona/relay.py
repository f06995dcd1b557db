"""What runs in the sandbox at the other end of a terminal's WebSocket: it starts programs and carries their streams.

A terminal is one stream of bytes each way; this makes many of them, with a program's input, its two outputs and its
end kept apart. It is sent as source to the place's own Python (3.6 or later), so it imports nothing that is slow.

Nothing here ends a program but ``KILL``: when the connection is gone, this ends, and what it started goes on.
"""

import _signal
import marshal
import os
import select
import time

from .frames import (
    COUNT,
    COUNTS,
    ENDED,
    EOF,
    EXIT,
    FAILED,
    FLIGHT,
    FRAMES,
    INPUT,
    KILL,
    LEAVE,
    LONGEST,
    MORE,
    READY,
    RECEIVED,
    START,
    STATUS,
    TAKEN,
    USED,
    WINDOW,
    Parser,
    frame,
)  # fmt: skip
from .program import Program, launch, waiting

SILENCE_S = 90.0
"""After so long without a word, nobody is there any more."""
_LEFT_OUT = (b"TERM", b"SHLVL", b"OLDPWD", b"_", b"LINES", b"COLUMNS")
"""What a login shell in a terminal adds."""


class Relay:
    """All programs of one connection, on the terminal ``tty``."""

    def __init__(self, tty: int) -> None:
        self._tty = tty
        self._parser = Parser()
        self._sequence = 0
        self._programs: "dict[int, Program]" = {}
        self._parts: "dict[int, bytes]" = {}
        self._out = bytearray()
        self._flight = [0, 0]
        self._received = [0, 0]
        self._heard = time.monotonic()
        self._over = False
        self._env = {name: value for name, value in os.environb.items() if name not in _LEFT_OUT}
        self._woken, wake = os.pipe()
        for fd in (self._woken, wake, tty):
            os.set_blocking(fd, False)
        _signal.set_wakeup_fd(wake)
        _signal.signal(_signal.SIGCHLD, lambda _, __: None)
        _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)

    def run(self) -> None:
        """Until the other side says so, or says nothing any more."""
        self._send(READY, 0, COUNT.pack(os.getpid()))
        while not self._over:
            wanted = self._wanted()
            ready = wanted.poll(5000)
            for fd, events in ready:
                self._serve(fd, events)
            if not ready and time.monotonic() - self._heard > SILENCE_S:
                return
            for program in list(self._programs.values()):
                self._conclude(program)
            self._flush()

    def _wanted(self) -> "select.poll":
        wanted = select.poll()
        wanted.register(self._tty, select.POLLIN | (select.POLLOUT if self._out else 0))
        wanted.register(self._woken, select.POLLIN)
        room = self._room()
        for program in self._programs.values():
            if program.input and program.stdin >= 0:
                wanted.register(program.stdin, select.POLLOUT)
            if room and program.sent - program.used < WINDOW:
                for fd in program.outputs:
                    wanted.register(fd, select.POLLIN)
        return wanted

    def _room(self) -> bool:
        return (
            self._flight[0] - self._received[0] < FLIGHT
            and self._flight[1] - self._received[1] < FRAMES
            and len(self._out) < LONGEST
        )

    def _serve(self, fd: int, events: int) -> None:
        if fd == self._tty:
            if events & ~select.POLLOUT:
                self._read()
        elif fd == self._woken:
            self._collect()
        else:
            for program in list(self._programs.values()):
                if fd == program.stdin:
                    self._feed(program)
                elif fd in program.outputs and self._room():
                    self._pass_on(program, fd)

    def _read(self) -> None:
        try:
            data = os.read(self._tty, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._over = True
            return
        self._heard = time.monotonic()
        for kind, number, payload in self._parser.feed(data):
            if kind == MORE:
                self._parts[number] = self._parts.get(number, b"") + payload
            elif kind == START:
                self._start(number, self._parts.pop(number, b"") + payload)
            elif kind == RECEIVED:
                self._received = list(COUNTS.unpack(payload))
            elif kind == LEAVE and number == 0:
                self._over = True
            elif number in self._programs:
                self._told(self._programs[number], kind, payload)

    def _told(self, program: Program, kind: int, payload: bytes) -> None:
        if kind == INPUT:
            program.input += payload
            self._feed(program)
        elif kind == EOF:
            program.eof = True
            self._feed(program)
        elif kind == USED:
            (program.used,) = COUNT.unpack(payload)
        elif kind == KILL:
            if program.code is None:
                try:
                    os.killpg(program.pid, _signal.SIGKILL)
                except OSError:
                    pass  # it has just ended
            self._forget(program)
        elif kind == LEAVE:
            self._forget(program)

    def _feed(self, program: Program) -> None:
        while program.input and program.stdin >= 0:
            try:
                done = os.write(program.stdin, program.input)
            except BlockingIOError:
                break
            except OSError:  # it reads no more
                os.close(program.stdin)
                program.stdin = -1
                break
            del program.input[:done]
            program.taken += done
            self._send(TAKEN, program.number, COUNT.pack(program.taken))
        if program.stdin < 0 and program.input:
            program.taken += len(program.input)
            del program.input[:]
            self._send(TAKEN, program.number, COUNT.pack(program.taken))
        if program.eof and not program.input and program.stdin >= 0:
            os.close(program.stdin)
            program.stdin = -1

    def _pass_on(self, program: Program, fd: int) -> None:
        try:
            data = os.read(fd, LONGEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            del program.outputs[fd]
            program.owed.pop(fd, None)
            os.close(fd)
            return
        program.sent += len(data)
        self._send(program.outputs[fd], program.number, data)
        if fd in program.owed:
            program.owed[fd] -= len(data)
            if program.owed[fd] <= 0:
                del program.owed[fd]

    def _conclude(self, program: Program) -> None:
        """Tell of an end, once what the program wrote has been given."""
        if program.code is None:
            return
        if not program.told and not program.owed:
            program.told = True
            self._send(EXIT, program.number, STATUS.pack(program.code))
        if program.told and not program.outputs:
            self._send(ENDED, program.number, b"")
            self._forget(program)

    def _collect(self) -> None:
        try:
            os.read(self._woken, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            for program in self._programs.values():
                if program.pid == pid and program.code is None:
                    program.code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                    program.owed = {
                        fd: size for fd, size in zip(program.outputs, map(waiting, program.outputs)) if size
                    }

    def _forget(self, program: Program) -> None:
        for fd in ([program.stdin] if program.stdin >= 0 else []) + list(program.outputs):
            os.close(fd)
        del self._programs[program.number]

    def _start(self, number: int, payload: bytes) -> None:
        argv, env = marshal.loads(payload)  # noqa: S302  from those who started this
        variables = dict(self._env)
        variables.update(env)
        program, said = launch(number, argv, variables)
        self._programs[number] = program
        if said:
            self._send(FAILED, number, said)
            self._forget(program)

    def _send(self, kind: int, number: int, payload: bytes) -> None:
        made = frame(kind, number, self._sequence, payload)
        self._sequence += 1
        self._flight[0] += len(made)
        self._flight[1] += 1
        self._out += made
        self._flush()

    def _flush(self) -> None:
        while self._out:
            try:
                done = os.write(self._tty, memoryview(self._out)[:65536])
            except BlockingIOError:
                return
            except OSError:
                self._over = True
                return
            del self._out[:done]


def main() -> None:
    """Be the relay of the terminal that is standard input."""
    Relay(0).run()
