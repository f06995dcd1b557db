"""The transport through a guest: requests over a link, which replaces its channel whenever that breaks.

Request ids ascend. On reconnecting, the guest reports the highest id and the offset of each input stream that it has
received; the link sends the rest again. When the guest itself is gone, pending requests fail with ``OutcomeUnknown``.
The watchdog pings a guest that does not answer, and fails requests that are overdue while the target is out of reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any

from hermes_exec.backend import get_bulk_transfer, get_resource_id
from hermes_exec.errors import Closed, HermesError, OutcomeUnknown, PlaceGone, PlaceUnavailable, ProtocolError
from hermes_exec.guest.core import wire
from hermes_exec.terminal.encoding import encode
from hermes_exec.transport import bootstrap
from hermes_exec.transport.bootstrap import GuestModules
from hermes_exec.transport.call import GRACE_S, NEVER_RAN, DiscardSink, GuestCall, GuestLost, LeaseExpired
from hermes_exec.transport.guest_connection import GuestConnection, Welcome, read_fatal
from hermes_exec.transport.heartbeat import Heartbeat
from hermes_exec.transport.pipe_handoff import PipeHandoff
from hermes_exec.transport.protocol import Capabilities, wrong_loop

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hermes_exec.backend import Backend, Channel
    from hermes_exec.transport.protocol import RunningCommand, Sink

_RECEIPTS_S = 0.05
_BACKOFF_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_CLOSE_S = 15.0
_PING = wire.frame(wire.PING, 0, 0)


def request_frame(number: int, operation: str, arguments: Mapping[str, Any]) -> bytes:
    """Return the frame of a request; raise ProtocolError if it is too large, before anything is sent."""
    payload = wire.pack([operation, arguments])
    if len(payload) > wire.MAX_REQUEST:
        raise ProtocolError("the request is larger than 64 MiB", remedy="send it as a file")
    return wire.frame(wire.REQUEST, 0, number, payload)


def read_answer(payload: bytes) -> dict[str, Any]:
    """Return the fields of an answer, unchecked; raise WireError unless the payload is a map."""
    answer: Any = wire.unpack(payload)
    if not isinstance(answer, dict):
        raise wire.WireError("RESULT payload is not a map")
    return answer  # pyright: ignore[reportUnknownVariableType]  each field is checked by its reader


class Receipts:
    """Acknowledges answers to the guest, with the next request or after 50 ms, so that it can forget them."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers: list[int] = []
        self._due = False

    def add(self, number: int) -> None:
        """Note that the answer to this request has arrived."""
        self._link.damaged_connections = 0
        self._numbers.append(number)
        if not self._due:
            self._due = True
            self._link.loop.call_later(_RECEIPTS_S, self._send)

    def take(self) -> list[bytes]:
        """Return a frame for the new ones, if there are any. ATTACH makes up for a frame that is lost."""
        if not self._numbers:
            return []
        payload = b"".join(map(wire.OFFSET.pack, self._numbers))
        self._numbers.clear()
        return [wire.frame(wire.FORGET, 0, 0, payload)]

    def _send(self) -> None:
        self._due = False
        if self._numbers:
            self._link.send(*self.take())


class TargetSilent(OutcomeUnknown):
    """The target was out of reach when the answer was due; the request is cancelled on the next connection."""

    def __init__(self, silence_s: float) -> None:
        super().__init__(
            f"no byte came from the target for {silence_s:.0f} s, and this should have ended by now",
            remedy="check there whether it ran, before you run it again",
            state="unknown: it ran once at most, and is ended when the target is reached",
        )


class Watchdog:
    """Drops silent connections, and fails requests that are overdue while the target is out of reach.

    An idle link sends no pings; it detects a loss on the next request.
    """

    def __init__(self, link: Link, calls: Mapping[int, GuestCall], interval_s: float) -> None:
        self._link = link
        self._calls = calls
        self._suspended = False
        self._heartbeat = Heartbeat(interval_s, lambda: link.send(_PING), self._break, self._is_awaited)
        self.record_activity = self._heartbeat.record_activity
        self.patience_s = self._heartbeat.patience_s

    def watch_call(self, call: GuestCall, operation: str, arguments: Mapping[str, Any]) -> None:
        """Watch a request that was just sent, by a timer of our own if it has a time limit."""
        call.awaited = operation != "session"
        if call.awaited and self._link.connected:
            self._heartbeat.watch()
        if "timeout" in arguments:
            call.start_deadline(arguments["timeout"] + arguments.get("grace", GRACE_S))

    def on_connect(self) -> None:
        """Start to watch a new connection."""
        self._heartbeat.record_activity()
        self._heartbeat.watch()

    def on_disconnect(self) -> None:
        """Stop to watch a connection that is gone."""
        self._heartbeat.stop()
        self._give_up_overdue()

    def suspend(self, *, on: bool) -> None:
        """Expect no answer from the guest while the target is suspended."""
        self._suspended = on
        self._heartbeat.stop()
        if not on and self._link.connected:
            self._heartbeat.watch()

    def on_deadline(self, call: GuestCall) -> None:
        """Fail a request whose answer is overdue, once the target was out of reach for too long."""
        call.overdue = True
        self._give_up_overdue()

    def _is_awaited(self) -> bool:
        return not self._suspended and any(call.awaited and not call.answer.done() for call in self._calls.values())

    def _break(self) -> None:
        self._link.log.info("the guest was silent for %g s, so its connection counts as broken", self.patience_s)
        self._link.break_connection()

    def _give_up_overdue(self) -> None:
        overdue = [call for call in self._calls.values() if call.overdue and not call.answer.done()]
        if not overdue or self._suspended or self._link.connected:
            return  # a connected guest answers itself, and the end of a connection leads here again
        left_s = self.patience_s - self._heartbeat.silence_s
        if left_s > 0:
            self._link.loop.call_later(left_s, self._give_up_overdue)
            return
        for call in overdue:
            if call.number <= self._link.last_sent:
                call.abandon(TargetSilent(self._heartbeat.silence_s))
            elif call.cancelled:
                call.abandon(None)
            else:
                call.abandon(PlaceUnavailable("the target was out of reach for the whole time limit, so nothing ran"))


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
        self.guest_remains, self.adopts_orphans = (
            False,
            True,
        )  # whether the guest outlives this client for jobs or others; see Welcome
        traits = backend.traits
        self.shares_host, self.authenticated, self.bulk_transfer = (
            traits.shares_host,
            traits.authenticated,
            get_bulk_transfer(backend),
        )
        self.damaged_connections = 0  # consecutive connections that ended by lost or changed bytes without any progress
        self._backend, self.checksum = backend, traits.needs_checksum
        self.target = backend.target
        """The one-line target of the backend."""
        self.log = logging.LoggerAdapter(logging.getLogger("hermes_exec.transport"), {"target": backend.target})
        self.client = os.urandom(16)  # the client id for the guest
        self._env = {encode(name): encode(value) for name, value in env.items()}
        self._cwd = None if cwd is None else encode(cwd)
        self._lease_s = lease_s
        self._pythons = [python] if python else list(traits.pythons)
        same = traits.same_python and python in {None, *traits.pythons[:1]}
        self._kind: bootstrap.Kind = "code" if same else "source" if traits.high_latency else "both"
        self._python, self._number, self.last_sent = "", 0, 0  # sent: the highest id that was written to a channel
        self._calls: dict[int, GuestCall] = {}
        self._loans = PipeHandoff(self._calls, near=traits.shares_host)
        self._attempt: GuestConnection | None = None
        self._channel: Channel | None = None
        self._parts = GuestModules(self.send, self._kind)
        self._receipts = Receipts(self)
        self._reconnecting: asyncio.Task[None] | None = None
        self._lost: HermesError | None = None
        self._gone = asyncio.Event()
        self.watchdog = Watchdog(self, self._calls, backend.options.keepalive_s)
        self.record_activity = self.watchdog.record_activity

    async def open(self) -> None:
        """Start a guest in the target.

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
                self.log.info("no guest by %s", reasons[-1])
            else:
                return
        raise PlaceUnavailable(
            "; ".join(reasons) or "no interpreter to try",
            remedy='install Python 3.6 or later in the target, or set `carrier = "plain"`',
        )

    async def attach(self, guest: Mapping[str, Any], python: str, client: bytes | None = None) -> None:
        """Attach to a running guest; ``guest`` is its ``identity``.

        Without ``client`` the guest registers a new client. With the id of a process that is gone, this link takes over
        that client's requests.
        """
        self.guest = dict(guest)
        self._python = python
        self.client = client or self.client
        self._number = (await self._bridge(known=client is not None)).highest

    @property
    def identity(self) -> dict[str, Any]:
        """The guest's identity, as ``attach`` takes it."""
        return {**self.guest, "interpreter": self._python, "place": get_resource_id(self._backend)}

    @property
    def connected(self) -> bool:
        """Whether the link has a channel now."""
        return self._channel is not None

    def call(self, operation: str, arguments: Mapping[str, Any], sink: Sink | None = None) -> GuestCall:
        """Send a request at once; while the link is down it waits for the next channel.

        Raises:
            UsageError: another event loop than the link's runs; nothing was sent.
        """
        self._check_loop()
        if self._lost is not None:
            raise self._lost
        number = self._number = self._number + 1
        frame = request_frame(number, operation, arguments)
        call = GuestCall(self, number, frame, sink or DiscardSink(), self.watchdog.on_deadline)
        self._calls[number] = call
        self.send(*self._receipts.take(), call.frame)
        self.watchdog.watch_call(call, operation, arguments)
        return call

    async def request(self, operation: str, arguments: Mapping[str, Any], sink: Sink | None = None) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        return await self.call(operation, arguments, sink).answer

    def load_part(self, part: str) -> None:
        """Send a part of the guest that the next request needs, unless the guest has it."""
        self._check_loop()
        self._parts.load(part)

    def _check_loop(self) -> None:
        """Raise UsageError on another event loop, where the caller would never be woken."""
        if asyncio._get_running_loop() not in {self.loop, None}:  # noqa: SLF001  cheap, and None without a loop
            raise wrong_loop()

    def send(self, *frames: bytes, data: bytes | memoryview = b"") -> None:
        """Write frames, the last one with ``data``; dropped while the link is down: reconnecting resends them."""
        if self._channel is not None and self._attempt is not None:
            self._channel.write(*self._attempt.seal(*frames, data=data))

    async def drain(self) -> None:
        """Wait until the send buffer has room."""
        if self._channel is not None and self._channel.unsent > wire.WINDOW:
            await self._channel.drain()

    async def close(self) -> None:
        """End everything of this client in the target; the guest ends too, unless jobs or other clients need it."""
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
        """Drop the channel without a BYE, as a crash would; the guest keeps running until its leases expire."""
        self._lost = Closed("the terminal is detached")
        self._drop_channel()
        self._fail_all(Closed("the terminal was detached while this ran", state="it continues"))

    def break_connection(self) -> None:
        """Break the channel, as a failing network would; the link reconnects."""
        attempt, channel = self._attempt, self._channel
        if attempt is not None and channel is not None:
            self.on_closed(attempt)  # at once, whatever the channel does
            channel.abandon()

    def on_frame(self, kind: int, channel: int, number: int, payload: bytes) -> None:
        """Handle a complete frame."""
        if kind == wire.RESULT:
            answer = read_answer(payload)
            call = self._calls.pop(number, None)
            if call is not None:
                self._receipts.add(number)
                call.set_answer(answer)
        elif kind == wire.CREDIT:
            if number in self._calls:
                self._calls[number].on_credit(wire.OFFSET.unpack(payload)[0])
        elif kind in {wire.HANDOFF, wire.RECLAIM}:
            self._loans.on_frame(kind, channel, number, payload)
        elif kind == wire.WELCOME and self._attempt is not None:
            self._attempt.on_welcome(payload)
        elif kind == wire.BYE:
            ends = wire.unpack(payload)["ends"]
            self.log.info("the guest %s", "ends" if ends else "stays: it has jobs, or other clients")
            if not ends:
                self.guest_remains = True
                self._drop_channel()
                self._gone.set()
        elif kind == wire.FATAL:
            raise read_fatal(payload)
        elif kind not in {wire.EVENT, wire.PONG}:
            raise wire.WireError(f"frame kind {kind}")

    def on_data(self, channel: int, number: int, position: int, data: bytes) -> None:
        """Handle bytes of a stream, from offset ``position`` on."""
        call = self._calls.get(number)
        if call is not None and channel < 3:
            call.receive(channel, position, data)

    def on_protocol_error(self, error: HermesError) -> None:
        """Give up a guest that violates the protocol; its further messages are ignored."""
        self.guest_remains = self._parts.may_outlive_client  # the guest may still run
        self._lose(error)

    def on_closed(self, attempt: GuestConnection) -> None:
        """Handle the end of a channel: reconnect unless the link is closed."""
        if attempt is self._attempt:
            self._loans.release_all()
        if attempt is not self._attempt or self._channel is None:
            return
        self._channel, self.last_sent = None, self._number
        self._gone.set()
        self.watchdog.on_disconnect()
        if self._lost is None:
            self.log.info("the connection broke; its lease runs, %g s", self._lease_s)
            self._reconnecting = self.loop.create_task(self._reconnect())

    async def _start(self) -> Welcome:
        attempt = GuestConnection(self)
        argv, payload = bootstrap.guest_command(attempt.nonce, self._kind, guarded=self._backend.traits.guarded)
        frames = attempt.seal(self._attach(known=False), *self._parts.initial_frames())
        return await self._connect(attempt, argv, [payload, *frames])

    async def _connect(self, attempt: GuestConnection, argv: list[str], first: Iterable[bytes | memoryview]) -> Welcome:
        self._attempt = attempt
        welcome = await attempt.connect(self._backend, [self._python, *argv], first)
        self.guest, self.adopts_orphans = welcome.guest, welcome.adopts_orphans
        self._parts.set_loaded(welcome.parts)
        self._channel = attempt.channel
        self._gone.clear()
        self.watchdog.on_connect()
        return welcome

    def _attach(self, *, known: bool) -> bytes:
        hello = {
            "client": self.client,
            "known": known,
            "lease_s": self._lease_s,
            "env": self._env,
            "cwd": self._cwd,
            "near": self._loans.shares_host,
            "checksum": self.checksum,
            "received": [[call.number, *call.received] for call in self._calls.values()],
        }
        return wire.frame(wire.ATTACH, 0, 0, wire.pack(hello))

    async def _bridge(self, *, known: bool) -> Welcome:
        attempt, hello = GuestConnection(self, is_bridge=True), self._attach(known=known)
        return await self._connect(attempt, bootstrap.bridge_argv(self.guest, attempt.nonce), attempt.seal(hello))

    async def _reconnect(self) -> None:
        give_up = self.loop.time() + self._lease_s
        for pause in (*_BACKOFF_S, *([_BACKOFF_S[-1]] * 100_000)):
            await asyncio.sleep(pause)
            try:
                welcome = await self._bridge(known=True)
            except Exception as error:  # noqa: BLE001  any other error must not leave callers waiting forever
                why = error.what if isinstance(error, HermesError) else str(error)
                gone = isinstance(error, PlaceGone) or (
                    self._attempt is not None and self._attempt.guest_is_unreachable
                )
                if gone or not isinstance(error, PlaceUnavailable) or self.loop.time() > give_up:
                    self.guest_remains = not gone and self._parts.may_outlive_client  # the guest may still run
                    self._lose(GuestLost(why))
                    return
                self.log.info("no new connection yet: %s", why)
            else:
                if welcome.lapsed:
                    self._fail_all(LeaseExpired(self._lease_s), self.last_sent)  # later requests were not sent yet
                self._resume(welcome)
                return

    def _resume(self, welcome: Welcome) -> None:
        self.log.info("connected again; %d requests go on", len(self._calls))
        self._parts.resend()
        for call in list(self._calls.values()):
            known = call.number <= welcome.highest
            if call.cancelled and not known:  # it was never started, and must not be now
                self._calls.pop(call.number).set_answer(NEVER_RAN)
                continue
            self.send(*call.resend(welcome.input_offsets.get(call.number, 0), known=known))

    def _lose(self, error: HermesError) -> None:
        self.log.info("the guest is given up: %s", error.what)
        self._lost = error
        self._fail_all(error)

    def _fail_all(self, error: HermesError, highest: int = (1 << 64) - 1) -> None:
        for number in [number for number in self._calls if number <= highest]:
            self._calls.pop(number).set_error(error)

    def _drop_channel(self) -> None:
        channel, self._channel, self.last_sent = self._channel, None, self._number
        self.watchdog.on_disconnect()
        self._loans.release_all()
        if channel is not None:
            channel.abandon()


class GuestTransport:
    """The transport that sends commands as requests over a link."""

    def __init__(self, link: Link, features: frozenset[str], *, reconnect: bool = True) -> None:
        self.link: Link | None = link
        self.close = link.close
        self._features = features
        self._link = link
        self._reconnect = reconnect

    def start(self, operation: str, arguments: Mapping[str, Any], sink: Sink, /) -> RunningCommand:
        """Send a command to the guest.

        Raises:
            PlaceUnavailable: the guest was lost before; nothing ran.
        """
        try:
            return self._link.call(operation, arguments, sink)
        except GuestLost as lost:
            raise PlaceUnavailable(f"the guest was lost before ({lost.why})", remedy="open the target again") from lost

    @property
    def capabilities(self) -> Capabilities:
        """All of them, except those that the target or its kernel lacks."""
        return Capabilities(
            carrier="guest",
            sessions=True,
            jobs=True,
            pty=True,
            file_transfer=True,
            forward=True,
            reconnect=self._reconnect,
            kill_tree=self._link.adopts_orphans,
            limits=True,
            features=self._features,
        )
