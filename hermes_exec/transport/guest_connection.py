"""One connection to a guest: the channel, its preamble, its frames and its end."""

from __future__ import annotations

import asyncio
import logging
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hermes_exec.errors import HermesError, OutcomeUnknown, PlaceUnavailable, ProtocolError
from hermes_exec.guest.core import wire
from hermes_exec.guest.core.malloc import keep_freed_memory
from hermes_exec.transport.protocol import GuestLink

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hermes_exec.backend import Backend, Channel, Exit

_log = logging.getLogger("hermes_exec.transport")
_WELCOME_S = 60.0
_PREAMBLE = 64 << 10
"""Bytes that login scripts may print before the guest's nonce."""
_STDERR = 4096
_MAX_DAMAGES = 8
"""Consecutive connections that may end by lost or changed bytes without any progress."""
_GONE, _ELSEWHERE = 113, 114
"""Exit codes of guest/core/bridge.py."""


@dataclass(frozen=True, slots=True)
class Welcome:
    """The guest's WELCOME frame, validated."""

    guest: dict[str, Any]
    """The guest's identity; ``folder``, ``host`` and ``boot`` are text."""
    highest: int
    input_offsets: dict[int, int]
    parts: frozenset[str]
    lapsed: bool
    """Whether the client's lease had expired, so that the guest ended all its work except jobs."""
    adopts_orphans: bool
    """Whether the guest is a subreaper, so that it can end orphans of the commands."""

    @classmethod
    def read(cls, payload: bytes) -> Welcome:
        """Read a frame's payload; raise WireError when it is invalid."""
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
            raise wire.WireError("its WELCOME frame is invalid")
        return welcome


def read_fatal(payload: bytes) -> wire.WireError:
    """Return the guest's reason for ending the connection; raise WireError when the payload is invalid."""
    value = wire.unpack(payload)
    return (wire.DamageError if value.get("damaged") is True else wire.WireError)(str(value["message"]))


class ConnectionOwner(GuestLink, Protocol):
    """The link that a connection reports to."""

    def record_activity(self) -> None:
        """Note that the guest has sent something."""

    def on_frame(self, kind: int, channel: int, number: int, payload: bytes) -> None:
        """Handle a complete frame."""

    def on_data(self, channel: int, number: int, position: int, data: bytes) -> None:
        """Handle bytes of a stream, from offset ``position`` on."""

    def on_protocol_error(self, error: HermesError) -> None:
        """Give up a guest that violates the protocol."""

    def on_closed(self, attempt: GuestConnection) -> None:
        """Handle the end of a channel."""


class GuestConnection:
    """One channel to a guest: skips output before the nonce, then parses frames, and reports its end to the link."""

    needs_output = True
    """See ``OutputReceiver``."""

    def __init__(self, link: ConnectionOwner, *, is_bridge: bool = False) -> None:
        keep_freed_memory()
        self.nonce = f"<hx {os.urandom(12).hex()}>"
        self.welcome: asyncio.Future[Welcome] = link.loop.create_future()
        self.stderr = b""
        self.over = False
        self._failed = False
        self.guest_is_unreachable = False
        """Whether a bridge reported that no later one reaches the guest: it is gone, or on another machine."""
        self.channel: Channel | None = None
        self._link = link
        self._is_bridge = is_bridge
        self._before: bytes | None = b""
        self._parser = wire.Parser(link.on_frame, link.on_data, wire.MAX_REPLY)
        self._sealer = wire.Sealer()
        self._sealer.checksum = self._parser.sealer.checksum = link.checksum

    def seal(self, *frames: bytes, data: bytes | memoryview = b"") -> Sequence[bytes | memoryview]:
        """Return frames as bytes for this channel, in this order; the last one continues with ``data``."""
        if data:
            (head,) = frames
            return self._sealer.parts(head, data)
        return [self._sealer.seal(frame) for frame in frames]

    async def connect(self, backend: Backend, argv: Sequence[str], first: Iterable[bytes | memoryview]) -> Welcome:
        """Start ``argv`` in the target, send ``first``, and wait for the guest's WELCOME.

        Raises:
            PlaceUnavailable: none arrived, or the channel ended with it; the started process is killed.
        """
        try:
            channel = self.channel = await backend.spawn(argv, self)
        except OutcomeUnknown as error:  # if it was started after all, it ends with its input
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

    def on_data(self, data: bytes, /) -> None:
        """Handle bytes from the guest."""
        if self._failed:
            return
        if self._before is not None:
            self._before += data
            noise, found, data = self._before.partition(self.nonce.encode())
            if not found:
                if len(self._before) > _PREAMBLE:
                    self._fail(ProtocolError(f"the target printed {noise[:200]!r} … and no guest answered"))
                return
            self._before = None
        if self.welcome.done():
            self._link.record_activity()
        try:
            self._parser.feed(data)
        except wire.DamageError as error:
            self._end_damaged(str(error))
        except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
            self._fail(ProtocolError(f"the guest broke the protocol: {error}"))

    def on_welcome(self, payload: bytes) -> None:
        """Handle a WELCOME frame."""
        if not self.welcome.done():
            self.welcome.set_result(Welcome.read(payload))

    def on_stderr(self, data: bytes, /) -> None:
        """Keep the end of standard error, with messages of interpreters and login scripts."""
        self.stderr = (self.stderr + data)[-_STDERR:]

    def on_close(self, exit: Exit, /) -> None:
        """Handle the end of the channel."""
        self.over = True
        self.guest_is_unreachable = self._is_bridge and exit.code in {_GONE, _ELSEWHERE}
        if not self.welcome.done():
            error = PlaceUnavailable(self._reason(exit))
            error.guest_is_gone = self._is_bridge and exit.code == _GONE
            self.welcome.set_exception(error)
            self.welcome.exception()
        self._link.on_closed(self)

    def _reason(self, exit: Exit) -> str:
        text = (self.stderr or self._before or b"").decode("utf-8", "replace").strip()
        how = exit.lost or (f"exit code {exit.code}" if exit.code is not None else f"signal {exit.signal}")
        return f"no guest answered ({how})" + (f": {text[-300:]}" if text else "")

    def _end_damaged(self, why: str) -> None:
        """End this channel; the link resumes on a new one at the last verified byte."""
        link = self._link
        link.damaged_connections += 1
        _log.info("the connection ends: %s", why)
        if not self.welcome.done():
            self._fail(PlaceUnavailable(f"the answer is damaged, or comes from no guest of this version ({why})"))
        elif link.damaged_connections > _MAX_DAMAGES:
            self._fail(
                ProtocolError(f"{link.damaged_connections} consecutive connections lost or changed bytes ({why})")
            )
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
            self._link.on_protocol_error(error)
        if self.channel is not None:
            self.channel.abandon()
