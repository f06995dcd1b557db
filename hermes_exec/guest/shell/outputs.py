"""The pipes of a live shell, and output that outlives its command.

A command's output is read up to the moment of its status, never to the end of the pipe, so a child that holds the
pipe blocks no other process. Later output of such a child arrives on the old pipe, separate from the next command's
output, because the shell gets new pipes before that.
"""

import os

from ..core import wire
from ..process.runner import open_pipes
from ..streams.output_stream import waiting_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..core.loop import Loop
    from ..core.server import Request
    from ..streams.output_stream import OutputStream
    from .shell import LiveShell
    from .shell_command import ShellCommand

_CHANNELS = (wire.STDOUT, wire.STDERR)


class BackgroundOutput:
    """Output of earlier commands' children: a stream of the session itself."""

    def __init__(self, request: "Request") -> None:
        self._loop = request.client.server.loop
        self._outlets = {channel: request.open_output(channel) for channel in (wire.STDOUT, wire.STDERR)}

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
        read()  # if no writer has it open any more, no event would follow


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
