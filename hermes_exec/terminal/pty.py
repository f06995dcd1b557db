"""Interactive programs in a place: a PTY, seen from here."""

from __future__ import annotations

import asyncio
import os
import signal as signals
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from hermes_exec.errors import Closed, HermesError, UsageError
from hermes_exec.terminal import guest_records, requests
from hermes_exec.terminal.encoding import encode, encode_env, encode_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from hermes_exec.result import Result
    from hermes_exec.terminal.encoding import Words
    from hermes_exec.terminal.requests import Account
    from hermes_exec.transport.call import Call
    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import Running

_LOGIN_SHELL = ("the login shell",)
_LARGEST = 0xFFFF


class Pty:
    """A program on a pseudo-terminal. Made by ``Terminal.pty`` and ``Terminal.attach``.

    Iterate over it, or ``read``, for what it shows. Whoever reads slowly makes the program wait, once some
    megabytes are on their way. Leaving ``async with`` closes it, unless it was detached.
    """

    def __init__(
        self,
        link: Link,
        name: str,
        command: Sequence[Words],
        size: tuple[int, int],
        account: Account | None = None,
    ) -> None:
        self.name = name
        """What ``attach`` finds it by, from every client of the same guest."""
        self._link = link
        self._command = command
        self._shown: deque[bytes] = deque()
        self._wake: asyncio.Event = asyncio.Event()
        self._dropping = False
        self._bytes = 0
        self._account = account
        fields = {"name": name, "rows": size[0], "cols": size[1]}
        self._call: Call = link.call("pty.attach", fields, self)
        self._call.answer.add_done_callback(self._ended)

    def feed(self, call: Running, channel: int, data: bytes, /) -> None:
        """Take bytes from the link; they are used up when they are read."""
        self._bytes += len(data)
        if self._dropping:
            call.consumed(channel, len(data))
        else:
            self._shown.append(data)
            self._wake.set()

    async def read(self) -> bytes:
        """Give what the program has shown, or wait for more; empty once it has ended and all was read.

        Raises:
            OutcomeUnknown: the place was lost, and with it the program.
        """
        while not self._shown:
            if self._call.answer.done():
                self._call.answer.result()
                return b""
            self._wake.clear()
            await self._wake.wait()
        data = self._shown.popleft()
        self._call.consumed(1, len(data))
        return data

    def __aiter__(self) -> Self:
        """What the program shows, piece by piece."""
        return self

    async def __anext__(self) -> bytes:
        """The next piece."""
        data = await self.read()
        if not data:
            raise StopAsyncIteration
        return data

    async def write(self, data: bytes | str) -> None:
        r"""Type; ``"\x03"`` is Ctrl-C, ``"\x04"`` Ctrl-D. Waits while the program does not read.

        What is typed after the program's end is dropped.
        """
        await self._call.write(data.encode() if isinstance(data, str) else data)

    async def close_stdin(self) -> None:
        """End the input: Ctrl-D is typed whenever all before it was read, until the program ends."""
        self._call.write_eof()

    async def resize(self, rows: int, cols: int) -> None:
        """Give the terminal another size, and tell the program. The size is one for all who look at it."""
        check_size(rows, cols)
        await self._control("resize", rows=rows, cols=cols)

    async def signal(self, name: str | signals.Signals) -> None:
        """Signal what runs in the foreground, as ``"INT"``; the place's own number is looked up there.

        Raises:
            PlaceError: nothing runs in the foreground, or it is another user's; nothing was signalled.
        """
        word = name.name if isinstance(name, signals.Signals) else name.upper()
        word = word.removeprefix("SIG")
        if not hasattr(signals.Signals, "SIG" + word):
            raise UsageError(f"no signal {name!r}", remedy="a name such as INT, TERM or HUP")
        await self._control("signal", signal=word)

    async def _control(self, operation: str, **fields: object) -> dict[str, Any]:
        if self._call.answer.done():
            raise Closed(f"{self.name} has ended, or was detached")
        answer = await self._link.request("pty." + operation, {"name": self.name, **fields})
        if "error" in answer:
            raise requests.error_of(answer, (f"{operation} of {self.name}",))
        return answer

    async def wait(self) -> Result:
        """Wait for the program's end; somebody has to read meanwhile. Cancelling the wait ends nothing.

        Raises:
            Closed: it was detached, so its end will not be told here.
            OutcomeUnknown: the place was lost, and with it the program.
        """
        answer = await asyncio.shield(self._call.answer)
        if answer.get("detached"):
            raise Closed(f"{self.name} was detached", remedy="attach to it again", state="it goes on")
        await guest_records.forget_guest(self._link)
        return requests.result_of(answer, self._command, None)

    async def detach(self) -> None:
        """Look away: the program goes on until the terminal closes, or longer where it is kept."""
        self._drop()
        self._call.cancel()
        await asyncio.shield(self._call.answer)

    async def close(self) -> None:
        """Hang up and end everything that runs in it; returns when it is gone. Safe to call twice.

        Where the place is out of reach it returns as well, and it is ended as soon as the place is reached.
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
            self._call.consumed(1, len(self._shown.popleft()))

    async def __aenter__(self) -> Self:
        """The PTY itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it, unless it was detached or its place is lost."""
        try:
            await self.close()
        except HermesError:
            if error is None:
                raise

    def _ended(self, answer: asyncio.Future[dict[str, Any]]) -> None:
        """Tell of its end, unless it was detached from: then it goes on unseen."""
        self._wake.set()
        if self._account is None:
            return
        try:
            if not answer.result().get("detached"):
                self._account.ended(requests.result_of(answer.result(), self._command, None), self._bytes, 0)
        except (HermesError, asyncio.CancelledError) as error:
            self._account.failed(error, self._bytes, 0)

    async def answered(self) -> None:
        """Return once the guest has looked at the request to attach; raises what it has against it."""
        await self._link.request("pty.list", {})
        if self._call.answer.done() and self._call.answer.result().get("error") == "closed":
            raise requests.error_of(self._call.answer.result(), (self.name,))


async def link_pty(  # noqa: PLR0913  the options of a program on a terminal are many
    link: Link,
    argv: Sequence[Words] | None = None,
    *,
    rows: int = 24,
    cols: int = 80,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    name: str = "",
    keep_s: float = 0.0,
    account: Account | None = None,
) -> Pty:
    """Start a program on a new PTY; returns once it runs.

    Args:
        link: the way to the guest.
        argv: the program and its arguments; the user's login shell, if left out.
        rows: height in lines.
        cols: width in characters.
        env: variables for it; ``TERM`` says what kind of terminal will show it.
        cwd: its folder.
        name: what others attach by; a random one, if left out.
        keep_s: seconds that it lives on with nobody attached, its client's end included, and that its
            exit status waits for somebody to ask; 0: it ends with its client.
        account: what shall be told of its end.

    Raises:
        UsageError: no such folder, or an impossible size; nothing ran.
        PlaceError: there is a PTY of that name, or the place cannot make one; nothing ran.
    """
    check_size(rows, cols)
    link.need("pty")
    name = name or (guest_records.new_id() if keep_s else f"pty-{os.urandom(4).hex()}")
    fields: dict[str, Any] = {"name": name, "rows": rows, "cols": cols, "keep_s": float(keep_s)}
    if argv is not None:
        fields["argv"] = encode_words(argv)
    if env:
        fields["env"] = encode_env(env)
    if cwd is not None:
        fields["cwd"] = encode(cwd)
    command = argv or _LOGIN_SHELL
    start = link.call("pty", fields)
    pty = Pty(link, name, command, (0, 0), account)
    try:
        answer = await asyncio.shield(start.answer)
    except asyncio.CancelledError:
        link.call("pty.close", {"name": name})
        raise
    if answer.get("error", "program") != "program":
        await pty.detach()  # it may have found another one of that name
        await guest_records.forget_guest(link)
        raise requests.error_of(answer, command)
    return pty


async def attach_pty(link: Link, name: str, *, rows: int = 0, cols: int = 0) -> Pty:
    """Look at a PTY that a client of the same guest has started: what it showed of late comes first.

    Any number may look, each sees all and may type. ``rows`` and ``cols`` of 0 leave the size alone.

    Raises:
        Closed: there is no PTY of that name.
    """
    link.need("pty")
    pty = Pty(link, name, (name,), (rows, cols))
    await pty.answered()
    return pty


async def close_pty(link: Link, name: str) -> None:
    """Hang up a PTY that somebody else has started, and end all that runs in it.

    Raises:
        Closed: there is no PTY of that name.
    """
    answer = await link.request("pty.close", {"name": name})
    if "error" in answer:
        raise requests.error_of(answer, (name,))
    await guest_records.forget_guest(link)


def check_size(rows: int, cols: int) -> None:
    """Refuse a size that no terminal can have."""
    if not (0 < rows <= _LARGEST and 0 < cols <= _LARGEST):
        raise UsageError(f"a terminal of {rows} rows and {cols} columns", remedy="1 to 65535 of each")
