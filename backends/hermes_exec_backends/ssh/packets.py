"""paramiko's packets, read on the event loop if the cipher is AES-GCM.

By itself paramiko decrypts on its own thread: each response then waits for two thread switches, and a large one is
copied six times. Here the loop reads the socket, decrypts the packets and keeps those of this project's channels; it
passes all others to paramiko's thread in order. ``Transport(packetizer_class=…)`` exists for this purpose. Before the
first keys, and with other ciphers, paramiko reads.
"""

from __future__ import annotations

import struct
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, cast

from cryptography.exceptions import InvalidTag
from paramiko import Message, SSHException, common
from paramiko.packet import NeedRekeyException, Packetizer

from hermes_exec_backends.ssh.aes_gcm import Key, whole_size
from hermes_exec_backends.ssh.channel_shim import Open
from hermes_exec_backends.ssh.protocol_requests import channel_asked_for

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

    from hermes_exec_backends.ssh.channel_shim import Stream
    from hermes_exec_backends.ssh.nonblocking_socket import NonblockingSocket

_DATA = struct.Struct(">BBII")
"""Of a packet with data or a window adjustment: padding, type, channel, size; stderr has a code before the size."""
_EXTENDED = struct.Struct(">BBIII")
_HEAD = struct.Struct(">BII")
"""Of a data packet before encryption: type, channel, size."""
_LAST_OF_TRANSPORT = 49
"""Packet types up to here may be sent during a key exchange (RFC 4253, 7.1)."""
_STDERR = 1
_OF_CHANNELS = {common.MSG_CHANNEL_DATA, common.MSG_CHANNEL_WINDOW_ADJUST, common.MSG_CHANNEL_EXTENDED_DATA}
_UNSEALED = "the keys changed to a kind of cipher that is not sealed here"
_MAX_AHEAD = 4096
"""The most packets that may wait for paramiko's thread."""
_WAKE_S = 0.5
"""The interval at which that thread checks its state when idle."""


def _nothing(*_: object) -> None:
    """Ignore the event: no callback is set."""


class Packets(Packetizer):
    """The encryption and decryption of one connection's packets."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._wire = cast("NonblockingSocket", sock)
        self._sending = threading.Lock()
        self._out: Key | None = None
        self._in: Key | None = None
        self._waiting: list[bytes] | None = None
        """During a key exchange: the packets to send with the new keys."""
        self._changing = False
        self._held = b""
        self._streams: dict[int, Stream] = {}
        self._inbox: SimpleQueue[tuple[int, Message] | Exception | None] = SimpleQueue()
        self._handed = self._taken = self._done = self._given = 0
        self._paused = False
        self._hasty = False
        self.on_login: Callable[[], object] = _nothing
        """Called after a login was requested."""
        self.on_too_early: Callable[[int], object] = _nothing
        """Called with the number of a channel that was requested before the login succeeded."""
        self._logged_in = self._refused = False
        self._early: int | None = None

    @property
    def opens(self) -> bool:
        """Return whether the received packets are decrypted here."""
        return self._in is not None

    @property
    def seals(self) -> bool:
        """Return whether ``send_data`` can be used."""
        return self._out is not None

    def adopt(self, transport: Any, *, hasty: bool) -> None:
        """Never block a thread during a key exchange: the event loop, which must not block, has to complete it.

        With ``hasty`` the confirmations that every host sends are assumed before they are received.
        """
        transport.clear_to_send = Open()
        self._hasty = hasty

    def take(self, number: int, stream: Stream) -> None:
        """Deliver a channel's packets to ``stream``."""
        self._streams[number] = stream

    def drop(self, number: int) -> None:
        """Deliver that channel's data to paramiko again."""
        self._streams.pop(number, None)

    def set_outbound_cipher(self, *args: Any, **options: Any) -> None:
        """Use new keys from the next packet on. On paramiko's thread."""
        super().set_outbound_cipher(*args, **options)
        with self._sending:
            self._out = Key(options["block_engine"], options["iv_out"]) if options["aead"] else None
            waiting, self._waiting = self._waiting, None
            for payload in waiting or ():
                self._seal(self._out, payload)

    def set_inbound_cipher(self, *args: Any, **options: Any) -> None:
        """Decrypt received packets with new keys. On paramiko's thread."""
        super().set_inbound_cipher(*args, **options)
        if options["aead"]:
            self._in = Key(options["block_engine"], options["iv_in"])
            self._wire.on_loop(self._go_on)
        elif self._in is not None:
            raise SSHException("The host changed to a kind of cipher that it had not agreed to")

    def send_message(self, data: Message) -> None:
        """Send a packet, on any thread; raises EOFError once the connection is broken."""
        with self._sending:
            key = self._out
            if key is None:
                super().send_message(data)
                return
            payload = data.asbytes()
            kind = payload[0]
            before = not self._logged_in  # read now: the response may arrive before this thread continues
            if before and not self._expect(kind, payload):
                return
            if kind == common.MSG_KEXINIT:
                self._waiting = []
            if kind > _LAST_OF_TRANSPORT and self._waiting is not None:
                self._waiting.append(payload)
            else:
                self._seal(key, payload)
            if key.used >= self.REKEY_BYTES and not self.need_rekey():
                self._want_keys()
        if before:
            self._handle_sent(kind, payload)

    def _seal(self, key: Key | None, payload: bytes) -> None:
        if key is None:
            raise EOFError(_UNSEALED)
        self._wire.write(key.seal(payload))

    def send_data(self, channel: int, pieces: Iterable[list[bytes | memoryview]]) -> None:
        """Send pieces of a channel's data, each as a packet, in one write; raises EOFError or OSError."""
        with self._sending:
            key = self._out
            if key is None:
                raise EOFError(_UNSEALED)
            sealed: list[bytes] = []
            for parts in pieces:
                head = _HEAD.pack(common.MSG_CHANNEL_DATA, channel, sum(map(len, parts)))
                if self._waiting is None:
                    sealed += key.seal(head, *parts)
                else:
                    self._waiting.append(b"".join((head, *parts)))
            if sealed:
                self._wire.write(sealed)
            if key.used >= self.REKEY_BYTES and not self.need_rekey():
                self._want_keys()

    def _expect(self, kind: int, payload: bytes) -> bool:
        """Prepare for the response to a packet sent before the login; return false if it must not be sent."""
        if kind == common.MSG_SERVICE_REQUEST and self._hasty:
            self._given += 1
        elif kind == common.MSG_CHANNEL_OPEN:
            self._early = channel_asked_for(payload)
            if self._refused:  # after that response it would interfere with the next login attempt
                self._withdraw()
                return False
        return True

    def _handle_sent(self, kind: int, payload: bytes) -> None:
        """Deliver an assumed response, or call the login callback, after a packet was sent before the login."""
        if kind == common.MSG_SERVICE_REQUEST and self._hasty:
            self._wire.on_loop(lambda: self._put(common.cMSG_SERVICE_ACCEPT + payload[1:]))
        elif kind == common.MSG_USERAUTH_REQUEST:
            self.on_login()

    def _want_keys(self) -> None:
        self._trigger_rekey()  # type: ignore[attr-defined]  # not in its types, but for classes like this one
        self._inbox.put(None)

    def read_message(self) -> tuple[int, Message]:
        """Return the next packet for paramiko. On its thread, which has finished with those before."""
        if self._in is None:
            return super().read_message()
        self._done = self._taken
        if self._paused and self._handed - self._done < _MAX_AHEAD // 2:
            self._wire.on_loop(self._go_on)
        while True:
            try:
                item = self._inbox.get(timeout=_WAKE_S)
            except Empty:
                item = None
            if isinstance(item, Exception):
                raise item
            if item is not None:
                self._taken += 1
                return item
            if self.closed or self.handshake_timed_out():
                raise EOFError
            if self.need_rekey():
                raise NeedRekeyException
            self._check_keepalive()  # type: ignore[attr-defined]  # likewise

    def close(self) -> None:
        """Break the connection, on any thread."""
        super().close()
        self._inbox.put(EOFError())

    def _go_on(self) -> None:
        self._changing = self._paused = False
        self._wire.read(self._handle_arrival)
        self._handle_arrival(b"")

    def _handle_arrival(self, data: bytes | None) -> None:
        """Handle received bytes, or None at the end. On the loop."""
        if data is None:
            self._inbox.put(EOFError())
            return
        told: dict[Callable[[], None], None] = {}
        try:
            self._held = self._open(self._held + data if self._held else data, told)
        except (InvalidTag, ValueError, struct.error, IndexError) as error:
            self._wire.read(None)
            why = str(error) or "its tag is wrong"
            self._inbox.put(SSHException(f"A packet that was changed or malformed ({why})"))
        for tell in told:
            tell()

    def _open(self, data: bytes, told: dict[Callable[[], None], None]) -> bytes:
        """Decrypt whole packets; return the rest."""
        key = self._in
        at, end = 0, len(data)
        view = memoryview(data)
        while end - at > 4 and key is not None and not self._changing and not self._paused:
            stop = at + whole_size(data, at)
            if stop > end:
                break
            plain = key.open(view[at:stop])
            at = stop
            self._packet(plain, told)
            if key.used >= self.REKEY_BYTES and not self.need_rekey():
                self._want_keys()
        return data[at:]

    def _packet(self, plain: bytes, told: dict[Callable[[], None], None]) -> None:
        # Packets that paramiko has not handled yet go first, also those of this packet's channel.
        if self._handed == self._done and self._streams and plain[1] in _OF_CHANNELS:
            _, kind, number, size = _DATA.unpack_from(plain)
            stream = self._streams.get(number)
            if stream is not None and kind == common.MSG_CHANNEL_DATA:
                stream.out.put(plain[_DATA.size : _DATA.size + size])
                told[stream.told] = None
                return
            if stream is not None and kind == common.MSG_CHANNEL_WINDOW_ADJUST:
                stream.room(size)
                return
            if stream is not None and size == _STDERR:
                size = _EXTENDED.unpack_from(plain)[-1]
                stream.err.put(plain[_EXTENDED.size : _EXTENDED.size + size])
                told[stream.told] = None
                return
        self._hand(plain[1 : len(plain) - plain[0]])

    def _hand(self, payload: bytes) -> None:
        """Pass a packet to paramiko's thread, unless its response was assumed earlier."""
        kind = payload[0]
        if kind == common.MSG_SERVICE_ACCEPT and self._given:
            self._given -= 1
            return
        if kind == common.MSG_USERAUTH_SUCCESS:
            self._logged_in = True
        elif kind == common.MSG_USERAUTH_FAILURE:
            self._refused = True
        elif kind == common.MSG_UNIMPLEMENTED and not self._logged_in and self._early is not None:
            self._withdraw()
            return
        self._put(payload)

    def _withdraw(self) -> None:
        early, self._early = self._early, None
        if early is not None:
            self.on_too_early(early)

    def _put(self, payload: bytes) -> None:
        kind = payload[0]
        message = Message(payload[1:])
        message.seqno = self._handed  # the number that an error message would name
        self._changing = kind == common.MSG_NEWKEYS
        self._handed += 1
        self._paused = self._handed - self._done > _MAX_AHEAD
        if self._changing or self._paused:
            self._wire.read(None)
        self._inbox.put((kind, message))
