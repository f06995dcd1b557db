"""File operations as requests over the link: their encoding, their output streams and their errors."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import ProtocolError, UsageError
from hermes_exec.files import errors
from hermes_exec.guest.core.wire import STDOUT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from hermes_exec.backend import BulkTransfer
    from hermes_exec.transport.call import GuestCall
    from hermes_exec.transport.link import Link
    from hermes_exec.transport.protocol import RunningCommand, Sink

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_WORTH_A_STEP = 1 << 20
"""Bytes to hand to another thread at once; far below the window, so that the guest never waits for it."""


def encode_path(path: Path, name: str = "path") -> bytes:
    """Return the bytes of the parameter ``name``; raise UsageError for a path that no system accepts."""
    try:
        data = os.fsencode(path)
    except TypeError:
        raise UsageError(f"{name}: a value of the type {type(path).__name__} is not a path", remedy="str(…)") from None
    if not data or b"\0" in data:
        raise UsageError(f"{name}: {os.fsdecode(data)!r} is not a path")
    return data


def validate_content(data: Any) -> None:
    """Raise UsageError for content that is not bytes; text is refused, since files have no encoding of their own."""
    try:
        memoryview(data)
    except TypeError:
        raise UsageError(f"data: a {type(data).__name__} is not bytes", remedy="text.encode()") from None


class ReceiveBuffer:
    """A sink that keeps output until it is taken."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._wanted = 1
        self._waiting: asyncio.Future[None] | None = None
        self._over = False

    def feed(self, _call: RunningCommand, _channel: int, data: bytes, /) -> None:
        """Add bytes; they count as consumed once the caller has taken them."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size >= self._wanted:
            self._wake()

    def push_back(self, data: bytes) -> None:
        """Put back bytes that were taken too early; the next ``take`` returns them first."""
        if data:
            self._pieces.insert(0, data)
            self._size += len(data)

    def end(self) -> None:
        """Mark the end of the output."""
        self._over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def take(self, least: int = 1) -> list[bytes]:
        """Return the output since the last call, at least ``least`` bytes; less, or an empty list, only at the end."""
        self._wanted = least
        while self._size < least and not self._over:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        pieces, self._pieces = self._pieces, []
        self._size = 0
        return pieces


class FileStream:
    """A request whose output is read piece by piece, and whose input is written."""

    def __init__(self, call: GuestCall, incoming: ReceiveBuffer) -> None:
        self.call = call
        self._incoming = incoming
        call.answer.add_done_callback(lambda _: incoming.end())

    @property
    def is_answered(self) -> bool:
        """Whether the guest has answered, so that it takes no more input."""
        return self.call.answer.done()

    async def take(self) -> bytes:
        """Return the output since the last call, once there is some; empty at the end."""
        data = b"".join(await self._incoming.take())
        self.call.acknowledge(STDOUT, len(data))
        return data

    async def read_head(self, size: int) -> bytes:
        """Return the first ``size`` bytes and all that arrived with them; fewer when the output ended before."""
        data = b""
        while len(data) < size and (more := await self.take()):
            data += more
        return data

    async def read_exactly(self, size: int) -> bytes:
        """Return the next ``size`` bytes and leave the rest; fewer when the output ended before."""
        data = b"".join(await self._incoming.take(size))
        self._incoming.push_back(data[size:])
        self.call.acknowledge(STDOUT, len(data[:size]))
        return data[:size]

    async def read_all(self, most: int | None = None) -> bytes:
        """Return the whole output; raise ProtocolError for more than ``most`` bytes."""
        pieces: list[bytes] = []
        size = 0
        while data := await self.take():
            pieces.append(data)
            size += len(data)
            if most is not None and size > most:
                raise ProtocolError(f"the guest sent more than {most} bytes")
        return b"".join(pieces)

    async def consume_with(self, use: Callable[[list[bytes]], Awaitable[object]]) -> None:
        """Pass the output to ``use`` as it arrives; the guest waits meanwhile."""
        while pieces := await self._incoming.take(_WORTH_A_STEP):
            await use(pieces)
            self.call.acknowledge(STDOUT, sum(map(len, pieces)))


class FileRequests:
    """Sends file operations; relative paths start at ``cwd``, or else at the terminal's folder."""

    def __init__(self, link: Link, cwd: str | None) -> None:
        self._link = link
        self._cwd = b"" if cwd is None else os.fsencode(cwd)

    @property
    def shares_host(self) -> bool:
        """Whether open files can be handed off to the guest, and by it."""
        return self._link.shares_host

    def should_verify(self, wanted: bool | None) -> bool:  # noqa: FBT001  it is the option, as it was given
        """Return whether to compare hashes; by default (None), unless the transport authenticates each packet."""
        return not self._link.authenticated if wanted is None else wanted

    @property
    def bulk_transfer(self) -> BulkTransfer | None:
        """The backend's bulk transfer, if it has one."""
        return self._link.bulk_transfer

    @contextlib.asynccontextmanager
    async def stream(self, operation: str, path: Path, /, **arguments: Any) -> AsyncGenerator[FileStream]:
        """Run an operation with streams; on an exception, end the operation and wait for its end."""
        incoming = ReceiveBuffer()
        stream = FileStream(self.start(operation, {"path": encode_path(path), **arguments}, incoming), incoming)
        try:
            yield stream
        except BaseException:
            stream.call.discard()
            await stream.call.end()
            raise

    def start(self, operation: str, arguments: Mapping[str, Any], sink: Sink | None = None) -> GuestCall:
        """Start an operation whose output goes to ``sink``."""
        self._link.load_part("files")
        return self._link.call("file", {"do": operation, "cwd": self._cwd, **arguments}, sink)

    async def request(self, operation: str, what: str, path: Path, /, **arguments: Any) -> dict[str, Any]:
        """Run a small operation; ``what`` is the error's beginning, such as ``cannot read``."""
        call = self.start(operation, {"path": encode_path(path), **arguments})
        answer = await call.result()
        errors.raise_for_answer(answer, what, os.fsdecode(path))
        return answer


def require_field(answer: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    """Return one field of an answer, which is untrusted."""
    value = answer.get(name)
    if not isinstance(value, kind):
        raise ProtocolError(f"the guest's answer has no {name}")
    return value
