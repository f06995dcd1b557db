"""One session channel of a paramiko transport, without a thread of its own.

Received data is collected in a list, by the event loop itself (``packets``) or by paramiko's thread, which then wakes
the loop once for many packets; the loop takes all of it. Only public attributes of ``paramiko.Channel`` are replaced
for this.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from paramiko import SSHException

from hermes_exec.backend import Channel, Exit
from hermes_exec.transport.write_buffer import WriteBuffer, split
from hermes_exec_backends.ssh.channel_shim import Room, Stream
from hermes_exec_backends.ssh.nonblocking_socket import FULL
from hermes_exec_backends.ssh.packets import Packets
from hermes_exec_backends.ssh.protocol_requests import close, widen

if TYPE_CHECKING:
    from collections.abc import Callable

    import paramiko

    from hermes_exec.backend import Receiver
    from hermes_exec_backends.ssh.channel_shim import Feed
    from hermes_exec_backends.ssh.nonblocking_socket import NonblockingSocket
    from hermes_exec_backends.ssh.protocol_requests import Transport

_MESSAGE = 32 << 10
"""The most bytes that OpenSSH's server accepts in one packet."""
_FIRST_MESSAGE = 4 << 10
_FIRST = 64 << 10
"""A packet is usable only when it is complete, and a new connection transfers 14 KB in its first round trip."""
_WORTH = 256 << 10
_REST_S = 0.001
"""A host grants window space in small pieces; sending packets as small costs more than a short wait."""
_REKEY_S = 0.01
"""Seconds until the next check during a key exchange, when no data may be sent."""


class SshChannel(Channel):
    """The streams of one command. ``attach`` it to paramiko's channel before the command is requested."""

    def __init__(self, receiver: Receiver, wire: NonblockingSocket, ended: Callable[[SshChannel], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._receiver = receiver
        self._wire = wire
        self._ended = ended
        self._chan: paramiko.Channel
        self._told = False
        self._waits_for_room = False
        self._rests = False
        self._outgoing = WriteBuffer()
        self._sent = 0
        self._turn = False
        self._held_up = False
        """Whether an event other than the end of this turn of the loop continues writing."""
        self._eof = False
        self._mute = False  # True after a write failed: then no more data may be sent
        self._paused = False
        self._over = False

    def attach(self, transport: Transport, chan: paramiko.Channel) -> None:
        """Receive every event of ``chan``; call it on any thread before the first event."""
        self._transport = transport
        self._chan = chan
        self._number = chan.get_id()
        owner: Any = chan
        self._out: Feed = owner.in_buffer
        self._err: Feed = owner.in_stderr_buffer
        self._out.tell = self._err.tell = self._tell
        owner.out_buffer_cv = Room(chan.lock, self._tell_room)
        chan.settimeout(0.0)
        if isinstance(transport.packetizer, Packets):
            transport.packetizer.take(self._number, Stream(self._out, self._err, self._take, self._more_room))
        self._tell()  # the other end of a tunnel may have sent data already

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: no receiver is left
                self._loop.call_soon_threadsafe(self._take)

    def _tell_room(self) -> None:
        if self._waits_for_room:
            self._waits_for_room = False
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._flush)

    def _more_room(self, size: int) -> None:
        """Add ``size`` bytes to the host's window. Call it on the loop."""
        with self._chan.lock:
            self._chan.out_window_size += size
        if self._waits_for_room:
            if self._chan.out_window_size >= _WORTH:
                self._use_room()
            elif not self._rests:
                self._rests = True
                self._loop.call_later(_REST_S, self._end_rest)

    def _end_rest(self) -> None:
        self._rests = False
        self._use_room()

    def _use_room(self) -> None:
        if self._waits_for_room:
            self._waits_for_room = False
            self._flush()

    @property
    def _may_send(self) -> bool:
        return self._transport.clear_to_send.is_set() or not self._transport.active

    def _take(self) -> None:
        self._told = False
        if self._paused or self._over:
            return
        if not self._may_send:  # taking data may have to announce more window space
            self._told = True
            self._loop.call_later(_REKEY_S, self._take)
            return
        closed = self._chan.closed
        try:
            self._deliver(self._out, self._receiver.on_data)
            self._deliver(self._err, self._receiver.on_stderr)
        except (OSError, EOFError, SSHException) as error:
            self._fail(error)
            return
        if closed and not len(self._out) and not len(self._err):
            self._finish(self._exit())

    def _deliver(self, feed: Feed, receive: Callable[[bytes], None]) -> None:
        """Deliver received data, and only then grow the host's window: that fails on a broken connection."""
        if len(feed) and not self._paused and not self._over:
            data = feed.take()
            receive(data)
            widen(self._transport, self._chan, len(data))

    def _exit(self) -> Exit:
        number: int | None = getattr(self._chan, "exit_signal", None)
        if number is not None:
            return Exit(signal=number)
        if self._chan.exit_status >= 0:
            return Exit(code=self._chan.exit_status)
        error = self._transport.saved_exception
        if self._transport.active:
            return Exit(lost="the host closed the channel")
        return Exit(lost=f"the connection broke ({error})" if error else "the connection broke")

    def _finish(self, exit: Exit) -> None:
        if self._over:
            return
        self._over = True
        if isinstance(self._transport.packetizer, Packets):
            self._transport.packetizer.drop(self._number)
        self._outgoing.clear()
        self._ended(self)
        self._receiver.on_close(exit)

    def write(self, *parts: bytes | memoryview) -> None:
        """Queue bytes, and send as many as the host and the network accept at once.

        Later writes of the same turn of the loop are sent together at its end.
        """
        if self._over or self._eof or self._mute:
            return
        self._outgoing.add(parts)
        if self._held_up or (self._turn and self._outgoing.size < _MESSAGE):
            return
        if not self._turn:
            self._turn = True
            self._loop.call_soon(self._end_turn)
        self._flush()

    def _end_turn(self) -> None:
        self._turn = False
        if self._outgoing.size and not self._held_up:
            self._flush()

    def _flush(self) -> None:
        if self._over:
            return
        self._held_up = False
        try:
            while self._outgoing.size and not self._held_up:
                self._outgoing.flush(self._send)
        except (OSError, EOFError, SSHException) as error:
            # After lost data no more may be sent, and a truncated stream must not end as if it were complete.
            self._mute = True
            self._outgoing.clear()
            if not self._chan.closed and not self._wire.closed:  # otherwise received packets report the end
                self._fail(error)
        if self._eof and not self._outgoing.size:
            self._send_eof()

    def _send(self, parts: list[bytes | memoryview]) -> int:
        """Send as much of ``parts`` as the host and the network accept now; return the number of bytes.

        Raises OSError or EOFError when the connection accepts no more data.
        """
        if not self._may_send:
            self._held_up = True
            self._loop.call_later(_REKEY_S, self._flush)
            return 0
        if self._wire.full:
            self._held_up = True
            self._wire.on_room(self._flush)
            return 0
        self._waits_for_room = True  # set before the check: paramiko's thread reports window space
        done = self._pass_on(parts)
        self._waits_for_room = self._held_up = not done
        self._sent += done
        return done

    def _pass_on(self, parts: list[bytes | memoryview]) -> int:
        room, most = (_MESSAGE, FULL) if self._sent >= _FIRST else (_FIRST_MESSAGE, _FIRST - self._sent)
        packets = self._transport.packetizer
        if isinstance(packets, Packets) and packets.seals:
            size = self._room_for(parts, most)
            packets.send_data(self._chan.remote_chanid, split(parts, size, min(room, self._chan.out_max_packet_size)))
            return size
        try:
            done = self._chan.send(b"".join(next(split(parts, room, room))))
        except TimeoutError:  # the host's window is full
            return 0
        if not done:
            raise EOFError
        return done

    def _room_for(self, parts: list[bytes | memoryview], most: int) -> int:
        """Reserve as much of the host's window as ``parts`` can use."""
        with self._chan.lock:
            if self._chan.closed or self._chan.eof_sent:
                raise EOFError
            size = min(sum(map(len, parts)), self._chan.out_window_size, most)
            self._chan.out_window_size -= size
        return size

    def write_eof(self) -> None:
        """Close standard input after what is queued."""
        self._eof = True
        if not self._outgoing.size:
            self._send_eof()

    def _send_eof(self) -> None:
        if self._mute:
            return
        if self._may_send:
            with contextlib.suppress(OSError, EOFError):
                self._chan.shutdown_write()
        else:
            self._loop.call_later(_REKEY_S, self._send_eof)

    @property
    def unsent(self) -> int:
        """Return the number of bytes that the host has not taken."""
        return self._outgoing.size

    async def drain(self) -> None:
        """Wait until at most 1 MiB is queued or the channel is closed."""
        await self._outgoing.drain()

    def pause(self) -> None:
        """Stop taking data; the channel's window then stops the host."""
        self._paused = True

    def resume(self) -> None:
        """Continue taking data."""
        self._paused = False
        self._tell()

    def abandon(self) -> None:
        """Close the channel at once; the connection stays."""
        self._let_go(kill=False)

    def kill(self) -> None:
        """Ask sshd to kill the command's process group, where it permits that, and close the channel."""
        self._let_go(kill=True)

    def _let_go(self, *, kill: bool) -> None:
        if self._over:
            return
        self._end_turn()
        self._close(kill=kill)
        self._finish(Exit(lost="the channel was closed here"))

    def _fail(self, error: Exception) -> None:
        """End the channel as lost, because some of its data could not be delivered."""
        self._close(kill=False)
        self._finish(Exit(lost=f"the connection broke ({error})"))

    def _close(self, *, kill: bool) -> None:
        if self._may_send:
            close(self._transport, self._chan, kill=kill)
        else:
            self._loop.run_in_executor(None, lambda: close(self._transport, self._chan, kill=kill))
