"""The pipes of a live shell, and the output that outlives the command it belongs to.

A command's output is read to the moment of its status, never to the end of the pipe, so a child that
holds the pipe blocks nobody. What such a child writes later arrives on the old pipe, apart from the next
command's output, because the shell is given new pipes before that.
"""

import os

from . import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .client import Request
    from .shell import Shell

_CHANNELS = (wire.STDOUT, wire.STDERR)


class Background:
    """Output that earlier commands' children still write: a stream of the session itself."""

    def __init__(self, request: "Request") -> None:
        self._loop = request.client.server.loop
        self._outlets = {channel: request.outlet(channel) for channel in (wire.STDOUT, wire.STDERR)}

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


class Outputs:
    """The read ends of the shell's standard output and error."""

    def __init__(self, request: "Request") -> None:
        self.fds: "list[int]" = []
        self._background = Background(request)
        self._text = b""

    def open(self) -> "list[int]":
        """New pipes for a new shell; gives the ends that the shell writes to."""
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self.fds = [out, err]
        for fd in self.fds:
            os.set_blocking(fd, False)
        self._text = b""
        return [out_end, err_end]

    def retire(self) -> None:
        """From now on these pipes carry only what earlier commands' children write."""
        for fd, channel in zip(self.fds, _CHANNELS):
            self._background.adopt(fd, channel)
        self.fds = []

    def renew(self, shell: "Shell") -> None:
        """Something is left in the background: give the next command pipes of its own.

        Not where the user has sent the shell's output elsewhere by ``exec``.
        """
        if self._text:
            return
        redirects = b""
        for index, channel in enumerate(_CHANNELS):
            if shell.writes_to(channel, self.fds[index]):
                self._background.adopt(self.fds[index], channel)
                self.fds[index], redirect = shell.new_pipe(channel)
                redirects += redirect
        if redirects:
            self._text = b"\\exec" + redirects + b";"

    def away(self, shell: "Shell") -> str:
        """A note when the shell's own output goes, or is closed, where nobody here sees it; else empty."""
        gone = [
            name
            for name, fd, channel in zip(("output", "error"), self.fds, _CHANNELS)
            if not shell.writes_to(channel, fd)
        ]
        return "the shell's standard {} now goes elsewhere".format(" and ".join(gone)) if gone else ""

    def switch(self) -> bytes:
        """The text with which the shell takes the new pipes, once."""
        text = self._text
        self._text = b""
        return text
