"""Blocking calls into asynchronous objects: the door between threads and one private event loop.

An event loop belongs to one thread at a time, and handing work from thread to thread costs 50 to 100 µs
each way, a third of what a short command takes. So the loop has no thread of its own: **whoever calls,
drives it**, until the own call is done. While one thread drives, the calls of others are handed to it, and
they wait. When the driver is done before them, the *resident* goes on for it: a daemon thread, which also
drives whenever nobody has called for 10 to 20 ms, so that keep-alives, reconnects, forwards and streams go
on. The next caller makes the resident stop and drives by itself. Where a caller cannot drive, because its
thread runs another event loop (a notebook), the resident drives and the caller waits.

One loop serves the whole process: a thousand open terminals then cost one thread and one selector.

**Signals.** Python runs signal handlers in the main thread, between any two instructions. One that raises,
as the one of Ctrl-C does, would do so in the midst of whatever the loop is at: another thread's call, a
half parsed frame. So during a call of the main thread such signals are noted only. The thread leaves the
loop and then calls their handlers; if one raises, the call is cancelled, waited for, and the exception goes
to the caller. A second one gives up the waiting.

**Fork.** A child shares its parent's selector and pipes, so all it can do with them is harm: every object
that it inherited refuses to work, and it may open new ones.

**Exit.** What was left open is closed within 5 s, after Python has joined all threads but daemons.
"""

from __future__ import annotations

import _signal
import asyncio
import atexit
import contextlib
import os
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, Protocol, TypeVar

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from types import FrameType

P = ParamSpec("P")
T = TypeVar("T")

_IDLE_S = 0.01
_EXIT_S = 5.0
_RESIDENT: Final = object()
_GUARDED = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGALRM, _signal.SIGHUP)
"""Signals whose handlers are known to raise: Ctrl-C, ends of services, time limits of test suites."""


class Closable(Protocol):
    """What is closed at the interpreter's exit."""

    async def close(self) -> None:
        """Let go of everything; safe to call twice."""


class _Loop(asyncio.SelectorEventLoop):
    """A loop that is never closed in a forked child: that would unregister what the parent listens to."""

    forked = False

    def is_closed(self) -> bool:
        """True when its garbage collection has nothing to do."""
        return self.forked or super().is_closed()


class _Call(Generic[T]):
    """One blocking call: what it waits for, and what came of it."""

    __slots__ = ("awaitable", "done", "error", "result", "signal", "task", "wake")
    result: T

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self.awaitable = awaitable
        self.done = False
        self.error: BaseException | None = None
        self.signal: tuple[int, FrameType | None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.wake: queue.SimpleQueue[None] = queue.SimpleQueue()


class Portal:
    """The private loop, and who drives it. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._loop = _Loop()
        self._mutex = threading.Lock()
        self._driver: object = None  # the _Call whose thread drives, _RESIDENT, or why nobody ever will (str)
        self._heir: object = None  # the _Call that waits for the resident to leave
        self._under_way = 0
        self._begun = 0
        self._bell = threading.Event()
        self._main = threading.main_thread().ident
        self._open: set[Closable] = set()
        self._patience: float | None = None
        threading.Thread(target=self._reside, name="hermes_exec.sync", daemon=True).start()
        os.register_at_fork(after_in_child=self._forked)
        atexit.register(self._at_exit)

    def call(self, awaitable: Awaitable[T], left: list[T] | None = None) -> T:
        """Wait for an awaitable of the loop, whose value or error is the caller's.

        A value that came together with a signal, whose handler then raised, is appended to ``left``.

        Raises:
            UsageError: after a fork, at the exit, or inside a callback of the loop itself; nothing ran.
        """
        call = _Call(awaitable)
        try:
            self._wait(call)
        except BaseException:
            if call.done:
                if left is not None and call.error is None:
                    left.append(call.result)
            else:
                self._loop.call_soon_threadsafe(self._cancel, call)
                self._wait(call)
            raise
        if call.error is None:
            return call.result
        try:
            raise call.error
        finally:
            del call  # the error's traceback has this frame, so they would hold each other

    def do(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function on the loop, where nothing else happens meanwhile."""

        async def doing() -> T:
            return function(*args, **kwargs)

        return self.call(doing())

    def step(self, source: AsyncIterator[T], left: list[T]) -> T:
        """Go one step of an iteration; ``left`` keeps what an interrupted step had brought."""
        if left:
            return left.pop()
        try:
            return self.call(source.__anext__(), left)
        except StopAsyncIteration:
            raise StopIteration from None

    def hold(self, core: Closable) -> None:
        """Close this at the interpreter's exit, unless it is dropped before."""
        self._open.add(core)

    def drop(self, core: Closable) -> None:
        """It is closed."""
        self._open.discard(core)

    def _wait(self, call: _Call[T]) -> None:
        """Return when the call is done; raise what the handler of a signal raises."""
        while not call.done:
            if threading.get_ident() == self._main:
                self._attend_guarded(call)
            else:
                self._attend(call)

    def _attend_guarded(self, call: _Call[T]) -> None:
        """Attend to a call in the main thread, and hand on the signal that ended that."""
        handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        left = False

        def note(number: int, frame: FrameType | None) -> None:
            if left:  # it came while the handlers were being put back
                handlers[number](number, frame)
                return
            call.signal = number, frame
            call.wake.put(None)
            self._loop.call_soon_threadsafe(self._loop.stop)

        try:
            for number in _GUARDED:
                handler = _signal.getsignal(number)
                if callable(handler):
                    handlers[number] = handler
                    _signal.signal(number, note)
            self._attend(call)
        finally:
            left = True
            for number, handler in handlers.items():
                _signal.signal(number, handler)
        if call.signal is not None:
            (number, frame), call.signal = call.signal, None
            handlers[number](number, frame)

    def _attend(self, call: _Call[T]) -> None:
        """Drive the loop, or wait while another thread does, until the call is done or a signal came."""
        running = asyncio._get_running_loop()  # noqa: SLF001  meant for makers of event loops
        inherits = False
        with self._mutex:
            if self._driver is None and running is None:
                self._driver = call
            elif isinstance(self._driver, str):
                self._refuse(call, self._driver)
            elif running is self._loop:
                self._refuse(call, "a blocking call inside a callback of another would wait for itself")
            elif self._driver is _RESIDENT and running is None and not self._under_way:
                self._heir = call
                inherits = True
            elif self._driver is None:
                self._bell.set()
            self._under_way += 1
            self._begun += 1
        try:
            if self._driver is not call:
                if inherits:
                    self._loop.call_soon_threadsafe(self._loop.stop)
                else:
                    self._loop.call_soon_threadsafe(self._begin, call)
                while not (call.done or call.signal or self._driver is call):
                    call.wake.get(timeout=self._patience)
            if self._driver is call:
                self._begin(call)
                while not (call.done or call.signal):
                    self._loop.run_forever()
        finally:
            self._leave(call)

    def _leave(self, call: _Call[T]) -> None:
        with self._mutex:
            self._under_way -= 1
            if self._heir is call:
                self._heir = None
            if self._driver is call:
                self._driver = None
            if self._driver is None and self._under_way:
                self._bell.set()

    def _refuse(self, call: _Call[T], why: str) -> NoReturn:
        if isinstance(call.awaitable, Coroutine):
            call.awaitable.close()  # or Python complains that nobody awaited it
        call.error = UsageError(why)
        call.done = True
        raise call.error

    def _begin(self, call: _Call[T]) -> None:
        if call.task is None:
            call.task = self._loop.create_task(self._perform(call))

    async def _perform(self, call: _Call[T]) -> None:
        try:
            call.result = await call.awaitable
        except BaseException as error:  # noqa: BLE001  it belongs to the caller
            call.error = error
        call.done = True
        if self._driver is call:
            self._loop.stop()
        else:
            call.wake.put(None)

    def _cancel(self, call: _Call[T]) -> None:
        self._begin(call)
        if call.task is not None:
            self._loop.call_soon(call.task.cancel)  # after its first step, or it would never tell its end

    def _reside(self) -> None:
        """Drive the loop while others wait who cannot, and when nobody calls."""
        begun = -1
        while True:
            self._bell.wait(_IDLE_S)
            with self._mutex:
                wanted = self._bell.is_set() or self._begun == begun
                self._bell.clear()
                begun = self._begun
                if isinstance(self._driver, str):
                    return
                if self._driver is not None or not wanted:
                    continue
                self._driver = _RESIDENT
            self._drive_for_others()

    def _drive_for_others(self) -> None:
        while self._driver is _RESIDENT:
            with contextlib.suppress(SystemExit, KeyboardInterrupt):  # of a callback: not for this thread
                self._loop.run_forever()
            with self._mutex:
                heir, self._heir = self._heir, None
                if heir is not None:
                    self._driver = heir
                    heir.wake.put(None)

    def _forked(self) -> None:
        """In the child: nothing of the parent's may be touched."""
        self._mutex = threading.Lock()  # another thread may have held the old one
        self._driver = "opened before a fork, so it belongs to the parent process"
        self._loop.forked = True
        self._open.clear()
        portal.cache_clear()

    def _at_exit(self) -> None:
        if isinstance(self._driver, str):
            return
        self._patience = 2 * _EXIT_S
        self._loop.set_default_executor(_AtOnce())
        with contextlib.suppress(queue.Empty):
            self.call(self._wind_up())
        with self._mutex:
            over = self._driver is None
            if over:
                self._driver = "Python is exiting"
        if over:
            self._loop.close()

    async def _wind_up(self) -> None:
        closing = [asyncio.ensure_future(core.close()) for core in self._open]
        if closing:
            done, _ = await asyncio.wait(closing, timeout=_EXIT_S)
            for task in done:
                task.exception()  # looked at: nobody is left to be told
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=_EXIT_S)
        await self._loop.shutdown_asyncgens()


class _AtOnce(ThreadPoolExecutor):
    """For the exit, when Python starts no more threads: what a backend would do in one is done at once."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call ``fn`` now."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  as an executor does
            future.set_exception(error)
        return future


@cache
def portal() -> Portal:
    """The portal of this process."""
    return Portal()
