"""One try at reaching a guest: a channel, what is printed before the guest speaks, and how it ended."""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, OutcomeUnknown, PlaceUnavailable, ProtocolError
from hermes_exec.guest.core import wire
from hermes_exec.guest.core.malloc import keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec.backend import Backend, Channel, Exit
    from hermes_exec.transport.link import Link

_log = logging.getLogger("hermes_exec.transport")
_WELCOME_S = 60.0
_PREAMBLE = 64 << 10
"""Bytes that login scripts may print before the guest's first word."""
_STDERR = 4096
_MAX_DAMAGES = 8
"""Connections in a row that may end because bytes were lost or changed, with nothing new from any of them."""
_GONE, _ELSEWHERE = 3, 4
"""Exit codes of guest/bridge.py."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The first word of a guest, checked."""

    guest: dict[str, Any]
    """Where it is and who: ``folder``, ``host`` and ``boot`` are text."""
    highest: int
    inlets: dict[int, int]
    parts: frozenset[str]
    lapsed: bool
    """Whether our lease was over: all that we had there but jobs was ended, and it begins anew with us."""
    adopts: bool
    """Whether orphans of what it starts come to it, so that it can end them."""

    @classmethod
    def read(cls, payload: bytes) -> Welcome:
        """Take it from a frame; raises WireError when it makes no sense."""
        value = wire.unpack(payload)
        version = value.get("version")
        if version != wire.VERSION:
            raise wire.WireError(f"it speaks version {version}, not {wire.VERSION}")
        highest: Any = value["highest"]
        inlets: dict[Any, Any] = dict(value["inlets"])
        parts: frozenset[Any] = frozenset(value["parts"])
        lapsed, adopts = value.get("lapsed") is True, value.get("adopts", True) is True
        welcome = cls(dict(value["guest"]), highest, inlets, parts, lapsed, adopts)
        if not (
            all(isinstance(welcome.guest[name], str) for name in ("folder", "host", "boot"))
            and all(isinstance(number, int) for number in (highest, *inlets, *inlets.values()))
            and all(isinstance(name, str) for name in parts)
        ):
            raise wire.WireError("its welcome makes no sense")
        return welcome


def read_fatal(payload: bytes) -> wire.WireError:
    """Why the guest ends the connection, from its frame; raises WireError when it makes no sense."""
    value = wire.unpack(payload)
    return (wire.DamageError if value.get("damaged") is True else wire.WireError)(str(value["message"]))


class Attempt:
    """One channel: skips what is printed before the nonce, then parses; tells the link how it ended."""

    needs_output = True
    """See ``OutputReceiver``."""

    def __init__(self, link: Link) -> None:
        keep_freed_memory()
        self.nonce = f"<hx {os.urandom(12).hex()}>"
        self.welcome: asyncio.Future[Welcome] = link.loop.create_future()
        self.stderr = b""
        self.over = False
        self._failed = False
        self.guest_is_gone = False
        """Whether a bridge has said so: nothing answers there, and never will."""
        self.channel: Channel | None = None
        self._link = link
        self._before: bytes | None = b""
        self._parser = wire.Parser(link.on_frame, link.on_data, wire.MAX_REPLY)
        self._sealer = wire.Sealer()
        self._sealer.checksum = self._parser.sealer.checksum = link.checksum

    def seal(self, *frames: bytes, data: bytes | memoryview = b"") -> Sequence[bytes | memoryview]:
        """Frames as they are sent on this channel, in this order; the last one goes on with ``data``."""
        if data:
            (head,) = frames
            return self._sealer.parts(head, data)
        return [self._sealer.seal(frame) for frame in frames]

    async def reach(self, backend: Backend, words: Sequence[str], first: Iterable[bytes | memoryview]) -> Welcome:
        """Start ``words`` in the place, send what comes ``first``, and wait for the guest's first word.

        Raises:
            PlaceUnavailable: none came, or it was the last one; what was started is killed.
        """
        try:
            channel = self.channel = await backend.spawn(words, self)
        except OutcomeUnknown as error:  # a guest that was started after all ends with its input
            raise PlaceUnavailable(error.what, remedy=error.remedy) from error
        channel.write(*first)
        try:
            async with asyncio.timeout(_WELCOME_S):
                welcome = await asyncio.shield(self.welcome)
        except TimeoutError:
            channel.kill()
            raise PlaceUnavailable(f"no guest answered within {_WELCOME_S:g} s") from None
        except BaseException:
            channel.kill()
            raise
        if self.over:
            raise PlaceUnavailable("the channel broke as soon as the guest had answered")
        return welcome

    def received(self, data: bytes, /) -> None:
        """Bytes from the guest."""
        if self._failed:
            return
        if self._before is not None:
            self._before += data
            noise, found, data = self._before.partition(self.nonce.encode())
            if not found:
                if len(self._before) > _PREAMBLE:
                    self._fail(ProtocolError(f"the place printed {noise[:200]!r} … and no guest answered"))
                return
            self._before = None
        if self.welcome.done():
            self._link.watch.heard()
        try:
            self._parser.feed(data)
        except wire.DamageError as error:
            self._end_damaged(str(error))
        except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
            self._fail(ProtocolError(f"the guest broke the protocol: {error}"))

    def welcomed(self, payload: bytes) -> None:
        """A WELCOME frame came."""
        if not self.welcome.done():
            self.welcome.set_result(Welcome.read(payload))

    def stderr_received(self, data: bytes, /) -> None:
        """What interpreters and login scripts complain about."""
        self.stderr = (self.stderr + data)[-_STDERR:]

    def closed(self, exit: Exit, /) -> None:
        """The channel is gone."""
        self.over = True
        self.guest_is_gone = exit.code in {_GONE, _ELSEWHERE}
        if not self.welcome.done():
            self.welcome.set_exception(PlaceUnavailable(self._reason(exit)))
            self.welcome.exception()
        self._link.on_closed(self)

    def _reason(self, exit: Exit) -> str:
        said = (self.stderr or self._before or b"").decode("utf-8", "replace").strip()
        how = exit.lost or (f"exit code {exit.code}" if exit.code is not None else f"signal {exit.signal}")
        return f"no guest answered ({how})" + (f": {said[-300:]}" if said else "")

    def _end_damaged(self, why: str) -> None:
        """End this channel alone: the link goes on over a new one, at the last byte that is proven."""
        link = self._link
        link.damages += 1
        _log.info("the connection ends: %s", why)
        if not self.welcome.done():
            self._fail(PlaceUnavailable(f"what answers is damaged, or no guest of this version ({why})"))
        elif link.damages > _MAX_DAMAGES:
            self._fail(ProtocolError(f"{link.damages} connections in a row lost or changed bytes ({why})"))
        else:
            self._failed = True
            if self.channel is not None:
                self.channel.abandon()

    def _fail(self, error: HermesError) -> None:
        self._failed = True
        if not self.welcome.done():
            self.welcome.set_exception(error)
            self.welcome.exception()
        else:
            self._link.on_broken(error)
        if self.channel is not None:
            self.channel.abandon()
