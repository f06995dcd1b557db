"""A process that holds the resources of a target, for wrappers whose targets must be kept and ended.

It creates the resource (a container's instance, a step of an allocation), reports it in a line that begins with ``hx``,
and then waits for the end of its standard input: this end reports that the orchestrator is gone, for any reason. Each
such program defines how its lease works after that; cleanup never depends on the orchestrator.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from hermes_exec._async import shield_to_completion
from hermes_exec.errors import PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hermes_exec.backend import Backend, Channel, Exit

_MARK = b"hx "
_UNDO_S = 10.0
_MOST = 64 << 10


class LeaseProcess:
    """The channel to such a process. Created by ``LeaseProcess.start``."""

    def __init__(self, on_end: Callable[[str], None] | None) -> None:
        self.line: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.ended = ""
        self._on_end = on_end
        self._channel: Channel | None = None
        self._stdout = b""
        self._stderr = b""
        self._over = asyncio.Event()

    @classmethod
    async def start(
        cls,
        outer: Backend,
        argv: Sequence[str | bytes],
        *,
        patience_s: float,
        on_end: Callable[[str], None] | None = None,
        farewell: bytes = b"",
    ) -> LeaseProcess:
        """Start ``argv`` and wait for its line; ``on_end`` receives the end of the process, unless it was released.

        If the wait is cancelled, ``farewell`` is sent to undo the work of the process, which has some seconds for that.

        Raises:
            PlaceUnavailable: it ended without a line, or sent none in time; it no longer runs.
        """
        holder = cls(on_end)
        channel = holder._channel = await outer.spawn(argv, holder)
        try:
            async with asyncio.timeout(patience_s):
                await asyncio.shield(holder.line)
        except TimeoutError:
            channel.kill()
            raise PlaceUnavailable(f"no answer within {patience_s:g} s") from None
        except BaseException:
            if farewell:
                await shield_to_completion(holder._say(farewell))
            channel.kill()
            raise
        return holder

    @property
    def fields(self) -> list[str]:
        """Return the fields of the line."""
        return self.line.result()

    async def _say(self, farewell: bytes) -> None:
        if self._channel is not None:
            self._channel.write(farewell)
            self._channel.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_UNDO_S):
                await self._over.wait()

    def disconnect(self) -> None:
        """Close the process's input: the orchestrator is gone."""
        self._on_end = None
        if self._channel is not None:
            self._channel.write_eof()
            self._channel.abandon()

    def on_data(self, data: bytes, /) -> None:
        """Parse the line, which may follow output of login scripts."""
        if self.line.done() or len(self._stdout) > _MOST:
            return
        self._stdout += data
        *whole, self._stdout = self._stdout.split(b"\n")
        for line in whole:
            if line.startswith(_MARK) and not self.line.done():
                self.line.set_result(line[len(_MARK) :].decode("utf-8", "replace").split())

    def on_stderr(self, data: bytes, /) -> None:
        """Collect the error output."""
        self._stderr = (self._stderr + data)[-4096:]

    def on_close(self, exit: Exit, /) -> None:
        """Report that the process ended, or that its channel was lost."""
        said = self._stderr.decode("utf-8", "replace").strip()
        how = exit.lost or (f"exit code {exit.code}" if exit.code is not None else f"signal {exit.signal}")
        self.ended = said or how
        self._over.set()
        if not self.line.done():
            self.line.set_exception(PlaceUnavailable(self.ended))
            self.line.exception()
        elif self._on_end is not None:
            self._on_end(self.ended)
