"""What paramiko lacks of the protocol: not waiting for an ``exec``, the signal that ended a command, sending one.

This is the one place that touches names which paramiko calls private (its version is pinned below 6).
"""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

import paramiko
from paramiko import common

from hermes_exec_backends.ssh.channel_shim import Feed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paramiko.packet import Packetizer


def _handle_request(chan: Any, message: paramiko.Message) -> None:
    if message.get_text() == "exit-signal":
        message.get_boolean()
        name = message.get_text().partition("@")[0]  # RFC 4254, 6.10: without SIG, and NAME@DOMAIN for unusual ones
        chan.exit_signal = getattr(signal.Signals, f"SIG{name}", signal.SIGKILL).value
        return
    message.rewind()
    message.get_int()  # the channel, which has been looked at
    paramiko.Channel._handle_request(chan, message)  # type: ignore[attr-defined]  # noqa: SLF001  see above


def channel_asked_for(payload: bytes) -> int:
    """Our number of the channel that a message asks for."""
    message = paramiko.Message(payload[1:])
    message.get_string()
    return message.get_int()


class Transport(paramiko.Transport):
    """A paramiko transport with what we need besides."""

    active: bool
    """Whether it is connected; paramiko's own, which its types leave out."""
    packetizer: Packetizer
    _channels: Any

    def _parse_channel_open_success(self, message: paramiko.Message) -> None:
        """Give a new channel its feeds before anything can come through it. On paramiko's thread."""
        chan = self._channels.get(message.get_int())
        message.rewind()
        if chan is not None:
            chan.in_buffer, chan.in_stderr_buffer = Feed(), Feed()
        super()._parse_channel_open_success(message)  # type: ignore[misc]  # not in its types

    _channel_handler_table: Mapping[int, Any] = {
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]  # noqa: SLF001  see above
        common.MSG_CHANNEL_REQUEST: _handle_request,
    }


def execute(transport: Transport, chan: paramiko.Channel, command: str) -> None:
    """Ask for ``command`` and go on at once; a refusal closes the channel. Saves a round trip."""
    _ask(transport, chan, "exec", command, reply=True)


def widen(transport: Transport, chan: Any, size: int) -> None:
    """Count ``size`` more bytes as taken, and let the host send on once they are worth a packet.

    Raises OSError, EOFError or SSHException if the connection is broken.
    """
    more = chan._check_add_window(size)  # noqa: SLF001  see above
    if more:
        message = paramiko.Message()
        message.add_byte(common.cMSG_CHANNEL_WINDOW_ADJUST)
        message.add_int(chan.remote_chanid)
        message.add_int(more)
        transport._send_user_message(message)  # type: ignore[attr-defined]  # noqa: SLF001  see above


def close(transport: Transport, chan: paramiko.Channel, *, kill: bool) -> None:
    """Close a channel, and before have its process group killed if the server does that."""
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        if kill and not chan.closed:
            _ask(transport, chan, "signal", "KILL", reply=False)
        chan.close()


def ask_for_life(transport: Transport) -> None:
    """Send a request that every host answers, if only by a refusal; not while keys are exchanged."""
    if transport.clear_to_send.is_set():
        message = paramiko.Message()
        message.add_byte(common.cMSG_GLOBAL_REQUEST)
        message.add_string("keepalive@openssh.com")
        message.add_boolean(True)  # it wants a reply
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            transport._send_user_message(message)  # type: ignore[attr-defined]  # noqa: SLF001  see above


def _ask(transport: Transport, chan: paramiko.Channel, kind: str, argument: str, *, reply: bool) -> None:
    message = paramiko.Message()
    message.add_byte(common.cMSG_CHANNEL_REQUEST)
    message.add_int(chan.remote_chanid)
    message.add_string(kind)
    message.add_boolean(reply)
    message.add_string(argument)
    transport._send_user_message(message)  # type: ignore[attr-defined]  # noqa: SLF001  see above
