"""One exec of a sandbox as a channel: its streams are the SDK's, always bytes.

After a broken connection the SDK resumes them at their offsets, with retries for some ten seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import Channel, Exit, Receiver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from concurrent.futures import Future


_LOW = 1 << 20
_SIGNALLED = 128

_BATCH = 4 << 20
"""The most bytes of one request; the SDK refuses more than 16 MiB."""
_PART = 256 << 10
"""The bytes of one message in a request that contains the whole input."""
_PATIENCE_S = 0.2
"""Seconds for which a paused stream stays open: all streams of a connection share its window."""
WAIT_S = 15.0
"""Seconds for the requests that determine how an exec ended; the SDK itself would wait forever for a lost worker."""


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


def _behind(process: Any) -> tuple[Any, Any] | None:
    """Return the SDK's internal process and its loop, or None where they are not found."""
    try:
        from modal._utils.async_utils import synchronizer

        hidden: Any = synchronizer
        own = hidden._translate_in(process)  # noqa: SLF001  there is no other way in, and it may fail
        loop: Any = hidden._get_loop(start=False)  # noqa: SLF001  the same
        served = inspect.iscoroutinefunction(own.stdin.drain) and loop is not None and loop.is_running()
    except Exception:  # noqa: BLE001  whatever has changed there
        return None
    return (own, loop) if served else None


def _whole_input(process: Any) -> Callable[[AsyncIterator[bytes]], Awaitable[object]] | None:
    """Return the SDK's method that sends all of a process's input in one request, or None where it is not found."""
    try:
        send = process._command_router_client._exec_stdin_write_stream  # noqa: SLF001  see _behind
        return partial(send, process._task_id, process._process_id, 0)  # noqa: SLF001  the same
    except AttributeError:
        return None


class Pipes:
    """The streams of a process, served on the event loop that the SDK runs in a thread; callbacks run on the caller's.

    The SDK's public objects pass every read and every write from one loop to the other and back. They wrap the objects
    of its own loop; served there, a command needs one thread switch each way. If a later SDK hides them differently,
    the same code uses the public objects on the caller's loop.

    ``bulk`` sends the input in one request, where the SDK supports that: it does not wait for the worker's
    acknowledgments, and when the request fails the input has ended.
    """

    def __init__(self, process: Any, ours: asyncio.AbstractEventLoop, *, bulk: bool = False) -> None:
        behind = _behind(process)
        served: tuple[Any, asyncio.AbstractEventLoop] = behind or (process, ours)
        self._process, self._loop = served
        self._whole = _whole_input(self._process) if bulk and behind else None
        self._ours = ours
        self._queue: deque[bytes | memoryview] = deque()
        self._eof = False
        self._flowing = True
        self._changed: asyncio.Event | None = None
        self._serving: Future[None] | None = None
        self.sent = 0
        """The bytes that the worker has taken; written by the SDK's loop only."""

    def start(
        self,
        received: Callable[[int, bytes], None],
        taken: Callable[[], None],
        ended: Callable[[int | None, Exception | None], None],
    ) -> None:
        """Serve the streams: call ``received`` for output (1 or 2, and bytes), ``ended`` once with code or error."""
        work = self._serve(received, taken, ended)
        self._serving = asyncio.run_coroutine_threadsafe(work, self._loop)

    def queue(self, *parts: bytes | memoryview) -> None:
        """Send bytes, after those that were queued before."""
        self._queue.extend(parts)
        self._wake()

    def end_input(self, *, drop: bool = False) -> None:
        """Close standard input, after the queued bytes unless ``drop`` is true."""
        if drop:
            self._queue.clear()
        self._eof = True
        self._wake()

    def flow(self, *, on: bool) -> None:
        """Start or stop taking output."""
        self._flowing = on
        self._wake()

    def stop(self) -> None:
        """Release the outputs. Pending input, and its end, are still sent."""
        self._call(self._cancel)

    def _call(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # that loop is closed, with all streams
            self._loop.call_soon_threadsafe(call)

    def _wake(self) -> None:
        self._call(self._notice)

    def _notice(self) -> None:
        if self._changed is not None:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def _serve(
        self,
        received: Callable[[int, bytes], None],
        taken: Callable[[], None],
        ended: Callable[[int | None, Exception | None], None],
    ) -> None:
        self._changed = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read(received))
        writing = asyncio.ensure_future(self._write_whole(taken) if self._whole else self._write(taken))
        code: int | None = None
        broken: Exception | None = None
        try:
            await asyncio.wait([self._reading, writing], return_when=asyncio.FIRST_COMPLETED)
            if not self._reading.done():
                # The outputs follow; they may report the end, which explains why the input was not taken.
                await asyncio.wait([self._reading], timeout=WAIT_S if writing.exception() else None)
            if self._reading.done():
                code = self._reading.result()
            else:
                broken = _as_error(writing.exception())
        except asyncio.CancelledError:
            await self._farewell(writing)
        except Exception as error:  # noqa: BLE001  the SDK's are many, and each means that the streams are lost
            broken = error
        finally:
            for task in (self._reading, writing):
                task.cancel()
        with contextlib.suppress(RuntimeError):
            self._ours.call_soon_threadsafe(ended, code, broken)

    def _cancel(self) -> None:
        if self._serving is not None and self._changed is not None:
            self._reading.cancel()

    async def _farewell(self, writing: asyncio.Future[Any]) -> None:
        with contextlib.suppress(Exception):  # it then ends with the sandbox's lease
            await asyncio.wait([writing], timeout=WAIT_S)

    async def _read(self, received: Callable[[int, bytes], None]) -> int:
        """Read both outputs to their ends, then the exit code."""
        await asyncio.gather(
            self._pump(self._process.stdout, 1, received), self._pump(self._process.stderr, 2, received)
        )
        async with asyncio.timeout(WAIT_S):
            return int(await _plain(self._process.wait)())

    async def _pump(self, stream: Any, number: int, received: Callable[[int, bytes], None]) -> None:
        # A retry continues: the SDK opens the stream again at the last offset.
        at_end = False
        while not at_end:
            chunks = aiter(stream)
            at_end = True
            async for data in chunks:
                self._ours.call_soon_threadsafe(received, number, data)
                if not self._flowing and await self._is_stalled():
                    at_end = False
                    break
            if not at_end:
                await chunks.aclose()
                await self._until_flowing()

    async def _is_stalled(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._until_flowing()
        return not self._flowing

    async def _until_flowing(self) -> None:
        while not self._flowing:
            assert self._changed is not None  # noqa: S101  it is served
            await self._changed.wait()

    async def _write(self, taken: Callable[[], None]) -> None:
        stdin = self._process.stdin
        drain = _plain(stdin.drain)
        while True:
            size = self._take(stdin)
            closes = self._eof and not self._queue
            if closes:
                stdin.write_eof()
            if size or closes:
                await drain()
                self.sent += size
                self._ours.call_soon_threadsafe(taken)
            if closes:
                return
            if not self._queue and not self._eof:
                assert self._changed is not None  # noqa: S101  it is served
                await self._changed.wait()

    async def _write_whole(self, taken: Callable[[], None]) -> None:
        assert self._whole is not None  # noqa: S101  it is asked for
        try:
            await self._whole(self._parts(taken))
        except Exception:
            # The worker keeps the input open for the missing rest; a program that waits for it must end.
            self._process.stdin.write_eof()
            await _plain(self._process.stdin.drain)()
            raise

    async def _parts(self, taken: Callable[[], None]) -> AsyncIterator[bytes]:
        """Yield all queued and future input, up to its end."""
        while self._queue or not self._eof:
            if not self._queue:
                assert self._changed is not None  # noqa: S101  it is served
                await self._changed.wait()
                continue
            whole = memoryview(self._queue.popleft())
            for start in range(0, len(whole), _PART):
                yield bytes(whole[start : start + _PART])
                await asyncio.sleep(0)  # a sender that never yields to the loop does not notice a broken connection
            self.sent += len(whole)
            self._ours.call_soon_threadsafe(taken)

    def _take(self, stdin: Any) -> int:
        """Pass queued bytes to the SDK, as many as one request can contain."""
        size = 0
        while size < _BATCH:
            try:
                part = self._queue.popleft()
            except IndexError:  # the queue is empty; the other side may clear it at any moment
                break
            if size + len(part) > _BATCH:
                self._queue.appendleft(memoryview(part)[_BATCH - size :])
                part = memoryview(part)[: _BATCH - size]
            stdin.write(part)
            size += len(part)
        return size


def _plain(method: Any) -> Any:
    """Return an awaitable form of a method, for the SDK's public and internal objects alike."""
    return getattr(method, "aio", method)


def _as_error(error: BaseException | None) -> Exception:
    return error if isinstance(error, Exception) else ConnectionError("the input was lost")
