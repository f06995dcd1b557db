"""Interactive programs: this side of a pseudo-terminal in a target."""

from __future__ import annotations

import asyncio
import math
import os
import signal as signals
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from hermes_exec._arguments import check_calls
from hermes_exec.errors import Closed, HermesError, UsageError
from hermes_exec.terminal import guest_records, requests
from hermes_exec.terminal.encoding import (
    encode,
    encode_argv,
    encode_data,
    encode_env,
    validate_count,
    validate_name,
    validate_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from hermes_exec.result import Result
    from hermes_exec.terminal.encoding import Argument
    from hermes_exec.terminal.requests import CommandRecord
    from hermes_exec.transport.call import GuestCall
    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import RunningCommand

_LOGIN_SHELL = ("the login shell",)
_LARGEST = 0xFFFF


@check_calls
class Pty:
    """A program on a pseudo-terminal. Returned by ``Terminal.pty`` and ``Terminal.attach``.

    Iterate over it, or call ``read``, for its output. A slow reader makes the program wait once some
    megabytes are in transit. Leaving ``async with`` closes it, unless it was detached.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        command: Sequence[Argument],
        size: tuple[int, int],
        account: CommandRecord | None = None,
        offset: int | None = None,
    ) -> None:
        self.name = name
        """The name for ``attach``, valid for every client of the same guest."""
        self._link = link
        self._command = command
        self._shown: deque[bytes] = deque()
        self._wake: asyncio.Event = asyncio.Event()
        self._dropping = False
        self._bytes = 0
        self._account = account
        fields: dict[str, object] = {"name": name, "rows": size[0], "cols": size[1]}
        if offset is not None:
            fields["offset"] = offset
        self._call: GuestCall = link.call("pty.attach", fields, self)
        self._call.answer.add_done_callback(self._on_end)

    def __repr__(self) -> str:
        """Return its name, and whether it has ended."""
        return f"<Pty {self.name}{', ended' if self._call.answer.done() else ''}>"

    def feed(self, call: RunningCommand, channel: int, data: bytes, /) -> None:
        """Receive bytes from the link; they are acknowledged when they are read."""
        self._bytes += len(data)
        if self._dropping:
            call.acknowledge(channel, len(data))
        else:
            self._shown.append(data)
            self._wake.set()

    async def read(self) -> bytes:
        """Return output of the program, waiting for some; empty once it has ended and everything was read.

        Raises:
            OutcomeUnknown: the target was lost, and the program with it.
        """
        while not self._shown:
            if self._call.answer.done():
                self._call.answer.result()
                return b""
            self._wake.clear()
            await self._wake.wait()
        data = self._shown.popleft()
        self._call.acknowledge(1, len(data))
        return data

    def __aiter__(self) -> Self:
        """The output of the program, piece by piece."""
        return self

    async def __anext__(self) -> bytes:
        """Return the next piece."""
        data = await self.read()
        if not data:
            raise StopAsyncIteration
        return data

    async def write(self, data: bytes | str) -> None:
        r"""Send input; ``"\x03"`` is Ctrl-C, ``"\x04"`` Ctrl-D. Waits while the program does not read.

        Input after the end of the program is dropped.
        """
        await self._call.write(encode_data(data))

    async def close_stdin(self) -> None:
        """End the input: Ctrl-D is sent whenever all input was read, until the program ends."""
        self._call.write_eof()

    async def resize(self, rows: int, cols: int) -> None:
        """Change the size of the terminal, and signal the program. All attached clients share one size."""
        validate_size(rows, cols)
        await self._control("resize", rows=rows, cols=cols)

    async def signal(self, name: str | signals.Signals) -> None:
        """Send a signal such as ``"INT"`` to the foreground process group; the target maps the name to its number.

        Raises:
            PlaceError: there is no foreground process, or it belongs to another user; no signal was sent.
        """
        short = name.name if isinstance(name, signals.Signals) else validate_name(name, "name").upper()
        short = short.removeprefix("SIG")
        if not hasattr(signals.Signals, "SIG" + short):
            raise UsageError(f"name: there is no signal {name!r}", remedy="a name such as INT, TERM or HUP")
        await self._control("signal", signal=short)

    async def _control(self, operation: str, **fields: object) -> dict[str, Any]:
        if self._call.answer.done():
            raise Closed(f"{self.name} has ended, or was detached")
        answer = await self._link.request("pty." + operation, {"name": self.name, **fields})
        if "error" in answer:
            raise requests.parse_error(answer, (f"{operation} of {self.name}",))
        return answer

    async def wait(self) -> Result:
        """Wait for the end of the program, while its output is read elsewhere. Cancelling the wait ends nothing.

        Raises:
            Closed: it was detached, so its end is not reported here.
            OutcomeUnknown: the target was lost, and the program with it.
        """
        answer = await asyncio.shield(self._call.answer)
        if answer.get("detached"):
            raise Closed(f"{self.name} was detached", remedy="attach to it again", state="it keeps running")
        await guest_records.forget_guest(self._link)
        return requests.parse_result(answer, self._command, None)

    async def detach(self) -> None:
        """Detach: the program keeps running until the terminal closes, or for ``keep_s`` longer."""
        self._drop()
        self._call.cancel()
        await asyncio.shield(self._call.answer)

    async def close(self) -> None:
        """Hang up and end all its processes; return when they are gone. Safe to call twice.

        When the target is out of reach it returns too; the processes are ended as soon as the target is reached again.
        """
        self._drop()
        if not self._call.answer.done():
            closing = self._link.call("pty.close", {"name": self.name})
            await closing.settle()
            if closing.answer.done():
                await asyncio.shield(self._call.answer)
                await guest_records.forget_guest(self._link)

    def _drop(self) -> None:
        self._dropping = True
        while self._shown:
            self._call.acknowledge(1, len(self._shown.popleft()))

    async def __aenter__(self) -> Self:
        """The PTY itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, unless it was detached or its target is lost."""
        try:
            await self.close()
        except HermesError:
            if error is None:
                raise

    def _on_end(self, answer: asyncio.Future[dict[str, Any]]) -> None:
        """Record its end, unless it was detached and keeps running."""
        self._wake.set()
        if self._account is None:
            return
        try:
            if not answer.result().get("detached"):
                self._account.record_end(requests.parse_result(answer.result(), self._command, None), self._bytes, 0)
        except (HermesError, asyncio.CancelledError) as error:
            self._account.record_failure(error, self._bytes, 0)

    async def check_attached(self) -> None:
        """Wait until the guest has handled the request to attach; raise the error if it was refused."""
        await self._link.request("pty.list", {})
        if self._call.answer.done() and self._call.answer.result().get("error") == "closed":
            raise requests.parse_error(self._call.answer.result(), (self.name,))


async def start_pty(  # noqa: PLR0913  the options of a program on a terminal are many
    link: Link,
    argv: Sequence[Argument] | None = None,
    *,
    rows: int = 24,
    cols: int = 80,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    name: str = "",
    keep_s: float = 0.0,
    account: CommandRecord | None = None,
) -> Pty:
    """Start a program on a new PTY; return once it runs.

    Args:
        link: the link to the guest.
        argv: the program and its arguments; by default the user's login shell.
        rows: height in lines.
        cols: width in characters.
        env: its variables; ``TERM`` names the type of the terminal that displays it.
        cwd: its working directory.
        name: the name for ``attach``; a random one by default.
        keep_s: seconds that it keeps running after its last client detached or ended, and that its exit status is
            kept; 0 ends it with its client.
        account: records its end.

    Raises:
        UsageError: no such folder, or an invalid size; nothing ran.
        PlaceError: a PTY of that name exists, or the target cannot create one; nothing ran.
    """
    validate_size(rows, cols)
    validate_name(name, "name")
    link.load_part("pty")
    name = name or (guest_records.new_id() if keep_s else f"pty-{os.urandom(4).hex()}")
    keep_s = validate_seconds(keep_s, "keep_s", math.inf, zero=True)
    fields: dict[str, Any] = {"name": name, "rows": rows, "cols": cols, "keep_s": keep_s}
    if argv is not None:
        fields["argv"] = encode_argv(argv)
    if env:
        fields["env"] = encode_env(env)
    if cwd is not None:
        fields["cwd"] = encode(cwd, "cwd")
    command = argv or _LOGIN_SHELL
    start = link.call("pty", fields)
    pty = Pty(link, name, command, (0, 0), account)
    try:
        answer = await asyncio.shield(start.answer)
    except asyncio.CancelledError:
        link.call("pty.close", {"name": name})
        raise
    if answer.get("error", "program") != "program":
        await pty.detach()  # it may be attached to another one of that name
        await guest_records.forget_guest(link)
        if answer["error"] == "cwd":
            answer["message"] = f"{os.fspath(cwd or '.')}: {answer.get('message')}"
        raise requests.parse_error(answer, command)
    return pty


async def attach_pty(link: Link, name: str, *, rows: int = 0, cols: int = 0, offset: int | None = None) -> Pty:
    """Attach to a PTY that a client of the same guest has started; its recent output is sent first.

    With ``offset``, the number of a byte of `PtyStatus.output`, all output from that byte on is sent as it came.

    Any number of clients may attach; each gets all output and may send input. ``rows`` and ``cols`` of 0 keep the size.

    Raises:
        Closed: there is no PTY of that name, or it does not keep its output from that byte on.
    """
    link.load_part("pty")
    pty = Pty(link, name, (name,), (rows, cols), offset=offset)
    await pty.check_attached()
    return pty


async def close_pty(link: Link, name: str) -> None:
    """Hang up a PTY that another client has started, and end all its processes.

    Raises:
        Closed: there is no PTY of that name.
    """
    answer = await link.request("pty.close", {"name": name})
    if "error" in answer:
        raise requests.parse_error(answer, (name,))
    await guest_records.forget_guest(link)


def validate_size(rows: int, cols: int) -> None:
    """Raise UsageError for an invalid terminal size."""
    if not (0 < validate_count(rows, "rows") <= _LARGEST and 0 < validate_count(cols, "cols") <= _LARGEST):
        raise UsageError(f"a terminal of {rows} rows and {cols} columns", remedy="1 to 65535 of each")
