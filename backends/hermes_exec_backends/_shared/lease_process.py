"""A process of ours that holds what a place consists of, for the wrappers whose places have to be kept and ended.

It makes something (a container's instance, a step of an allocation), says so in a line that begins with ``hx``, and
then waits for the end of its standard input: that is how it learns that nobody is there any more, however that came.
What a lease means from then on is for each such program to know; nothing depends on us being there to clean up.
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
    """The channel to such a process. Made by ``Holder.start``."""

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
        """Start ``argv`` and wait for its line; ``on_end`` is then told how it ended, unless it was let go.

        Where the wait is cancelled, ``farewell`` is what makes it undo what it has begun; it has some seconds for that.

        Raises:
            PlaceUnavailable: it ended without one, or gave none in time; it is not running any more.
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
        """The words of its line."""
        return self.line.result()

    async def _say(self, farewell: bytes) -> None:
        if self._channel is not None:
            self._channel.write(farewell)
            self._channel.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_UNDO_S):
                await self._over.wait()

    def disconnect(self) -> None:
        """Let it learn that nobody is there."""
        self._on_end = None
        if self._channel is not None:
            self._channel.write_eof()
            self._channel.abandon()

    def on_data(self, data: bytes, /) -> None:
        """Its line may follow what login scripts print."""
        if self.line.done() or len(self._stdout) > _MOST:
            return
        self._stdout += data
        *whole, self._stdout = self._stdout.split(b"\n")
        for line in whole:
            if line.startswith(_MARK) and not self.line.done():
                self.line.set_result(line[len(_MARK) :].decode("utf-8", "replace").split())

    def on_stderr(self, data: bytes, /) -> None:
        """What it complains of."""
        self._stderr = (self._stderr + data)[-4096:]

    def on_close(self, exit: Exit, /) -> None:
        """It ended, or its channel was lost."""
        said = self._stderr.decode("utf-8", "replace").strip()
        how = exit.lost or (f"exit code {exit.code}" if exit.code is not None else f"signal {exit.signal}")
        self.ended = said or how
        self._over.set()
        if not self.line.done():
            self.line.set_exception(PlaceUnavailable(self.ended))
            self.line.exception()
        elif self._on_end is not None:
            self._on_end(self.ended)
