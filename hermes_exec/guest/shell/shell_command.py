"""One command of a session."""

import os

from ..process.command import CommandRequest, drain_all
from . import shell_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..core.server import Request
    from ..streams.output_stream import OutputStream
    from .outputs import OutputTap
    from .session import ShellSession
    from .shell import LiveShell


class ShellCommand(CommandRequest):
    """One command of a session."""

    def __init__(self, session: "ShellSession", request: "Request", arguments: "dict[str, Any]") -> None:
        super().__init__(request, arguments)
        self._session = session
        self.text: bytes = arguments["command"]
        self._stdin_keeper = -1
        self.bad_folder = False
        self.over = False
        self._taps: "list[OutputTap]" = []
        if b"\0" in self.text:
            raise ValueError("a command cannot hold a NUL byte")
        if arguments.get("stdin"):
            request.expect_input()
        session.submit(self)

    def kill(self) -> None:
        """Kill the processes of the command; one that is still queued never runs."""
        self._session.stop(self)

    @property
    def stopping(self) -> bool:
        """Whether it timed out or was cancelled."""
        return "timed_out" in self.answer or "cancelled" in self.answer

    def wrap(self, dialect: shell_text.ShellDialect) -> bytes:
        """Return the shell text around the command that its options require."""
        arguments = self.arguments
        wrap = dialect.redirect(bool(arguments.get("stdin")), bool(arguments.get("merge")))
        if arguments.get("cwd") is not None or arguments.get("env") or self.confined is not None:
            limits = b"" if self.confined is None else self.confined.text(dialect.bash, self._session.folder)
            wrap = dialect.subshell(wrap, arguments.get("cwd"), arguments.get("env") or {}, limits)
        return wrap

    def rewind(self) -> None:
        """Release what was prepared for a command that has not begun and will be run again."""
        for tap in self._taps:
            tap.disconnect()
        if self.arguments.get("stdin"):
            self._stdin_opened()
            self._stdin_keeper = os.open(self._session.folder + "/s/stdin", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def _open_stdin(self, folder: str) -> None:
        """Create a FIFO that the shell opens by name; our end stays open until then, as a reader needs a writer."""
        path = folder + "/fifo"
        os.mkfifo(path, 0o600)
        self._stdin_keeper = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if self.request.input is not None:
            self.request.input.write_to(writer)
        os.rename(path, folder + "/s/stdin")  # watched from here on: only the opening by the shell is seen

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
        """Answer that the command did not run because its folder does not exist."""
        message = "{}: no such folder".format(os.fsdecode(self.arguments["cwd"]))
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
                self._open_stdin(self._session.folder)
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
                os.unlink(self._session.folder + "/s/stdin")
            except FileNotFoundError:
                pass
        if shell is not None and self.arguments.get("stdin"):
            shell.watch_stdin(False)
