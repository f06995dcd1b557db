"""One exec of a sandbox as a channel: its streams are the SDK's, always bytes.

The SDK resumes them at their offsets when a connection breaks, and tries for some ten seconds. How an exec ended is
asked with a limit, because the SDK would wait for ever for a worker that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Channel, Exit, Receiver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_LOW = 1 << 20
_BATCH = 4 << 20
"""Bytes of one request; the SDK refuses more than 16 MiB."""
_WAIT_S = 15.0
_SIGNALLED = 128


class ExecChannel(Channel):
    """The streams of a process of the SDK.

    ``death`` tells why it is lost, if its sandbox has ended; ``farewells`` holds what goes on after the channel.
    """

    def __init__(
        self,
        process: Any,
        receiver: Receiver,
        death: Callable[[], Awaitable[str]],
        farewells: set[asyncio.Task[None]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._receiver = receiver
        self._death = death
        self._farewells = farewells
        self._queue: deque[bytes | memoryview] = deque()
        self._unsent = 0
        self._eof = False
        self._drained = asyncio.Event()
        self._drained.set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._told = False
        self._writing: asyncio.Task[None] | None = None
        self._reading = self._loop.create_task(self._read())

    async def _read(self) -> None:
        """Both outputs to their ends, then how it ended."""
        outputs = [
            self._loop.create_task(self._pump(self._process.stdout, self._receiver.received)),
            self._loop.create_task(self._pump(self._process.stderr, self._receiver.stderr_received)),
        ]
        try:
            await asyncio.gather(*outputs)
            exit = await self._outcome()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  the SDK's are many, and each means that the streams are lost
            exit = Exit(lost=await self._why(error))
        finally:
            for task in outputs:
                task.cancel()
        self._tell(exit)

    async def _pump(self, stream: Any, deliver: Callable[[bytes], None]) -> None:
        async for data in stream:
            await self._flowing.wait()
            if not self._told:
                deliver(data)

    async def _outcome(self) -> Exit:
        async with asyncio.timeout(_WAIT_S):
            code = int(await self._process.wait.aio())
        if code >= _SIGNALLED or code < 0:
            # Whoever ends a sandbox kills what is in it, and an exec's own signal looks the same.
            why = await self._why(None)
            if why:
                return Exit(lost=why)
        return Exit(signal=code - _SIGNALLED) if code > _SIGNALLED else Exit(code=code)

    async def _why(self, error: Exception | None) -> str:
        try:
            why = await self._death()
        except Exception as unknown:  # noqa: BLE001  nobody knows then
            why = str(unknown)
        return why or (f"the connection to the sandbox broke: {error}" if error is not None else "")

    def write(self, *parts: bytes | memoryview) -> None:
        """Queue bytes for standard input."""
        if self._eof or self._told:
            return
        self._queue.extend(parts)
        self._unsent += sum(map(len, parts))
        if self._unsent > _LOW:
            self._drained.clear()
        self._send()

    def write_eof(self) -> None:
        """Close standard input after what is queued."""
        if not (self._eof or self._told):
            self._eof = True
            self._send()

    def _send(self) -> None:
        if self._writing is None:
            self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        stdin = self._process.stdin
        closed = False
        try:
            while self._queue or (self._eof and not closed):
                size = 0
                while self._queue and size < _BATCH:
                    part = self._queue.popleft()
                    if size + len(part) > _BATCH:
                        self._queue.appendleft(memoryview(part)[_BATCH - size :])
                        part = memoryview(part)[: _BATCH - size]
                    stdin.write(part)
                    size += len(part)
                if self._eof and not self._queue:
                    closed = True
                    stdin.write_eof()
                await stdin.drain.aio()
                self._unsent -= size
                if self._unsent <= _LOW:
                    self._drained.set()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  what cannot be written is lost with the channel
            await self._lose(error)
        finally:
            self._writing = None

    async def _lose(self, error: Exception) -> None:
        """Input is lost: the outputs will say how it ended, if it has; else the whole channel is lost."""
        self._queue.clear()
        self._unsent = 0
        self._drained.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._reading), _WAIT_S)
        self._tell(Exit(lost=await self._why(error)))

    @property
    def unsent(self) -> int:
        """Bytes that the worker has not taken."""
        return self._unsent

    async def drained(self) -> None:
        """Return when at most 1 MiB is queued, or the channel is gone."""
        await self._drained.wait()

    def pause(self) -> None:
        """Take nothing more from the SDK, whose window then holds the worker."""
        self._flowing.clear()

    def resume(self) -> None:
        """Take on."""
        self._flowing.set()

    def abandon(self) -> None:
        """Let go of the streams. Its input is closed behind us, as a broken connection would close it."""
        if not self._told:
            self._eof = True
            farewell = self._loop.create_task(self._part(self._writing))
            self._farewells.add(farewell)
            farewell.add_done_callback(self._farewells.discard)
        self._tell(Exit(lost="the channel was closed here"))

    def kill(self) -> None:
        """The same, for the vendor cannot end an exec: what it was ends with its input, or with the sandbox."""
        self.abandon()

    async def _part(self, writing: asyncio.Task[None] | None) -> None:
        with contextlib.suppress(Exception):  # it ends with the sandbox's lease then
            async with asyncio.timeout(_WAIT_S):
                if writing is not None:
                    await asyncio.wait([writing])
                self._process.stdin.write_eof()
                await self._process.stdin.drain.aio()

    def _tell(self, exit: Exit) -> None:
        if self._told:
            return
        self._told = True
        self._queue.clear()
        self._unsent = 0
        self._drained.set()
        self._flowing.set()
        current = asyncio.current_task(self._loop) if asyncio.get_running_loop() is self._loop else None
        for task in (self._reading, self._writing):
            if task is not None and task is not current:
                task.cancel()
        self._receiver.closed(exit)
