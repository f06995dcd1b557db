"""One command of the shell transport: its process, its time limit and its end."""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, OutcomeUnknown, PlaceError
from hermes_exec.terminal.requests import NO_SHELL
from hermes_exec.transport.heartbeat import MISSES
from hermes_exec.transport.shell import scripts
from hermes_exec.transport.shell.files import store
from hermes_exec.transport.shell.streams import CommandStreams
from hermes_exec.transport.shell.target import ProcessStat

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hermes_exec.backend import Channel, Exit
    from hermes_exec.transport.protocol import Sink
    from hermes_exec.transport.shell.launch import LaunchSpec
    from hermes_exec.transport.shell.target import ShellTarget


_START_S = 10.0
_HOLD_S = 1.0
"""Seconds for which an output may stay open after all processes that could be found were ended."""

_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class SpawnedCommand:
    """A command that runs as a process of its own; implements ``Running``."""

    def __init__(
        self,
        place: ShellTarget,
        number: int,
        launch: LaunchSpec,
        arguments: Mapping[str, Any],
        sink: Sink,
        on_end: Callable[[SpawnedCommand], None],
    ) -> None:
        self.number = number
        self._loop = asyncio.get_running_loop()
        self._place = place
        self._launch = launch
        self._on_end = on_end
        self._limit_s: float | None = arguments.get("timeout")
        self._grace_s = float(arguments.get("grace", 2.0))
        self._nonce = secrets.token_hex(16)
        self._streams = CommandStreams(
            self._nonce,
            lambda stream, data: sink.feed(self, stream, data),
            stdin=bool(arguments.get("stdin")),
        )
        self._answer: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._work: asyncio.Task[None] | None = None
        self._channel: Channel | None = None
        self._begun = 0.0
        self._why = ""
        self._note = ""
        self._stopper: asyncio.Task[None] | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self._let_go = False
        self._all_gone = False

    @property
    def over(self) -> bool:
        """Whether it is answered."""
        return self._answer.done()

    @property
    def lingering(self) -> Channel | None:
        """Return the channel of a finished command whose children still hold its outputs, else None."""
        return self._channel if self.over and not self._streams.channel_exit.done() else None

    def begin(self) -> None:
        """Start the command."""
        self._work = self._loop.create_task(self._carry_out())
        if self._limit_s is not None:
            self._expect_end(self._limit_s)

    def _expect_end(self, within_s: float) -> None:
        """Give the command up if the target stays silent for so long that the outcome is unknown."""
        if self._overdue is None or self._why == "cancelled":
            if self._overdue is not None:
                self._overdue.cancel()
            delay_s = within_s + self._grace_s + MISSES * self._place.backend.options.keepalive_s
            self._overdue = self._loop.call_later(delay_s, self._give_up)

    def _give_up(self) -> None:
        if self.over:
            return
        if self._work is not None:
            self._work.cancel()
        if self._channel is not None:
            self._channel.abandon()
        self._finish(OutcomeUnknown("the target did not answer until some time after this should have ended"))

    async def _carry_out(self) -> None:
        try:
            self._finish(await (self._run_staged() if self._launch.staged else self._run_words()))
        except Exception as error:  # noqa: BLE001  raised where the answer is awaited
            self._finish(error)

    def _finish(self, outcome: dict[str, Any] | Exception) -> None:
        self._streams.detach()
        if self._overdue is not None:
            self._overdue.cancel()
        if isinstance(outcome, dict):
            self._answer.set_result(outcome)
        else:
            self._answer.set_exception(outcome)
            self._answer.exception()  # retrieved, so that asyncio reports no unretrieved exception
        self._on_end(self)

    async def _run_words(self) -> dict[str, Any]:
        return await self._run(self._launch.argv(self._place.shell, self._nonce), self._launch.env)

    async def _run_staged(self) -> dict[str, Any]:
        place = self._place
        if not place.folder:
            raise PlaceError(
                "the command is too long to be passed as words, and the target has no folder to put it in",
                remedy="make /tmp writable there",
                state="nothing ran",
            )
        path = f"{place.folder}/hermes-exec-{self._nonce}.sh"
        try:
            await store(place, os.fsencode(path), self._launch.script(self._nonce, path), private=True)
        except HermesError as error:
            why = f"the command cannot be put into the target: {error.what}"
            raise PlaceError(why, state="nothing ran") from error
        try:
            return await self._run(self._launch.script_argv(place.shell, path), {})
        finally:
            if not self._streams.status_line.done():  # otherwise the script has removed itself
                with suppress(HermesError):
                    await place.run_script(scripts.REMOVE, path)

    async def _run(self, argv: Sequence[str | bytes], env: Mapping[bytes, bytes]) -> dict[str, Any]:
        if self._why:
            return self._never_ran("it was ended before it started")
        self._channel = await self._place.spawn(argv, self._streams, env)
        self._begun = self._loop.time()
        self._streams.attach(self._channel)
        if self._why:
            self._stop_now()
        deadline = None
        if self._limit_s is not None:
            deadline = self._loop.call_later(self._limit_s, self.stop, "timed_out")
        exit = await self._streams.command_exit
        if deadline is not None:
            deadline.cancel()
        if self._stopper is not None:
            await self._stopper
            exit = await self._streams.channel_exit
        return self._outcome(exit)

    def _never_ran(self, reason: str) -> dict[str, Any]:
        return {self._why: True, "duration": 0.0, "shell": NO_SHELL, "note": f"{reason}, so nothing ran"}

    def _outcome(self, exit: Exit) -> dict[str, Any]:
        told = self._streams.status_line.result() if self._streams.status_line.done() else None
        if told == b"cwd":
            return {"error": "cwd", "errno": 2, "message": os.fsdecode(self._launch.cwd)}
        answer: dict[str, Any] = {"duration": self._loop.time() - self._begun, "shell": NO_SHELL}
        if self._why:
            answer[self._why] = True
        if self._note:
            answer["note"] = self._note
        if told == b"program":
            return {**answer, "error": "program", "errno": 2, "code": 127, "message": os.strerror(2)}
        if exit.lost:
            if not (self._let_go or self._all_gone):
                raise OutcomeUnknown(f"the target was lost while this ran ({exit.lost})")
        elif told is None and not self._why:  # it reports before it starts anything, so nothing was started
            how = f"signal {exit.signal}" if exit.code is None else f"exit code {exit.code}"
            said = self._streams.preamble.decode("utf-8", "replace").strip()[-300:]
            return {"error": "failed", "message": f"the target did not start it ({how}) {said}".strip()}
        elif exit.code is None:
            answer["signal"] = exit.signal
        else:
            answer["code"] = exit.code
        return answer

    async def result(self) -> dict[str, Any]:
        """Wait for the answer. A cancelled wait ends the command, and returns when it is gone."""
        try:
            return await asyncio.shield(self._answer)
        except asyncio.CancelledError:
            await self.end()
            raise

    async def write(self, data: bytes, /) -> None:
        """Send input, waiting while more than 4 MiB are unsent; input without a reader is dropped."""
        await self._streams.write(data)

    def write_eof(self) -> None:
        """End the input."""
        self._streams.write_eof()

    def acknowledge(self, channel: int, count: int, /) -> None:
        """Acknowledge ``count`` more consumed bytes of a stream."""
        self._streams.acknowledge(channel, count)

    def cancel(self) -> None:
        """End the command and its process tree."""
        self.stop("cancelled")

    async def settle(self) -> None:
        """Wait for its answer."""
        await self.result()

    async def end(self) -> None:
        """End the command, and wait for that."""
        self.cancel()
        await asyncio.wait([self._answer])

    async def close(self, grace_s: float) -> None:
        """End the command within a shorter grace period, and wait for that."""
        self._grace_s = min(self._grace_s, grace_s)
        await self.end()

    def stop(self, why: str) -> None:
        """End the command because of ``why``; the answer follows when it is gone."""
        if self._why or self.over or self._streams.command_exit.done():
            return
        self._why = why
        if self._work is None:
            self._finish(self._never_ran("it was still waiting for its turn"))
            return
        if why == "cancelled":
            self._expect_end(0.0)
        if self._channel is not None:
            self._stop_now()

    def _stop_now(self) -> None:
        self._stopper = self._loop.create_task(self._end_processes())

    async def _end_processes(self) -> None:
        """End the processes that can be found, wait for the rest of the output, then release the channel."""
        root = await self._root()
        if root is None:
            self._note = "its processes cannot be looked at in this target, so some may go on"
        else:
            try:
                left = await kill_tree(self._place, root, self._grace_s, self._streams.channel_exit)
            except HermesError as error:
                self._note = f"some of its processes may go on ({error.what})"
            else:
                self._all_gone = not left
                if left:
                    self._note = f"these processes could not be ended: {left}"
                self._streams.lift_window()
                await asyncio.wait([self._streams.channel_exit], timeout=_HOLD_S)
        if not self._streams.channel_exit.done() and self._channel is not None:
            if self._all_gone:
                self._note = "a process that had left the command's tree kept its output open and may go on"
            self._let_go = True
            self._channel.kill()

    async def _root(self) -> ProcessStat | None:
        """Return the process that the command began as; None if it cannot be determined."""
        told = self._streams.status_line
        either: list[asyncio.Future[Any]] = [told, self._streams.channel_exit]
        await asyncio.wait(either, timeout=_START_S, return_when=asyncio.FIRST_COMPLETED)
        return ProcessStat.parse(told.result().partition(b" ")[2]) if told.done() else None


async def kill_tree(place: ShellTarget, root: ProcessStat, grace_s: float, closed: asyncio.Future[Exit]) -> list[int]:
    """Send TERM to ``root`` and its tree, KILL after the grace period; return the surviving pids.

    Processes once seen are remembered, so they are found again after their parent has exited. ``closed`` is the end of
    the command's channel, after which a check is worthwhile.

    Raises:
        PlaceError: the target could not be examined, so it is unknown which processes are alive.
    """
    loop = asyncio.get_running_loop()
    kill_at = loop.time() + grace_s
    known = {str(root): None}  # an ordered set
    living = await place.signal_tree("TERM" if grace_s > 0 else "0", list(known))
    if living:
        await asyncio.wait([closed], timeout=grace_s)
    pause = _PAUSE_S
    while living:
        known.update(dict.fromkeys(living))
        if loop.time() >= kill_at:
            living = await place.signal_tree("KILL", list(known))
            break
        living = await place.signal_tree("0", list(known))
        if living:
            await asyncio.sleep(min(pause, max(0.0, kill_at - loop.time())))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
    return [int(process.partition(":")[0]) for process in living]
