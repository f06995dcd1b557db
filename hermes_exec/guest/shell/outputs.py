"""The pipes of a live shell, and the output that outlives the command it belongs to.

A command's output is read to the moment of its status, never to the end of the pipe, so a child that
holds the pipe blocks nobody. What such a child writes later arrives on the old pipe, apart from the next
command's output, because the shell is given new pipes before that.
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
    """Output that earlier commands' children still write: a stream of the session itself."""

    def __init__(self, request: "Request") -> None:
        self._loop = request.client.server.loop
        self._outlets = {channel: request.open_output(channel) for channel in (wire.STDOUT, wire.STDERR)}

    def adopt(self, fd: int, channel: int) -> None:
        """Read ``fd`` to its end, and close it then."""
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
        read()  # where nobody has it open any more, no event would tell


class OutputTap:
    """The read end of one of the shell's outputs. A command gets a stream only once there is something to read.

    It stays watched from one command to the next: most commands say nothing on one of the two, and to begin and
    end watching costs more than they do.
    """

    def __init__(self, loop: "Loop", fd: int, channel: int) -> None:
        self.fd = fd
        self.channel = channel
        self.outlet: "OutputStream | None" = None
        self._loop = loop
        self._watched = False
        self._command: "ShellCommand | None" = None

    def connect(self, command: "ShellCommand") -> None:
        """What comes from now on is this command's."""
        self._command = command
        if not self._watched:
            self._watched = True
            self._loop.on_read(self.fd, self._readable)

    def disconnect(self) -> None:
        """Read nothing until the next command."""
        self._command = None
        if self.outlet is not None:
            self.outlet.release()
            self.outlet = None

    def look(self) -> None:
        """Open the command's stream if something waits."""
        if self.outlet is None and waiting_bytes(self.fd):
            self._open()

    def unwatch(self) -> None:
        """Leave the descriptor to somebody else."""
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
        if self._command is not None:  # else an earlier command left what says this: it waits
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
        """New pipes for a new shell; gives the ends that the shell writes to."""
        (out, out_end), (err, err_end) = open_pipes(2)
        self.taps = [self._tap(fd, channel) for fd, channel in zip((out, err), _CHANNELS)]
        self._text = b""
        return [out_end, err_end]

    def _tap(self, fd: int, channel: int) -> OutputTap:
        os.set_blocking(fd, False)
        return OutputTap(self._loop, fd, channel)

    def retire(self) -> None:
        """From now on these pipes carry only what earlier commands' children write."""
        for tap in self.taps:
            self._retire(tap)
        self.taps = []

    def _retire(self, tap: OutputTap) -> None:
        tap.unwatch()
        self._background.adopt(tap.fd, tap.channel)

    def renew(self, shell: "LiveShell") -> str:
        """Something is left in the background: give the next command pipes of its own; else a note says why not.

        Not where the user has sent the shell's output elsewhere by ``exec``.
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
        """A note when the shell's own output goes, or is closed, where nobody here sees it; else empty."""
        gone = [name for name, tap in zip(("output", "error"), self.taps) if not shell.writes_to(tap.channel, tap.fd)]
        return "the shell's standard {} now goes elsewhere".format(" and ".join(gone)) if gone else ""

    @property
    def switch_text(self) -> bytes:
        """The text with which the shell takes the new pipes; empty when it has them."""
        return self._text

    def on_switched(self) -> None:
        """The shell was given that text."""
        self._text = b""
