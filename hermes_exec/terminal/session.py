"""A session: one live shell in the target, whose directory, variables, functions and options persist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, Unpack

from hermes_exec._arguments import check_calls
from hermes_exec.errors import Closed
from hermes_exec.guest.core.wire import STDERR, STDOUT
from hermes_exec.terminal import requests
from hermes_exec.terminal.encoding import encode
from hermes_exec.terminal.stream import Stream

if TYPE_CHECKING:
    from types import TracebackType

    from hermes_exec.result import Result
    from hermes_exec.terminal.encoding import Argument
    from hermes_exec.terminal.requests import CommandSettings, RunOptions, StreamOptions, TerminalContext
    from hermes_exec.transport.protocol import RunningCommand

BACKGROUND_CAP = 1 << 20
"""Bytes of late output that are kept; the oldest are dropped first."""


class LateOutput:
    """The sink for output that children of earlier commands still write."""

    def __init__(self) -> None:
        self.dropped = 0
        self._kept = {STDOUT: bytearray(), STDERR: bytearray()}

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        """Keep the newest bytes."""
        kept = self._kept[channel]
        kept += data
        if len(kept) > BACKGROUND_CAP:
            self.dropped += len(kept) - BACKGROUND_CAP
            del kept[: len(kept) - BACKGROUND_CAP]
        call.acknowledge(channel, len(data))

    def take(self, channel: int) -> bytes:
        """Return and clear the bytes since the last call."""
        data = bytes(self._kept[channel])
        self._kept[channel].clear()
        return data


@check_calls
class Session:
    """A live shell. Its commands run one after another, in the order of the calls.

    Sessions are independent of each other. After ``exit`` or a crash of its shell a session continues in
    a new shell; ``Result.shell`` says with which state.
    """

    def __init__(self, context: TerminalContext, fields: dict[str, Any], name: str) -> None:
        self.name = name
        self._context = context
        self._background = LateOutput()
        self._call = context.carrier.start("session", fields, self._background)
        self._closed = False

    def __repr__(self) -> str:
        """Return its name and its target."""
        closed = ", closed" if self._closed or self._context.closed else ""
        return f"<Session {self.name} in {self._context.target}{closed}>"

    async def run(self, command: Argument, **options: Unpack[RunOptions]) -> Result:
        """Run a command in this shell to its end. The options are those of ``Terminal.run``.

        With ``env``, ``cwd`` or ``limits`` it runs in a subshell: it sees the session's state and
        changes none of it.
        """
        chosen = requests.choose_options(options)
        return await requests.run_command(
            self._context, "run", self._fields(command, chosen), command, chosen, self.name
        )

    def stream(self, command: Argument, **options: Unpack[StreamOptions]) -> Stream:
        """Run a command in this shell and yield its output as it arrives; see ``Terminal.stream``."""
        chosen = requests.choose_options(options)
        return Stream(self._context, "run", self._fields(command, chosen), command, chosen, self.name)

    def _fields(self, command: Argument, options: CommandSettings) -> dict[str, Any]:
        if self._closed or self._context.closed:
            raise Closed("the session is closed")
        fields = requests.build_fields(self._context, options)
        fields["session"] = self._call.number
        fields["command"] = encode(command)
        return fields

    def background_output(self) -> tuple[bytes, bytes]:
        """Return the standard output and error that children of earlier commands wrote since the last call.

        It never mixes with a later command's output. The newest 1 MiB of each is kept.
        """
        return self._background.take(STDOUT), self._background.take(STDERR)

    async def close(self) -> None:
        """End the shell and all processes that its commands left running. Safe to call twice.

        When the target is out of reach, it returns once that is noticed; the shell is ended as soon as the target is
        reached again.
        """
        if not self._closed and not self._context.closed:
            self._closed = True
            call = self._context.carrier.start("close", {"session": self._call.number}, self._background)
            await call.settle()

    async def __aenter__(self) -> Self:
        """The session itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()
