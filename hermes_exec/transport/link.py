"""The link: one channel to one guest, and a new channel whenever that one breaks.

Requests carry rising ids. After a break the guest says which it has seen and how much of each input; only the
rest is sent again. When the guest itself is gone, requests without an answer end with ``OutcomeUnknown``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import get_bulk_transfer, get_resource_id
from hermes_exec.errors import Closed, HermesError, PlaceGone, PlaceUnavailable, ProtocolError
from hermes_exec.guest.core import wire
from hermes_exec.terminal.encoding import encode
from hermes_exec.transport import bootstrap
from hermes_exec.transport.call import NEVER_RAN, Call, Discard, Lapsed, Lost
from hermes_exec.transport.guest_connection import Attempt, Welcome, read_fatal
from hermes_exec.transport.guest_modules import Parts
from hermes_exec.transport.pipe_handoff import Loans
from hermes_exec.transport.watchdog import Watch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_exec.backend import Backend, Channel
    from hermes_exec.transport.protocol import Sink


_RECEIPTS_S = 0.05


def request_frame(number: int, operation: str, arguments: Mapping[str, Any]) -> bytes:
    """The frame of a request; raises ProtocolError on one that is too large, of which nothing was sent."""
    payload = wire.pack([operation, arguments])
    if len(payload) > wire.MAX_REQUEST:
        raise ProtocolError("the request is larger than 64 MiB", remedy="send it as a file")
    return wire.frame(wire.REQUEST, 0, number, payload)


def read_answer(payload: bytes) -> dict[str, Any]:
    """The fields of an answer, unchecked; raises WireError unless the payload is a map."""
    answer: Any = wire.unpack(payload)
    if not isinstance(answer, dict):
        raise wire.WireError("RESULT payload is not a map")
    return answer  # pyright: ignore[reportUnknownVariableType]  each field is checked by its reader


class Receipts:
    """Which answers have arrived: told to the guest with the next request, or soon."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers: list[int] = []
        self._due = False

    def add(self, number: int) -> None:
        """The answer to this request is here."""
        self._link.damages = 0
        self._numbers.append(number)
        if not self._due:
            self._due = True
            self._link.loop.call_later(_RECEIPTS_S, self._send)

    def take(self) -> list[bytes]:
        """A frame for those not told of yet, if there are any. One that is lost is made good on attaching."""
        if not self._numbers:
            return []
        payload = b"".join(map(wire.OFFSET.pack, self._numbers))
        self._numbers.clear()
        return [wire.frame(wire.FORGET, 0, 0, payload)]

    def _send(self) -> None:
        self._due = False
        if self._numbers:
            self._link.send(*self.take())


_BACKOFF_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_CLOSE_S = 15.0


class Link:
    """Requests to a guest, over channels that may break. Use it on one event loop only."""

    def __init__(
        self,
        backend: Backend,
        *,
        env: Mapping[str, str],
        cwd: str | None,
        lease_s: float = 900.0,
        python: str | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.guest: dict[str, Any] = {}
        self.stays, self.adopts = False, True  # whether it goes on for jobs or others once closed; see Welcome
        traits = backend.traits
        self.near, self.authenticated, self.mover = traits.shares_host, traits.authenticated, get_bulk_transfer(backend)
        self.damages = 0  # connections in a row that ended because bytes were lost or changed, and nothing new came
        self._backend, self.checksum = backend, traits.needs_checksum
        self._log = logging.LoggerAdapter(logging.getLogger("hermes_exec.transport"), {"target": backend.target})
        self.client = os.urandom(16)  # what the guest knows this one by
        self._env = {encode(name): encode(value) for name, value in env.items()}
        self._cwd = None if cwd is None else encode(cwd)
        self._lease_s = lease_s
        self._pythons = [python] if python else list(traits.pythons)
        same = traits.same_python and python in {None, *traits.pythons[:1]}
        self._kind: bootstrap.Kind = "code" if same else "source" if traits.high_latency else "both"
        self._python, self._number, self.sent = "", 0, 0  # sent: what a guest may know of while there is no channel
        self._calls: dict[int, Call] = {}
        self._loans = Loans(self._calls, near=traits.shares_host)
        self._attempt: Attempt | None = None
        self._channel: Channel | None = None
        self._parts = Parts(self.send, self._kind)
        self._receipts = Receipts(self)
        self._reconnecting: asyncio.Task[None] | None = None
        self._lost: HermesError | None = None
        self._gone = asyncio.Event()
        self.watch = Watch(self, self._calls, backend.options.keepalive_s)

    async def open(self) -> None:
        """Start a guest in the place.

        Raises:
            PlaceUnavailable: no interpreter there could run it; nothing is left behind.
        """
        reasons: list[str] = []
        for python in self._pythons:
            self._python = python
            try:
                await self._start()
            except PlaceUnavailable as error:
                reasons.append(f"{python}: {error.what}")
                self._log.info("no guest by %s", reasons[-1])
            else:
                return
        raise PlaceUnavailable(
            "; ".join(reasons) or "no interpreter to try",
            remedy='install Python 3.6 or later in the place, or set carrier = "plain"',
        )

    async def attach(self, guest: Mapping[str, Any], python: str, client: bytes | None = None) -> None:
        """Become a client of a guest that is there already; ``guest`` is its ``identity``.

        That is a new client, or the ``client`` of a process that is gone, to which its requests then belong.
        """
        self.guest = dict(guest)
        self._python = python
        self.client = client or self.client
        self._number = (await self._bridge(known=client is not None)).highest

    @property
    def identity(self) -> dict[str, Any]:
        """What ``attach`` needs to find this guest again."""
        return {**self.guest, "interpreter": self._python, "place": get_resource_id(self._backend)}

    @property
    def connected(self) -> bool:
        """Whether there is a channel at this moment."""
        return self._channel is not None

    def call(self, operation: str, arguments: Mapping[str, Any], sink: Sink | None = None) -> Call:
        """Send a request at once; while the link is down it waits for the next channel."""
        if self._lost is not None:
            raise self._lost
        number = self._number = self._number + 1
        call = Call(self, number, request_frame(number, operation, arguments), sink or Discard())
        self._calls[number] = call
        self.send(*self._receipts.take(), call.frame)
        self.watch.begin(call, operation, arguments)
        return call

    async def request(self, operation: str, arguments: Mapping[str, Any], sink: Sink | None = None) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        return await self.call(operation, arguments, sink).answer

    def need(self, part: str) -> None:
        """Send a part of the guest that the next request uses, unless it is there."""
        self._parts.need(part)

    def send(self, *frames: bytes, data: bytes | memoryview = b"") -> None:
        """Write frames, the last with ``data``; dropped while the link is down: a new channel sends what is missing."""
        if self._channel is not None and self._attempt is not None:
            self._channel.write(*self._attempt.seal(*frames, data=data))

    async def drained(self) -> None:
        """Return when more may be written."""
        if self._channel is not None and self._channel.unsent > wire.WINDOW:
            await self._channel.drained()

    async def close(self) -> None:
        """End what this client has in the place; its guest ends too unless jobs or others need it."""
        if self._lost is None and self._reconnecting is not None:
            await asyncio.wait([self._reconnecting], timeout=_CLOSE_S)
            self._reconnecting.cancel()
        if self._lost is None:
            self._lost = Closed("the terminal is closed")
            if self._channel is not None:
                self.send(wire.frame(wire.BYE, 0, 0))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._gone.wait(), _CLOSE_S)
        self._drop_channel()
        self._fail_all(Closed("the terminal was closed while this ran", state="it was stopped"))

    def detach(self) -> None:
        """Let the channel go without a word, as a crash would; the guest goes on until its leases end."""
        self._lost = Closed("the terminal is detached")
        self._drop_channel()
        self._fail_all(Closed("the terminal was detached while this ran", state="it goes on"))

    def cut(self) -> None:
        """Break the channel, as a failing network would; the link reconnects by itself."""
        attempt, channel = self._attempt, self._channel
        if attempt is not None and channel is not None:
            self.on_closed(attempt)  # at once, whatever the channel does
            channel.abandon()

    def on_frame(self, kind: int, channel: int, number: int, payload: bytes) -> None:
        """A whole frame came."""
        if kind == wire.RESULT:
            answer = read_answer(payload)
            call = self._calls.pop(number, None)
            if call is not None:
                self._receipts.add(number)
                call.answered(answer)
        elif kind == wire.CREDIT:
            if number in self._calls:
                self._calls[number].credited(wire.OFFSET.unpack(payload)[0])
        elif kind in {wire.LEND, wire.RECALL}:
            self._loans.told(kind, channel, number, payload)
        elif kind == wire.WELCOME and self._attempt is not None:
            self._attempt.welcomed(payload)
        elif kind == wire.BYE:
            ends = wire.unpack(payload)["ends"]
            self._log.info("the guest %s", "ends" if ends else "stays: it has jobs, or other clients")
            if not ends:
                self.stays = True
                self._drop_channel()
                self._gone.set()
        elif kind == wire.FATAL:
            raise read_fatal(payload)
        elif kind not in {wire.EVENT, wire.PONG}:
            raise wire.WireError(f"frame kind {kind}")

    def on_data(self, channel: int, number: int, position: int, data: bytes) -> None:
        """Bytes of a stream came, which begin at ``position``."""
        call = self._calls.get(number)
        if call is not None and channel < 3:
            call.receive(channel, position, data)

    def on_broken(self, error: HermesError) -> None:
        """The guest broke the protocol, or does not answer: nothing that it says is believed any more."""
        self.stays = self._parts.outlive  # for all that is known
        self._lose(error)

    def on_closed(self, attempt: Attempt) -> None:
        """A channel is gone: get a new one unless that was wanted."""
        if attempt is self._attempt:
            self._loans.let_go()
        if attempt is not self._attempt or self._channel is None:
            return
        self._channel, self.sent = None, self._number
        self._gone.set()
        self.watch.disconnected()
        if self._lost is None:
            self._log.info("the connection broke; its lease runs, %g s", self._lease_s)
            self._reconnecting = self.loop.create_task(self._reconnect())

    async def _start(self) -> Welcome:
        attempt = Attempt(self)
        argv, payload = bootstrap.guest(attempt.nonce, self._kind, guarded=self._backend.traits.guarded)
        frames = attempt.seal(self._attach(known=False), *self._parts.first())
        return await self._connect(attempt, argv, [payload, *frames])

    async def _connect(self, attempt: Attempt, argv: list[str], first: Iterable[bytes | memoryview]) -> Welcome:
        self._attempt = attempt
        welcome = await attempt.reach(self._backend, [self._python, *argv], first)
        self.guest, self.adopts = welcome.guest, welcome.adopts
        self._parts.told(welcome.parts)
        self._channel = attempt.channel
        self._gone.clear()
        self.watch.connected()
        return welcome

    def _attach(self, *, known: bool) -> bytes:
        hello = {
            "client": self.client,
            "known": known,
            "lease_s": self._lease_s,
            "env": self._env,
            "cwd": self._cwd,
            "near": self._loans.near,
            "checksum": self.checksum,
            "received": [[call.number, *call.received] for call in self._calls.values()],
        }
        return wire.frame(wire.ATTACH, 0, 0, wire.pack(hello))

    async def _bridge(self, *, known: bool) -> Welcome:
        attempt, hello = Attempt(self), self._attach(known=known)
        return await self._connect(attempt, bootstrap.bridge(self.guest, attempt.nonce), attempt.seal(hello))

    async def _reconnect(self) -> None:
        give_up = self.loop.time() + self._lease_s
        for pause in (*_BACKOFF_S, *([_BACKOFF_S[-1]] * 100_000)):
            await asyncio.sleep(pause)
            try:
                welcome = await self._bridge(known=True)
            except Exception as error:  # noqa: BLE001  whatever it is, nobody may wait for ever
                why = error.what if isinstance(error, HermesError) else str(error)
                gone = isinstance(error, PlaceGone) or (self._attempt is not None and self._attempt.guest_is_gone)
                if gone or not isinstance(error, PlaceUnavailable) or self.loop.time() > give_up:
                    self.stays = not gone and self._parts.outlive  # for all that is known
                    self._lose(Lost(why))
                    return
                self._log.info("no new connection yet: %s", why)
            else:
                if welcome.lapsed:
                    self._fail_all(Lapsed(self._lease_s), self.sent)  # what came after that was not sent yet
                self._resume(welcome)
                return

    def _resume(self, welcome: Welcome) -> None:
        self._log.info("connected again; %d requests go on", len(self._calls))
        self._parts.resume()
        for call in list(self._calls.values()):
            known = call.number <= welcome.highest
            if call.cancelled and not known:  # it did not begin, and must not begin now
                self._calls.pop(call.number).answered(NEVER_RAN)
                continue
            self.send(*call.resend(welcome.inlets.get(call.number, 0), known=known))

    def _lose(self, error: HermesError) -> None:
        self._log.info("the guest is given up: %s", error.what)
        self._lost = error
        self._fail_all(error)

    def _fail_all(self, error: HermesError, highest: int = (1 << 64) - 1) -> None:
        for number in [number for number in self._calls if number <= highest]:
            self._calls.pop(number).failed(error)

    def _drop_channel(self) -> None:
        channel, self._channel, self.sent = self._channel, None, self._number
        self.watch.disconnected()
        self._loans.let_go()
        if channel is not None:
            channel.abandon()
