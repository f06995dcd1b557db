"""One exec of a sandbox as a channel: its streams are the SDK's, always bytes.

After a broken connection the SDK resumes them at their offsets, with retries for some ten seconds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Channel, Exit, Receiver
from hermes_exec_backends.modal.pipes import Pipes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_LOW = 1 << 20
_SIGNALLED = 128


class ExecChannel(Channel):
    """The streams of a process of the SDK; ``death`` returns how its sandbox ended, if it did."""

    def __init__(
        self, process: Any, receiver: Receiver, death: Callable[[], Awaitable[str]], *, bulk: bool = False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._receiver = receiver
        self._death = death
        self._pipes = Pipes(process, self._loop, bulk=bulk)
        self._queued = 0
        self._eof = False
        self._drained = asyncio.Event()
        self._drained.set()
        self._told = False
        self._concluding: asyncio.Task[None] | None = None
        self.over = asyncio.Event()
        """Set once all of its work has ended, its last messages included."""
        self._pipes.start(self._handle_data, self._update_drained, self._handle_end)

    def _handle_data(self, number: int, data: bytes) -> None:
        if not self._told:
            (self._receiver.on_data if number == 1 else self._receiver.on_stderr)(data)

    def _update_drained(self) -> None:
        if self.unsent <= _LOW:
            self._drained.set()

    def _handle_end(self, code: int | None, broken: Exception | None) -> None:
        self.over.set()
        if not self._told:
            self._concluding = self._loop.create_task(self._conclude(code, broken))

    async def _conclude(self, code: int | None, broken: Exception | None) -> None:
        # Ending a sandbox kills its processes, which looks the same as a signal of the exec's own.
        doubtful = code is None or code < 0 or code >= _SIGNALLED
        why = await self._why(broken) if doubtful else ""
        # The SDK reports a signal as 128 + N, as shells do, so it cannot be distinguished from an exit code.
        self._tell(Exit(lost=why) if why or code is None else Exit(code=code))

    async def _why(self, broken: Exception | None) -> str:
        try:
            why = await self._death()
        except Exception as unknown:  # noqa: BLE001  the reason is unknown then
            why = str(unknown)
        return why or (f"the connection to the sandbox broke: {broken}" if broken is not None else "")

    def write(self, *parts: bytes | memoryview) -> None:
        """Queue bytes for standard input."""
        if self._eof or self._told:
            return
        self._queued += sum(map(len, parts))
        if self.unsent > _LOW:
            self._drained.clear()
        self._pipes.queue(*parts)

    def write_eof(self) -> None:
        """Close standard input after what is queued."""
        if not (self._eof or self._told):
            self._eof = True
            self._pipes.end_input()

    @property
    def unsent(self) -> int:
        """Return the number of bytes that the worker has not taken."""
        return 0 if self._told else self._queued - self._pipes.sent

    async def drain(self) -> None:
        """Wait until at most 1 MiB is queued, or the channel has ended."""
        await self._drained.wait()

    def pause(self) -> None:
        """Stop taking output from the SDK; the worker then stops the producer, or stores its output."""
        self._pipes.flow(on=False)

    def resume(self) -> None:
        """Continue taking output."""
        self._pipes.flow(on=True)

    def abandon(self) -> None:
        """Release the streams. The input is closed later, as by a broken connection."""
        if not self._told:
            self._pipes.end_input(drop=True)
            self._pipes.stop()
            self._tell(Exit(lost="the channel was closed here"))

    def kill(self) -> None:
        """Release the streams; the vendor cannot end an exec, so the program ends with its input or its sandbox."""
        self.abandon()

    def _tell(self, exit: Exit) -> None:
        if not self._told:
            self._told = True
            self._drained.set()
            self._receiver.on_close(exit)
