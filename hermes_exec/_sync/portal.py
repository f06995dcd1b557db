"""Blocking calls into asynchronous objects: the interface between threads and one private event loop.

An event loop belongs to one thread at a time, and handing work from thread to thread costs 50 to 100 µs
each way, a third of the time of a short command. So the loop has no thread of its own: **the calling thread
drives it**, until its call is done. While one thread drives, it also serves the calls of other threads, which
wait. When the driver is done before them, the *resident* drives instead: a daemon thread, which also drives
when there was no call for 10 to 20 ms, so that keep-alives, reconnects, forwards and streams continue. The
next caller stops it and drives itself. A caller that cannot drive, because its thread runs another event
loop (a notebook), waits for the resident.

One loop serves the whole process: a thousand open terminals then cost one thread and one selector.

A signal handler that raises (Ctrl-C) must not do so inside of the loop, so the main thread leaves the loop
first; then it cancels the call, waits for its end and raises the exception. A second signal ends the waiting.

A forked child shares its parent's selector and pipes, and any use of them would disturb the parent: every
object that the child inherited refuses to work, and it may open new ones. At the exit, open objects are closed.
"""

from __future__ import annotations

import _signal  # its functions take a tenth of the time of those of `signal`, which create enums
import asyncio
import atexit
import contextlib
import os
import queue
import threading
import warnings
import weakref
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, ParamSpec, Protocol, TypeGuard, TypeVar

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Handler = Callable[[int, FrameType | None], Any]


_RAISING = ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP")
"""Signals whose handlers are known to raise: Ctrl-C, the end of a service, the time limit of a test suite."""
_NUMBERS = tuple(int(getattr(_signal, name)) for name in _RAISING if hasattr(_signal, name))

P = ParamSpec("P")

EXIT_S = 5.0
"""Seconds that closing the open objects may take."""


def run_undisturbed(work: Callable[[], None], noted: Callable[[], None]) -> None:
    """Run ``work`` in the main thread; raise the exception of a signal handler that was due meanwhile.

    A signal calls ``noted`` between any two instructions of ``work``, which makes it return soon.
    Only handlers written in Python are postponed, and they are installed again afterwards.
    """
    handlers: dict[int, Handler] = {}
    came: list[tuple[int, FrameType | None]] = []
    working = True

    def note(number: int, frame: FrameType | None) -> None:
        if working:
            came.append((number, frame))
            noted()
        else:  # while the handlers are being restored
            handlers[number](number, frame)

    try:
        for number in _NUMBERS:
            handler = _signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                _signal.signal(number, note)
        work()
    finally:
        working = False
        for number, handler in handlers.items():
            _signal.signal(number, handler)
    for number, frame in came:
        handlers[number](number, frame)


T = TypeVar("T")


_IDLE_S = 0.01


_RESIDENT: Final = object()


class _Call(Generic[T]):
    """One blocking call: the awaitable that it waits for, and its outcome."""

    __slots__ = ("awaitable", "done", "error", "result", "signalled", "task", "wake")
    result: T

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self.awaitable = awaitable
        self.done = False
        self.error: BaseException | None = None
        self.signalled = False
        self.task: asyncio.Task[None] | None = None
        self.wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # may be put to by a signal's handler


class Portal:
    """The private loop, and the thread that drives it. Every method may be called from any thread."""

    def __init__(self) -> None:
        self.finalizers = Finalizers()
        self.refusal = ""  # why calls are refused: after a fork, or at the exit
        self._loop = asyncio.SelectorEventLoop()
        self._mutex = threading.Lock()
        self._driver: object = None  # the _Call whose thread drives, or _RESIDENT, also after a refusal
        self._heir: _Call[Any] | None = None  # waits for the resident to leave
        self._under_way = 0
        self._begun = 0
        self._bell = threading.Event()
        self._main = threading.main_thread().ident
        self._patience: float | None = None
        self._closing: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._reside, name="hermes_exec.sync", daemon=True).start()
        os.register_at_fork(after_in_child=self._handle_fork)
        atexit.register(self._exit)

    def call(self, awaitable: Awaitable[T], unread: list[T] | None = None) -> T:
        """Wait for an awaitable of the loop; return its value, or raise its error.

        A value that came together with a signal, whose handler then raised, is appended to ``unread``. Without
        ``unread``, an object that was opened is closed, since the caller's ``with`` cannot do it.

        Raises:
            UsageError: after a fork, at the exit, or inside a callback of the loop itself; nothing ran.
        """
        call = _Call(awaitable)
        try:
            self._wait(call)
        except BaseException:
            if not call.done:
                self._loop.call_soon_threadsafe(self._cancel, call)
                self._wait(call)
            if call.error is None:
                if unread is not None:
                    unread.append(call.result)
                elif _is_open(call.result):
                    self._wait(_Call(call.result.__aexit__(None, None, None)))
            raise
        if call.error is None:
            return call.result
        try:
            raise call.error
        finally:
            del call  # the error's traceback has this frame, so they would hold each other

    def do(self, work: Callable[[], T]) -> T:
        """Call a plain function on the loop, while no other callback runs."""

        async def doing() -> T:
            return work()

        return self.call(doing())

    def end(self, closing: Coroutine[Any, Any, None]) -> None:
        """Run the coroutine that closes an object; does nothing in a forked child, or after the exit."""
        if self.refusal:
            closing.close()
        elif asyncio._get_running_loop() is self._loop:  # noqa: SLF001  garbage may be collected within a callback
            task = self._loop.create_task(closing)
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        else:
            self.call(closing)

    def _wait(self, call: _Call[Any]) -> None:
        """Return when the call is done; raise the exception of a signal handler."""
        while not call.done:
            call.signalled = False
            if threading.get_ident() == self._main:
                run_undisturbed(partial(self._attend, call), partial(self._handle_signal, call))
            else:
                self._attend(call)

    def _handle_signal(self, call: _Call[Any]) -> None:
        call.signalled = True
        call.wake.put(None)
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _attend(self, call: _Call[Any]) -> None:
        """Drive the loop, or wait while another thread does, until the call is done or a signal has come."""
        running = asyncio._get_running_loop()  # noqa: SLF001  meant for makers of event loops
        inherits = False
        with self._mutex:
            if self._driver is None and running is None:
                self._driver = call
            elif self.refusal:
                self._refuse(call, self.refusal)
            elif running is self._loop:
                self._refuse(call, "a blocking call in a callback of another one would wait for itself")
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
                while not (call.done or call.signalled or self._driver is call):
                    call.wake.get(timeout=self._patience)
            if self._driver is call:
                self._begin(call)
                while not (call.done or call.signalled):
                    self._loop.run_forever()
        finally:
            self._leave(call)

    def _leave(self, call: _Call[Any]) -> None:
        with self._mutex:
            self._under_way -= 1
            if self._heir is call:
                self._heir = None
            if self._driver is call:
                self._driver = None
            if self._driver is None and self._under_way:
                self._bell.set()

    def _refuse(self, call: _Call[Any], why: str) -> NoReturn:
        awaitable: Awaitable[Any] | Coroutine[Any, Any, Any] = call.awaitable
        if isinstance(awaitable, Coroutine):
            awaitable.close()  # or Python warns that it was never awaited
        call.error = UsageError(why)
        call.done = True
        raise call.error

    def _begin(self, call: _Call[Any]) -> None:
        if call.task is None:
            call.task = self._loop.create_task(self._perform(call))

    async def _perform(self, call: _Call[Any]) -> None:
        try:
            call.result = await call.awaitable
        except BaseException as error:  # noqa: BLE001  it is the caller's
            call.error = error
        call.done = True
        if self._driver is call:
            self._loop.stop()
        else:
            call.wake.put(None)

    def _cancel(self, call: _Call[Any]) -> None:
        self._begin(call)
        if call.task is not None:
            self._loop.call_soon(call.task.cancel)  # after its first step, or it would never report its end

    def _reside(self) -> None:
        """Drive the loop for callers that cannot, and while there are no calls."""
        begun = -1
        while not self.refusal:
            self._bell.wait(_IDLE_S)
            with self._mutex:
                wanted = self._bell.is_set() or self._begun == begun
                self._bell.clear()
                begun = self._begun
                if self._driver is not None or not wanted:
                    continue
                self._driver = _RESIDENT
            heir = None
            while heir is None:
                with contextlib.suppress(SystemExit, KeyboardInterrupt):  # of a callback; not this thread's
                    self._loop.run_forever()
                with self._mutex:
                    heir, self._heir = self._heir, None
                    if heir is not None:
                        self._driver = heir
            heir.wake.put(None)

    def _handle_fork(self) -> None:
        """Refuse all calls in a forked child, and leave the parent's loop as it is.

        Even closing the loop would disturb the parent, since both share one epoll. The loop is never closed: the
        resident's frame, which the fork copied, still refers to it.
        """
        self._mutex = threading.Lock()  # another thread may have held the old one
        self._driver, self.refusal = _RESIDENT, "it was opened before a fork, in the parent process"
        self.finalizers.clear()
        portal.cache_clear()

    def _exit(self) -> None:
        if self.refusal:
            return
        self._patience = 2 * EXIT_S  # with a daemon thread that drives
        with contextlib.suppress(queue.Empty):
            self.call(self.finalizers.close())
        with self._mutex:
            free = self._driver is None
            self._driver, self.refusal = _RESIDENT, "Python is exiting"
        if free:
            self._loop.close()


def _is_open(value: object) -> TypeGuard[AbstractAsyncContextManager[Any]]:
    return isinstance(value, AbstractAsyncContextManager)


@cache
def portal() -> Portal:
    """Return the portal of this process."""
    return Portal()


class Closable(Protocol):
    """An object that can be closed."""

    async def close(self) -> None:
        """Release everything; safe to call twice."""


class Finalizers:
    """The open objects of one event loop."""

    def __init__(self) -> None:
        self._open: dict[Closable, weakref.finalize[..., object]] = {}

    def register(self, core: Closable, face: object, name: str) -> None:
        """Close ``core`` at the exit; warn when ``face``, its blocking form, is garbage-collected before that."""
        finalizer = weakref.finalize(face, warnings.warn, f"{name} was not closed", ResourceWarning)
        finalizer.atexit = False
        self._open[core] = finalizer

    def unregister(self, core: Closable) -> None:
        """Remove an object that was closed in time."""
        finalizer = self._open.pop(core, None)
        if finalizer is not None:
            finalizer.detach()

    def clear(self) -> None:
        """Remove all objects, which belong to another process after a fork."""
        for core in list(self._open):
            self.unregister(core)

    async def close(self) -> None:
        """Close all objects concurrently, then end all other tasks of the loop."""
        asyncio.get_running_loop().set_default_executor(_AtOnce())
        closing = [asyncio.ensure_future(core.close()) for core in self._open]
        self.clear()
        rest = asyncio.all_tasks() - {asyncio.current_task(), *closing}
        await _wait(closing)
        for task in rest:
            task.cancel()
        await _wait(rest)


async def _wait(tasks: set[asyncio.Task[None]] | list[asyncio.Task[None]]) -> None:
    if tasks:
        done, _ = await asyncio.wait(tasks, timeout=EXIT_S)
        for task in done:
            with contextlib.suppress(asyncio.CancelledError):
                task.exception()  # retrieved, so that asyncio does not log it


class _AtOnce(ThreadPoolExecutor):
    """An executor that runs each call at once in the calling thread, since Python starts no threads at the exit."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call ``fn`` at once."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  as an executor does
            future.set_exception(error)
        return future
