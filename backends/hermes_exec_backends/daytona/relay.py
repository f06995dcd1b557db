"""The relay process at the sandbox's end of a terminal's WebSocket: it starts programs and transfers their streams.

A terminal is one stream of bytes each way; the relay multiplexes the input, the two outputs and the end of many
programs over it. It is sent as source to the target's own Python (3.6 or later), so it imports no slow module.

Only ``KILL`` ends a program here: when the connection is lost, the relay ends, and the programs continue.
"""

import _signal
import marshal
import os
import select
import time

from . import frames
from .program import Program, launch, waiting
from .staging_dir import Shelf, sweep

SILENCE_S = 90.0
"""Seconds without a message after which the client is considered gone."""
_PAUSE_MS = 2
_LEFT_OUT = (b"TERM", b"SHLVL", b"OLDPWD", b"_", b"LINES", b"COLUMNS")
"""Variables that a login shell in a terminal adds."""


class Relay:
    """All programs of one connection, on the terminal ``tty``."""

    def __init__(self, tty: int) -> None:
        self._tty = tty
        self._parser = frames.Parser()
        self._sequence = 0
        self._programs: "dict[int, Program]" = {}
        self._parts: "dict[int, bytes]" = {}
        self._out = bytearray()
        self._flight = [0, 0]
        self._received = [0, 0]
        self._heard = time.monotonic()
        self._over = False
        self._shelf = Shelf()
        self._env = {name: value for name, value in os.environb.items() if name not in _LEFT_OUT}
        self._woken, wake = os.pipe()
        for fd in (self._woken, wake, tty):
            os.set_blocking(fd, False)
        _signal.set_wakeup_fd(wake)
        _signal.signal(_signal.SIGCHLD, lambda _, __: None)
        _signal.signal(_signal.SIGHUP, _signal.SIG_IGN)

    def run(self) -> None:
        """Serve until the other side ends the connection, or stops sending."""
        self._send(frames.READY, 0, self._shelf.folder.encode())
        self._flush()
        try:
            sweep()
            self._serve_all()
        finally:
            self._shelf.close()

    def _serve_all(self) -> None:
        while not self._over:
            wanted = self._build_poll()
            ready = wanted.poll(5000)
            for fd, events in ready:
                self._serve(fd, events)
            if not ready and time.monotonic() - self._heard > SILENCE_S:
                return
            for program in list(self._programs.values()):
                self._store(program)
                self._conclude(program)
            self._flush()

    def _build_poll(self) -> "select.poll":
        wanted = select.poll()
        wanted.register(self._tty, select.POLLIN | (select.POLLOUT if self._out else 0))
        wanted.register(self._woken, select.POLLIN)
        room = self._room()
        for program in self._programs.values():
            if (program.input or program.later) and program.stdin >= 0:
                wanted.register(program.stdin, select.POLLOUT)
            if room and program.sent - program.used < frames.WINDOW:
                for fd in program.outputs:
                    wanted.register(fd, select.POLLIN)
        return wanted

    def _room(self) -> bool:
        return (
            self._flight[0] - self._received[0] < frames.FLIGHT
            and self._flight[1] - self._received[1] < frames.FRAMES
            and len(self._out) < frames.LONGEST
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
            if kind == frames.MORE:
                self._parts[number] = self._parts.get(number, b"") + payload
            elif kind == frames.START:
                self._start(number, self._parts.pop(number, b"") + payload)
            elif kind == frames.RECEIVED:
                self._received = list(frames.COUNTS.unpack(payload))
            elif kind == frames.HERE:
                self._send(frames.HERE, 0, b"")  # so that the other end knows that its messages arrive
            elif kind == frames.LEAVE and number == 0:
                self._over = True
            elif number in self._programs:
                self._handle_message(self._programs[number], kind, payload)

    def _handle_message(self, program: Program, kind: int, payload: bytes) -> None:
        if kind in (frames.INPUT, frames.FILED):
            program.later.append(self._shelf.take(frames.COUNT.unpack(payload)[0]) if kind == frames.FILED else payload)
            self._feed(program)
        elif kind == frames.STORED:
            self._shelf.delete_fetched(frames.COUNT.unpack(payload)[0])
        elif kind == frames.EOF:
            program.eof = True
            self._feed(program)
        elif kind == frames.USED:
            (program.used,) = frames.COUNT.unpack(payload)
        elif kind == frames.KILL:
            if program.code is None:
                try:
                    os.killpg(program.pid, _signal.SIGKILL)
                except OSError:
                    pass  # it has just ended
            self._forget(program)
        elif kind == frames.LEAVE:
            self._forget(program)

    def _feed(self, program: Program) -> None:
        taken = program.taken
        while program.stdin >= 0 and program.more():
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
        while program.stdin < 0 and program.more():
            program.taken += len(program.input)
            del program.input[:]
        if program.taken > taken:
            self._send(frames.TAKEN, program.number, frames.COUNT.pack(program.taken))
        if program.eof and program.stdin >= 0 and not program.more():
            os.close(program.stdin)
            program.stdin = -1

    def _store(self, program: Program) -> None:
        """Store output that exceeds the connection's capacity in files."""
        for fd, kind in list(program.outputs.items()):
            while (
                self._shelf.folder
                and program.sent - program.used < frames.BULK_WINDOW
                and waiting(fd) >= frames.BULK
                and (fd not in program.owed or program.owed[fd] >= frames.BULK)
            ):
                data = read_available(fd, min(frames.LARGEST, program.owed.get(fd, frames.LARGEST)))
                program.sent += len(data)
                self._send(frames.STORED, program.number, self._shelf.store(kind, data))
                self._reduce_debt(program, fd, len(data))

    def _pass_on(self, program: Program, fd: int) -> None:
        try:
            data = os.read(fd, frames.LONGEST)
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
        self._reduce_debt(program, fd, len(data))

    def _reduce_debt(self, program: Program, fd: int, size: int) -> None:
        if fd in program.owed:
            program.owed[fd] -= size
            if program.owed[fd] <= 0:
                del program.owed[fd]

    def _conclude(self, program: Program) -> None:
        """Report a program's end, once its output has been sent."""
        if program.code is None:
            return
        if not program.told and not program.owed:
            program.told = True
            self._send(frames.EXIT, program.number, frames.STATUS.pack(program.code))
        if program.told and not program.outputs:
            self._send(frames.ENDED, program.number, b"")
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
        for fd in program.open():
            os.close(fd)
        del self._programs[program.number]

    def _start(self, number: int, payload: bytes) -> None:
        argv, env = marshal.loads(payload)  # noqa: S302  from those who started this
        variables = dict(self._env)
        variables.update(env)
        program, said = launch(number, argv, variables)
        self._programs[number] = program
        if said:
            self._send(frames.FAILED, number, said)
            self._forget(program)

    def _send(self, kind: int, number: int, payload: bytes) -> None:
        made = frames.frame(kind, number, self._sequence, payload)
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


def read_available(fd: int, most: int) -> bytearray:
    """Read from a pipe without waiting, up to ``most`` bytes."""
    data = bytearray()
    coming = select.poll()
    coming.register(fd, select.POLLIN)
    while len(data) < most and (not data or coming.poll(_PAUSE_MS)):
        try:
            part = os.read(fd, most - len(data))
        except BlockingIOError:
            break
        if not part:
            break
        data += part
    return data


def main() -> None:
    """Run the relay on the terminal that is standard input."""
    Relay(0).run()
