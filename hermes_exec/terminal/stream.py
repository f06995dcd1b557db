"""A command whose output is streamed."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from hermes_exec._arguments import check_calls
from hermes_exec.errors import Closed, UsageError
from hermes_exec.guest.core.wire import STDOUT, WINDOW
from hermes_exec.result import Event, Result
from hermes_exec.terminal import requests
from hermes_exec.terminal.encoding import encode_data, encode_input

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from hermes_exec.terminal.encoding import Argument
    from hermes_exec.terminal.requests import CommandRecord, CommandSettings, TerminalContext
    from hermes_exec.transport.protocol import RunningCommand


@check_calls
class Stream:
    """A command that runs for the length of an ``async with``; iterate over it for its events.

    The last event is ``exit``, with a result without output, which the events had. A slow reader makes the
    command wait. Leaving the block by its end, ``break``, an error or cancellation ends the command.

    Only a block is guaranteed to be left: a loop alone drops its iterator on ``break``, and an error keeps it in the
    traceback. So outside of a block every method but ``close`` raises UsageError, and nothing runs.
    """

    def __init__(
        self,
        context: TerminalContext,
        operation: str,
        fields: dict[str, Any],
        command: Argument | Sequence[Argument],
        options: CommandSettings,
        session: str,
    ) -> None:
        self._context = context
        self._operation = operation
        self._fields = fields
        self._command = command
        self._options = options
        self._session = session
        self._call: RunningCommand | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._feeding: asyncio.Task[None] | None = None
        self._events: deque[tuple[int, bytes]] = deque()
        self._news = asyncio.Event()
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._ended = False
        self._record: CommandRecord | None = None
        self._totals = [0, 0, 0]

    def __repr__(self) -> str:
        """Return its target and its state."""
        state = "ended" if self._ended else "not started" if self._call is None else "running"
        return f"<Stream in {self._context.target}, {state}>"

    def _start(self) -> None:
        if self._call is not None:
            return
        if self._context.closed:
            raise Closed("the terminal is closed")
        stdin = encode_input(self._options.stdin)
        self._call = self._context.carrier.start(self._operation, self._fields, self)
        self._record = requests.record_start(self._context, self._call, self._command, self._options, self._session)
        self._waiting = asyncio.get_running_loop().create_task(self._wait(self._call))
        if stdin is not None:  # concurrently with reading, else both could wait for each other
            self._feeding = asyncio.get_running_loop().create_task(requests.send_input(self._call, stdin))

    def _require_call(self) -> RunningCommand:
        """Return the request; raise UsageError outside of a block, which would end the command."""
        if self._call is None:
            raise UsageError(
                "a stream runs its command only inside of a with block; nothing ran",
                remedy="[async] with terminal.stream(…) as events: [async] for event in events: …",
            )
        return self._call

    async def _wait(self, call: RunningCommand) -> None:
        try:
            answer = await call.result()
            self._result = requests.parse_result(answer, self._command, None)
            if self._record is not None:
                self._record.record_end(self._result, *self._totals[STDOUT:])
        except BaseException as error:
            self._error = error  # raised by the iteration and by ``result``
            if self._record is not None:
                self._record.record_failure(error, *self._totals[STDOUT:])
            if not isinstance(error, Exception):
                raise
        finally:
            if self._feeding is not None:
                self._feeding.cancel()
            self._notify()

    def feed(self, _: RunningCommand, channel: int, data: bytes, /) -> None:
        """Receive bytes from the transport; they are acknowledged when they are read."""
        self._totals[channel] += len(data)
        self._events.append((channel, data))
        self._notify()

    def _notify(self) -> None:
        self._news.set()

    def __aiter__(self) -> Self:
        """The events."""
        return self

    async def __anext__(self) -> Event:
        """Return the next event."""
        call = self._require_call()
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            if self._result is not None:
                self._ended = True
                return Event("exit", result=self._result)
            self._news.clear()
            await self._news.wait()
        channel, data = self._events.popleft()
        call.acknowledge(channel, len(data))
        return Event("stdout" if channel == STDOUT else "stderr", data)

    async def write(self, data: bytes | str) -> None:
        """Send standard input; needs ``interactive=True``. Waits while the command does not read."""
        call = self._require_call()
        if not self._options.interactive:
            raise UsageError("the stream was not opened for input", remedy="stream(…, interactive=True)")
        await call.write(encode_data(data))

    async def close_stdin(self) -> None:
        """Close standard input."""
        self._require_call().write_eof()

    async def cancel(self) -> Result:
        """End the command and all its processes. The newest unread output can still be read.

        Unread output beyond the flow-control window (4 MiB a stream) is dropped, oldest first, because a
        command blocked on its output could not end.
        """
        self._require_call().cancel()
        return await self._end(keep=WINDOW // 2)

    async def result(self) -> Result:
        """Wait for the end, dropping unread output."""
        self._require_call()
        return await self._end(keep=0)

    async def _end(self, *, keep: int) -> Result:
        """Wait for the end; unread output beyond ``keep`` bytes is dropped, so that the command can end."""
        while self._result is None and self._error is None:
            self._news.clear()
            while self._call is not None and sum(len(data) for _, data in self._events) > keep:
                channel, data = self._events.popleft()
                self._call.acknowledge(channel, len(data))
            await self._news.wait()
        if self._result is None:
            raise self._error or Closed("the stream was closed")
        return self._result

    async def close(self) -> None:
        """End the command if it still runs."""
        if self._call is not None and self._result is None and self._error is None:
            await self.cancel()

    async def __aenter__(self) -> Self:
        """Start the command."""
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the command if it still runs."""
        await self.close()
