"""One command of a session, and the pipes of the live shell from which its output is read.

A command's output is read up to the moment of its status, never to the end of the pipe, so a child that holds the
pipe blocks no other process. Later output of such a child arrives on the old pipe, separate from the next command's
output, because the shell gets new pipes before that.
"""

import os

from ..core import wire
from ..process.command import CommandRequest, drain_all
from ..process.runner import open_pipes
from ..streams.output_stream import waiting_bytes
from . import shell_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.loop import Loop
    from ..core.server import Request
    from ..streams.output_stream import OutputStream
    from .shell import LiveShell

_CHANNELS = (wire.STDOUT, wire.STDERR)


class ShellCommand(CommandRequest):
    """One command of a session."""

    def __init__(
        self,
        folder: str,
        on_kill: "Callable[[ShellCommand], None]",
        request: "Request",
        arguments: "dict[str, Any]",
    ) -> None:
        super().__init__(request, arguments)
        self._folder = folder
        self._on_kill = on_kill
        self.text: bytes = arguments["command"]
        self._stdin_keeper = -1
        self.bad_folder = False
        self.over = False
        self._taps: "list[OutputTap]" = []
        if b"\0" in self.text:
            raise ValueError("a command cannot hold a NUL byte")
        if arguments.get("stdin"):
            request.expect_input()

    def kill(self) -> None:
        """Kill the processes of the command; one that is still queued never runs."""
        self._on_kill(self)

    @property
    def stopping(self) -> bool:
        """Whether it timed out or was cancelled."""
        return "timed_out" in self.answer or "cancelled" in self.answer

    def wrap(self, dialect: shell_text.ShellDialect) -> bytes:
        """Return the shell text around the command that its options require."""
        arguments = self.arguments
        wrap = dialect.redirect(bool(arguments.get("stdin")), bool(arguments.get("merge")))
        if arguments.get("cwd") is not None or arguments.get("env") or self.confined is not None:
            limits = b"" if self.confined is None else self.confined.text(dialect.bash, self._folder)
            wrap = dialect.subshell(wrap, arguments.get("cwd"), arguments.get("env") or {}, limits)
        return wrap

    def rewind(self) -> None:
        """Release what was prepared for a command that has not begun and will be run again."""
        for tap in self._taps:
            tap.disconnect()
        if self.arguments.get("stdin"):
            self._stdin_opened()
            self._stdin_keeper = os.open(self._folder + "/s/stdin", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def _open_stdin(self) -> None:
        """Create a FIFO that the shell opens by name; our end stays open until then, as a reader needs a writer."""
        path = self._folder + "/fifo"
        os.mkfifo(path, 0o600)
        self._stdin_keeper = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if self.request.input is not None:
            self.request.input.write_to(writer)
        os.rename(path, self._folder + "/s/stdin")  # watched from here on: only the opening by the shell is seen

    def on_opened(self, name: bytes) -> None:
        """Handle the opening of its standard input, or of the file that reports a missing folder."""
        if name == b"cwd":
            self.bad_folder = True
        else:
            self._stdin_opened()

    def _stdin_opened(self) -> None:
        if self._stdin_keeper >= 0:
            os.close(self._stdin_keeper)
            self._stdin_keeper = -1

    def withdraw(self) -> None:
        """Answer a command that is stopped while still queued."""
        self.answer["note"] = "it was still waiting for its turn, so nothing ran"
        self.finish()

    def set_missing_folder(self) -> None:
        """Answer that the command did not run because its shell could not enter the folder."""
        message = "{}: missing, not a folder, or not accessible".format(os.fsdecode(self.arguments["cwd"]))
        self.answer.update(error="cwd", errno=2, message=message)

    def refuse(self, why: str, errno: int = 0) -> None:
        """Answer that the command did not run, and why."""
        self.answer.update(error="os", errno=errno, message=why)
        self.finish()

    def connect(self, taps: "list[OutputTap]", shell: "LiveShell") -> None:
        """Attach the command to the pipes: their bytes are its output, and its input goes to its standard input."""
        self._taps = taps[:1] if self.arguments.get("merge") else taps[:]
        for tap in self._taps:
            tap.connect(self)
        if self.arguments.get("stdin"):
            if self._stdin_keeper < 0:
                self._open_stdin()
            shell.watch_stdin(True)

    def open_stream(self, channel: int) -> "OutputStream":
        """Open an output stream of the command."""
        outlet = self.request.open_output(channel, bulk=True)
        outlet.on_disk_full = self.disk_full
        return outlet

    def drain(self, done: "Callable[[], None]") -> None:
        """Call ``done`` once all its output until now has been read."""
        for tap in self._taps:
            tap.look()
        drain_all([tap.outlet for tap in self._taps if tap.outlet is not None], done)

    def disconnect(self, shell: "LiveShell | None") -> None:
        """Release the pipes and the input after the command has ended."""
        for tap in self._taps:
            tap.disconnect()
        self._stdin_opened()
        if self.request.input is not None:
            self.request.input.close()
            try:
                os.unlink(self._folder + "/s/stdin")
            except FileNotFoundError:
                pass
        if shell is not None and self.arguments.get("stdin"):
            shell.watch_stdin(False)


class BackgroundOutput:
    """Output of earlier commands' children: a stream of the session itself."""

    def __init__(self, request: "Request") -> None:
        self._loop = request.client.server.loop
        self._outlets = {channel: request.open_output(channel) for channel in _CHANNELS}

    def adopt(self, fd: int, channel: int) -> None:
        """Read ``fd`` to its end, then close it."""
        outlet = self._outlets[channel]

        def read() -> None:
            if outlet.full:
                self._loop.ignore_read(fd)
                outlet.on_room = lambda: self._loop.on_read(fd, read)
                return
            try:
                data = os.read(fd, 65536)
            except BlockingIOError:
                return
            if data:
                outlet.put(data)
            else:
                self._loop.ignore_read(fd)
                os.close(fd)

        self._loop.on_read(fd, read)
        read()  # if no writer still has it open, no event would follow


class OutputTap:
    """The read end of one of the shell's outputs. A command gets a stream only when there is something to read.

    The tap stays registered between commands: most commands write nothing to one of the two outputs, and registering it
    each time would cost more than they do.
    """

    def __init__(self, loop: "Loop", fd: int, channel: int) -> None:
        self.fd = fd
        self.channel = channel
        self.outlet: "OutputStream | None" = None
        self._loop = loop
        self._watched = False
        self._command: "ShellCommand | None" = None

    def connect(self, command: "ShellCommand") -> None:
        """Assign the output from now on to this command."""
        self._command = command
        if not self._watched:
            self._watched = True
            self._loop.on_read(self.fd, self._readable)

    def disconnect(self) -> None:
        """Stop reading until the next command."""
        self._command = None
        if self.outlet is not None:
            self.outlet.release()
            self.outlet = None

    def look(self) -> None:
        """Open the command's stream if the pipe holds output."""
        if self.outlet is None and waiting_bytes(self.fd):
            self._open()

    def unwatch(self) -> None:
        """Stop watching the descriptor, which gets another owner."""
        self.disconnect()
        self._ignore()

    def _ignore(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.ignore_read(self.fd)

    def _readable(self) -> None:
        self._ignore()
        self._open()

    def _open(self) -> None:
        if self._command is not None:  # otherwise a process of an earlier command wrote it: it waits
            self._ignore()
            self.outlet = self._command.open_stream(self.channel)
            self.outlet.read_from(self.fd)


class ShellOutputs:
    """The read ends of the shell's standard output and error."""

    def __init__(self, request: "Request") -> None:
        self.taps: "list[OutputTap]" = []
        self._loop = request.client.server.loop
        self._background = BackgroundOutput(request)
        self._text = b""

    def open(self) -> "list[int]":
        """Open pipes for a new shell; return the ends that the shell writes to."""
        (out, out_end), (err, err_end) = open_pipes(2)
        self.taps = [self._tap(fd, channel) for fd, channel in zip((out, err), _CHANNELS)]
        self._text = b""
        return [out_end, err_end]

    def _tap(self, fd: int, channel: int) -> OutputTap:
        os.set_blocking(fd, False)
        return OutputTap(self._loop, fd, channel)

    def retire(self) -> None:
        """Treat these pipes as output of earlier commands' children only."""
        for tap in self.taps:
            self._retire(tap)
        self.taps = []

    def _retire(self, tap: OutputTap) -> None:
        tap.unwatch()
        self._background.adopt(tap.fd, tap.channel)

    def renew(self, shell: "LiveShell") -> str:
        """Give the next command new pipes because of background processes; else return a note why not.

        New pipes are impossible where the user has redirected the shell's output by ``exec``.
        """
        if self._text:
            return ""
        try:
            self._renew(shell)
        except OSError as error:
            return "what runs in the background may write into this output: {}".format(error.strerror)
        return ""

    def _renew(self, shell: "LiveShell") -> None:
        for index, tap in enumerate(self.taps):
            if shell.writes_to(tap.channel, tap.fd):
                fd, redirect = shell.new_pipe(tap.channel)
                self._retire(tap)
                self.taps[index] = self._tap(fd, tap.channel)
                self._text += b"\\exec" + redirect + b";"

    def describe_redirect(self, shell: "LiveShell") -> str:
        """Return a note if the shell's own output is redirected or closed; else an empty string."""
        gone = [name for name, tap in zip(("output", "error"), self.taps) if not shell.writes_to(tap.channel, tap.fd)]
        return "the shell's standard {} now goes elsewhere".format(" and ".join(gone)) if gone else ""

    @property
    def switch_text(self) -> bytes:
        """Return the text that makes the shell use the new pipes; empty if it has them already."""
        return self._text

    def on_switched(self) -> None:
        """Record that the shell got that text."""
        self._text = b""
