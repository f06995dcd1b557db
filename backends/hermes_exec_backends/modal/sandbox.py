"""One sandbox of Modal: its execs, its state, and how it ended."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from hermes_exec._async import create_or_rollback
from hermes_exec.errors import ConfigError, HermesError, PlaceGone, PlaceUnavailable
from hermes_exec.observe.spending import record_end
from hermes_exec_backends._shared.backoff import repeat
from hermes_exec_backends.modal import lease
from hermes_exec_backends.modal.channel import ExecChannel
from hermes_exec_backends.modal.errors import Exhausted, NotFound, Trouble

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec.backend import Channel, Exit, Receiver
    from hermes_exec_backends.modal.account import Account

_LONGEST_ARGV = 60_000
"""In characters; the SDK refuses 65,536 before any request. No argv of this project is near that."""
_FAREWELL_S = 2.0
_BY_HAND = "hermes-exec backends --cost shows it; end it at https://modal.com/sandboxes"
_TIMEOUT, _KILLED = 124, 137
_ENDED = {
    0: "it ended by itself (its lease or its idle timeout was over)",
    _TIMEOUT: "its time was over",
    _KILLED: "it was terminated, evicted, or had used up its memory; Modal does not say which",
}


class Sandbox:
    """A sandbox that exists, or existed; ``handle`` is the SDK's."""

    def __init__(self, account: Account, handle: Any) -> None:
        self._account = account
        self.handle = handle
        self._channels: set[ExecChannel] = set()

    @property
    def id(self) -> str:
        """Return the sandbox's ID at Modal."""
        return str(self.handle.object_id)

    async def spawn(
        self, argv: Sequence[str | bytes], receiver: Receiver, env: Mapping[str, str], *, bulk: bool = False
    ) -> Channel:
        """Start a program in the sandbox; ``bulk`` as for ``Pipes``.

        Raises:
            PlaceGone: the sandbox has ended.
            PlaceUnavailable: it could not be started; nothing ran.
        """
        words = [os.fsdecode(word) for word in argv]
        if sum(map(len, words)) > _LONGEST_ARGV:
            raise ConfigError("modal: the command is too long for an argument list", remedy="send it as a file")
        work = self._call(
            "modal: the command was not started", self.handle.exec.aio(*words, text=False, env=dict(env) or None)
        )
        process = await create_or_rollback(work, self._discard_process)
        return self._channel(process, receiver, bulk=bulk)

    def _channel(self, process: Any, receiver: Receiver, *, bulk: bool = False) -> ExecChannel:
        channel = ExecChannel(process, receiver, self.death, bulk=bulk)
        self._channels = {each for each in self._channels if not each.over.is_set()} | {channel}
        return channel

    async def _discard_process(self, process: Any) -> None:
        """End the input of a program whose caller was cancelled."""
        channel = self._channel(process, Collector())
        channel.abandon()
        await channel.over.wait()

    async def _call(self, what: str, work: Any) -> Any:
        try:
            return await self._account.call(what, work)
        except ConfigError as error:  # a missing program is refused like a wrong argument
            raise PlaceUnavailable(error.what) from error
        except (NotFound, PlaceGone) as error:
            raise PlaceGone(f"modal: the sandbox {self.id} is gone: {await self.death() or error.what}") from error
        except PlaceUnavailable as error:
            why = await self._death_or_nothing()
            if why:
                raise PlaceGone(f"modal: the sandbox {self.id} is gone: {why}") from error
            raise

    async def death(self) -> str:
        """Describe how the sandbox ended; empty while it runs.

        Raises:
            PlaceUnavailable: Modal does not answer.
        """
        try:
            code = await self._account.call(f"modal: the sandbox {self.id}", self.handle.poll.aio())
        except NotFound:
            return "Modal knows it no more"
        return "" if code is None else _ENDED.get(code, f"it ended with exit code {code}")

    async def _death_or_nothing(self) -> str:
        try:
            return await self.death()
        except PlaceUnavailable:
            return ""

    async def run(self, argv: Sequence[str], limit_s: float = 60.0) -> bytes:
        """Run a short internal program in the sandbox; return its standard output.

        Raises:
            PlaceUnavailable: it could not be started, failed, or did not end in time.
        """
        receiver = Collector()
        channel = await self.spawn(argv, receiver, {})
        channel.write_eof()
        try:
            async with asyncio.timeout(limit_s):
                exit = await receiver.ended
        except TimeoutError:
            channel.kill()
            raise PlaceUnavailable(f"modal: {argv[0]} was not through within {limit_s:g} s") from None
        if exit.code != 0:
            raise PlaceUnavailable(f"modal: {argv[0]} in the sandbox failed: {exit.lost or exit}")
        return bytes(receiver.data)

    async def renew(self, lease_s: float) -> None:
        """Renew the lease for that long.

        Raises:
            PlaceUnavailable: the lease could not be renewed.
        """
        await self.run(lease.renewal(lease_s))

    async def snapshot(self, limit_s: float = 600.0) -> Any:
        """Save the sandbox's files as an image, which is kept until it is deleted.

        Raises:
            PlaceUnavailable: it could not be created.
        """
        # Without an expiry of the image: the SDK's default is thirty days, after which the files would be lost.
        work = self.handle.snapshot_filesystem.aio(timeout=round(limit_s), ttl=None)
        return await self._call(f"modal: the snapshot of {self.id}", work)

    async def terminate(self) -> None:
        """End the sandbox, and wait until it has ended. An ended sandbox is not an error.

        Raises:
            PlaceUnavailable: Modal does not confirm it.
        """
        what = f"modal: the sandbox {self.id} was not ended"
        try:
            await repeat(lambda: self._account.call(what, self.handle.terminate.aio(wait=True)), (Trouble, Exhausted))
        except (NotFound, PlaceGone):
            return
        except PlaceUnavailable as error:
            raise PlaceUnavailable(f"{error.what}; it may cost until its lease ends it", remedy=_BY_HAND) from error
        record_end(f"modal:@{self.id}")

    async def detach(self) -> None:
        """Close the connection to the sandbox's worker, after pending messages were sent."""
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await asyncio.gather(*(channel.over.wait() for channel in self._channels))
        except TimeoutError:
            pass  # pending messages end with the connection
        try:
            await self._account.call("modal", self.handle.detach.aio(), 5.0)
        except HermesError:
            return  # there was no connection


class Collector:
    """A receiver that collects the output of a short program."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def on_data(self, data: bytes, /) -> None:
        """Add standard output."""
        self.data += data

    def on_stderr(self, data: bytes, /) -> None:
        """Ignore error output."""

    def on_close(self, exit: Exit, /) -> None:
        """Record the end of the program, or the loss of its channel."""
        if not self.ended.done():
            self.ended.set_result(exit)
