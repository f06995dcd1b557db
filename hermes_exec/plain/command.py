"""One command of the plain carrier: a process of its own, its streams, its clock and its end."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, OutcomeUnknown, PlaceError
from hermes_exec.guest.wire import CHUNK, STDERR, STDOUT, WINDOW
from hermes_exec.plain import scripts
from hermes_exec.plain.files import store
from hermes_exec.plain.place import Stat, send
from hermes_exec.plain.tree import end_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hermes_exec.backend import Channel, Exit
    from hermes_exec.carrier import Sink
    from hermes_exec.plain.launch import Launch
    from hermes_exec.plain.place import Place

_NOISE = 8 << 10
"""Bytes of what the place says before the command starts that are kept for an error's text."""
_START_S = 10.0
_HOLD_S = 1.0
"""Seconds that an output may stay open after everything that could be found was ended."""
_NOTHING_RAN = "it was ended before it started, so nothing ran"


class Command:
    """A ``Running``, and the receiver of its own channel."""

    def __init__(
        self,
        place: Place,
        number: int,
        launch: Launch,
        arguments: Mapping[str, Any],
        sink: Sink,
        on_end: Callable[[Command], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.number = number
        self._place = place
        self._launch = launch
        self._sink = sink
        self._on_end = on_end
        self._limit_s: float | None = arguments.get("timeout")
        self._grace_s = float(arguments.get("grace", 2.0))
        self._answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None
        self._channel: Channel | None = None
        self._nonce = secrets.token_hex(16).encode() + b" "
        self._before = b""
        self._told: asyncio.Future[bytes] = self._loop.create_future()  # what our part of stderr says
        self._closed: asyncio.Future[Exit] = self._loop.create_future()
        self._begun = self._loop.time()
        self._why = ""
        self._note = ""
        self._stopper: asyncio.Task[None] | None = None
        self._given_up = False
        self._all_gone = False
        self._waiting = [0, 0, 0]  # bytes of each stream that the sink has not used up
        self._bounded = True
        self._paused = False
        self._held: list[memoryview] = []  # input from before there is a channel
        self._eof = not arguments.get("stdin")
        self._opened = asyncio.Event()

    def begin(self) -> None:
        """Its turn has come."""
        self._task = self._loop.create_task(self._work())

    @property
    def over(self) -> bool:
        """True once it is answered."""
        return self._answer.done()

    async def _work(self) -> None:
        try:
            answer = await self._carry_out()
        except HermesError as error:
            self._finish(error)
        else:
            self._finish(answer)

    def _finish(self, outcome: dict[str, Any] | HermesError) -> None:
        self._opened.set()
        if isinstance(outcome, dict):
            self._answer.set_result(outcome)
        else:
            self._answer.set_exception(outcome)
            self._answer.exception()  # looked at, so that asyncio does not complain when nobody awaits it
        self._on_end(self)

    async def _carry_out(self) -> dict[str, Any]:
        launch, place, nonce = self._launch, self._place, self._nonce.decode().strip()
        if not launch.staged:
            return await self._run(launch.argv(place.shell, nonce), launch.env)
        if not place.folder:
            raise PlaceError(
                "the command is too long to be passed as words, and the place has no folder to put it in",
                remedy="make /tmp writable there",
                state="nothing ran",
            )
        path = f"{place.folder}/hermes-exec-{nonce}.sh"
        try:
            await store(place, os.fsencode(path), launch.script(nonce, path), private=True)
        except HermesError as error:
            raise PlaceError(f"the command cannot be put into the place: {error.what}", state="nothing ran") from error
        try:
            return await self._run(launch.script_argv(place.shell, path), {})
        finally:
            if not self._told.done():  # else the script has removed itself
                with suppress(HermesError):
                    await place.script(scripts.REMOVE, path)

    async def _run(self, argv: list[str] | list[str | bytes], env: Mapping[bytes, bytes]) -> dict[str, Any]:
        if self._why:
            return {self._why: True, "duration": 0.0, "note": _NOTHING_RAN}
        channel = self._channel = await self._place.spawn(argv, self, env)
        self._begun = self._loop.time()
        if self._paused:
            channel.pause()
        if self._held:
            channel.write(*self._held)
            self._held.clear()
        if self._eof:
            channel.write_eof()
        self._opened.set()
        if self._why:
            self._stop_now()
        deadline = None
        if self._limit_s is not None:
            deadline = self._loop.call_later(self._limit_s, self.stop, "timed_out")
        exit = await self._closed
        if deadline is not None:
            deadline.cancel()
        if self._stopper is not None:
            await self._stopper
        return self._outcome(exit)

    def _outcome(self, exit: Exit) -> dict[str, Any]:
        told = self._told.result() if self._told.done() else None
        if told == b"cwd":
            return {"error": "cwd", "errno": 2, "message": os.fsdecode(self._launch.cwd)}
        answer: dict[str, Any] = {"duration": self._loop.time() - self._begun}
        if told == b"program":
            return {**answer, "error": "program", "errno": 2, "code": 127, "message": os.strerror(2)}
        if self._why:
            answer[self._why] = True
        if self._note:
            answer["note"] = self._note
        if exit.lost:
            if not (self._given_up or self._all_gone):
                raise OutcomeUnknown(f"the place was lost while this ran ({exit.lost})")
        elif told is None and not self._why:  # it tells before it starts anything, so nothing was started
            how = f"signal {exit.signal}" if exit.code is None else f"exit code {exit.code}"
            said = self._before.decode("utf-8", "replace").strip()[-300:]
            return {"error": "failed", "message": f"the place did not start it ({how}) {said}".strip()}
        elif exit.code is None:
            answer["signal"] = exit.signal
        else:
            answer["code"] = exit.code
        return answer

    def received(self, data: bytes, /) -> None:
        """Standard output."""
        self._feed(STDOUT, data)

    def stderr_received(self, data: bytes, /) -> None:
        """Standard error: our own line first, the command's bytes behind it."""
        if not self._told.done():
            self._before += data
            noise, nonce, rest = self._before.partition(self._nonce)
            line, end, data = rest.partition(b"\n")
            if not nonce or not end:
                self._before = nonce + rest if nonce else noise[-_NOISE:]
                return
            self._before = b""
            self._told.set_result(line)
        if data:
            self._feed(STDERR, data)

    def closed(self, exit: Exit, /) -> None:
        """The channel is at its end."""
        if not self._closed.done():
            self._closed.set_result(exit)

    def _feed(self, channel: int, data: bytes) -> None:
        self._waiting[channel] += len(data)
        self._sink.feed(self, channel, data)
        if self._bounded and not self._paused and max(self._waiting) > WINDOW:
            self._paused = True
            if self._channel is not None:
                self._channel.pause()

    def consumed(self, channel: int, count: int, /) -> None:
        """The sink has used up bytes; the producer goes on when half of the window is free."""
        self._waiting[channel] -= count
        if self._paused and max(self._waiting) <= WINDOW // 2:
            self._flow()

    def _flow(self) -> None:
        if self._paused:
            self._paused = False
            if self._channel is not None and not self._closed.done():
                self._channel.resume()

    async def result(self) -> dict[str, Any]:
        """Wait for the answer. A cancelled wait ends the command, and returns when it is gone."""
        try:
            return await asyncio.shield(self._answer)
        except asyncio.CancelledError:
            self.cancel()
            await asyncio.wait([self._answer])
            raise

    async def write(self, data: bytes, /) -> None:
        """Send input, waiting while more than 4 MiB are on the way; what nobody reads is dropped."""
        view = memoryview(data)
        for start in range(0, len(view), CHUNK):
            piece = view[start : start + CHUNK]
            if self._channel is None and not self.over:
                self._held.append(piece)
                if sum(map(len, self._held)) > WINDOW:
                    await self._opened.wait()
            elif self._channel is not None and not self._closed.done():
                await send(self._channel, piece)

    def write_eof(self) -> None:
        """The input ends here."""
        self._eof = True
        if self._channel is not None:
            self._channel.write_eof()

    def cancel(self) -> None:
        """End it, with all that it started."""
        self.stop("cancelled")

    async def end(self, grace_s: float) -> None:
        """End it within a shorter grace, and wait for that."""
        self._grace_s = min(self._grace_s, grace_s)
        self.cancel()
        await asyncio.wait([self._answer])

    def stop(self, why: str) -> None:
        """End it because of ``why``; the answer follows when it is gone."""
        if self._why or self.over or self._closed.done():
            return
        self._why = why
        if self._task is None:
            self._finish({why: True, "duration": 0.0, "note": "it was still waiting for its turn, so nothing ran"})
        elif self._channel is not None:
            self._stop_now()

    def _stop_now(self) -> None:
        self._stopper = self._loop.create_task(self._end_processes())

    async def _end_processes(self) -> None:
        """End what can be found, let the rest of the output come, and then let go of the channel."""
        root = await self._root()
        if root is None:
            self._note = "its processes cannot be looked at in this place, so some may go on"
        else:
            try:
                left = await end_tree(self._place, root, self._grace_s, self._closed)
            except HermesError as error:
                self._note = f"some of its processes may go on ({error.what})"
            else:
                self._all_gone = not left
                if left:
                    self._note = f"these processes could not be ended: {left}"
                self._bounded = False  # what is left of the output is no more than the pipes hold
                self._flow()
                await asyncio.wait([self._closed], timeout=_HOLD_S)
        if not self._closed.done() and self._channel is not None:
            if self._all_gone:
                self._note = "a process that had left the command's tree kept its output open and may go on"
            self._given_up = True
            self._channel.kill()

    async def _root(self) -> Stat | None:
        """The process that the command began as; None when that is not to be had."""
        await asyncio.wait([self._told, self._closed], timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        return Stat.parse(self._told.result().partition(b" ")[2]) if self._told.done() else None
