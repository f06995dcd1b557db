"""Connect the local terminal to a PTY: every key is sent to the target, and the terminal is always restored.

The terminal is in raw mode, so Ctrl-C and Ctrl-Z act in the target. Local commands begin with ``~`` after
Enter, as in ssh(1): ``~d`` detaches, ``~.`` hangs up and ends the program, ``~?`` lists the commands, and
``~~`` sends one ``~``. Any other key after ``~`` is sent to the target, together with the ``~``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import termios
import tty
from typing import TYPE_CHECKING, Literal

from hermes_exec._async import cancel_and_wait
from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hermes_exec.result import Result
    from hermes_exec.terminal.pty import Pty

TerminalAction = Literal["", "detach", "close", "help"]

_READ = 64 << 10
_WISHES: dict[bytes, TerminalAction] = {b"d": "detach", b".": "close", b"?": "help"}
_HELP = b"\r\n~d  detach, the program goes on\r\n~.  hang up and end it\r\n~~  type a ~\r\n"
_ALTERNATE_ON, _ALTERNATE_OFF = b"\x1b[?1049h", b"\x1b[?1049l"
_CALM = b"\x1b[?1000;1002;1003;1004;1006;2004l\x1b[?1l\x1b>\x1b[?25h\x1b[0m"
"""Resets the modes that an interrupted program may have set: mouse and focus reports, bracketed paste, keypad
modes, a hidden cursor, colours (xterm's control sequences)."""


class EscapeParser:
    """Finds local commands in the input."""

    def __init__(self) -> None:
        self._at_start = True
        self._tilde = False

    def feed(self, typed: bytes) -> tuple[bytes, TerminalAction]:
        """Return the input for the target, and the local command after it; input after a command is dropped."""
        out = bytearray()
        for number in typed:
            key = bytes((number,))
            if self._tilde:
                self._tilde = False
                if key in _WISHES:
                    self._at_start = True
                    return bytes(out), _WISHES[key]
                out += b"~" if key == b"~" else b"~" + key
            elif self._at_start and key == b"~":
                self._tilde = True
                continue
            else:
                out += key
            self._at_start = key in b"\r\n"
        return bytes(out), ""


class ScreenState:
    """Tracks the terminal modes that must be reset when a program is left before its end."""

    def __init__(self) -> None:
        self._alternate = False
        self._tail = b""

    def observe(self, data: bytes) -> None:
        """Observe output to the terminal."""
        seen = self._tail + data
        on, off = seen.rfind(_ALTERNATE_ON), seen.rfind(_ALTERNATE_OFF)
        if on != off:
            self._alternate = on > off
        self._tail = seen[-len(_ALTERNATE_ON) + 1 :]

    @property
    def restore_sequence(self) -> bytes:
        """The sequence that resets the terminal."""
        return (_ALTERNATE_OFF if self._alternate else b"") + _CALM


def read_size(fd: int) -> tuple[int, int]:
    """Return rows and columns of a terminal; 24 and 80 if ``fd`` is not a terminal or has no size."""
    try:
        columns, rows = os.get_terminal_size(fd)
    except OSError:
        return 24, 80
    return rows or 24, columns or 80


@contextlib.contextmanager
def raw_mode(fd: int) -> Generator[bool]:
    """Put a terminal into raw mode for the length of the block, and restore it in every case.

    Yields False, and does nothing, if ``fd`` is not a terminal.
    """
    if not os.isatty(fd):
        yield False
        return
    before = termios.tcgetattr(fd)
    tty.setraw(fd, termios.TCSADRAIN)
    try:
        yield True
    finally:
        with contextlib.suppress(termios.error):  # the terminal itself is gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)


async def interact(pty: Pty, *, stdin: int = 0, stdout: int = 1) -> Result | None:
    """Connect this terminal to ``pty`` until its program ends; return its result, or None when it was detached.

    ``stdin`` may be a pipe or a file: its end is sent as Ctrl-D until the program ends. Call it on the main thread,
    where SIGWINCH can be handled. SIGTERM and SIGHUP cancel the calling task unless they have another handler, so
    that the terminal is restored.

    Raises:
        OutcomeUnknown: the target was lost, and the program with it; the terminal is restored.
    """
    screen = ScreenState()
    over = False
    with raw_mode(stdin) as is_terminal, _signals(pty, stdin if is_terminal else -1):
        showing = asyncio.create_task(_show(pty, stdout, screen))
        typing = asyncio.create_task(_type(pty, stdin, stdout if is_terminal else -1))
        try:
            await asyncio.wait((showing, typing), return_when=asyncio.FIRST_COMPLETED)
            wish = typing.result() if typing.done() else ""
            if wish == "detach":
                await pty.detach()
                return None
            if wish == "close":
                await pty.close()
            await showing
            over = wish == ""
            return await pty.wait()
        finally:
            await cancel_and_wait([showing, typing])
            if not over and os.isatty(stdout):
                with contextlib.suppress(OSError):
                    _write(stdout, screen.restore_sequence)


async def _show(pty: Pty, fd: int, screen: ScreenState) -> None:
    loop = asyncio.get_running_loop()
    async for data in pty:
        screen.observe(data)
        await loop.run_in_executor(None, _write, fd, data)  # a slow terminal must not block the link


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:  # another process has set O_NONBLOCK on it
            select.select((), (fd,), ())


async def _type(pty: Pty, fd: int, screen: int) -> TerminalAction:
    """Send input until a command to leave or the end of a pipe; ``screen`` is -1 without a terminal."""
    escape = EscapeParser()
    while True:
        await _readable(fd)
        typed = os.read(fd, _READ)
        wish: TerminalAction = ""
        if not typed:
            if screen < 0:
                await pty.close_stdin()
            return ""
        if screen >= 0:
            typed, wish = escape.feed(typed)
        await pty.write(typed)
        if wish == "help":
            _write(screen, _HELP)
        elif wish:
            return wish


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    try:
        loop.add_reader(fd, lambda: None if ready.done() else ready.set_result(None))
    except PermissionError:  # a regular file is always ready
        return
    try:
        await ready
    finally:
        loop.remove_reader(fd)


@contextlib.contextmanager
def _signals(pty: Pty, fd: int) -> Generator[None]:
    """Follow the size of the terminal ``fd`` (-1 for none); SIGTERM and SIGHUP cancel the task."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    resizing: set[asyncio.Task[None]] = set()

    def on_resize() -> None:
        resizing.add(changing := loop.create_task(_resize(pty, fd)))
        changing.add_done_callback(resizing.discard)

    wanted: dict[signal.Signals, Callable[[], object]] = {}
    if fd >= 0:
        wanted[signal.SIGWINCH] = on_resize
    if task is not None:
        ending = (signal.SIGTERM, signal.SIGHUP)
        wanted |= {number: task.cancel for number in ending if signal.getsignal(number) is signal.SIG_DFL}
    before = {number: signal.getsignal(number) for number in wanted}
    heard: list[signal.Signals] = []
    try:
        for number, call in wanted.items():
            with contextlib.suppress(ValueError, RuntimeError):  # not on the main thread
                loop.add_signal_handler(number, call)
                heard.append(number)
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])


async def _resize(pty: Pty, fd: int) -> None:
    with contextlib.suppress(HermesError):  # it has ended meanwhile, or its error is raised elsewhere
        await pty.resize(*read_size(fd))
