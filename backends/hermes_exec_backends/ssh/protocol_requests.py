"""Protocol requests that paramiko lacks: a non-blocking ``exec``, the signal that ended a command, sending a signal.

This is the only module that uses names which paramiko calls private (its version is pinned below 6).
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
    message.get_int()  # the channel, already handled
    paramiko.Channel._handle_request(chan, message)  # type: ignore[attr-defined]  # noqa: SLF001  see above


def channel_asked_for(payload: bytes) -> int:
    """Return our number of the channel that a message requests."""
    message = paramiko.Message(payload[1:])
    message.get_string()
    return message.get_int()


class Transport(paramiko.Transport):
    """A paramiko transport with the additional protocol requests."""

    active: bool
    """Whether it is connected; an attribute that paramiko's types omit."""
    packetizer: Packetizer
    _channels: Any

    def _parse_channel_open_success(self, message: paramiko.Message) -> None:
        """Attach a new channel's feeds before any data can arrive. On paramiko's thread."""
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
    """Request ``command`` without waiting; a refusal closes the channel. Saves a round trip."""
    _ask(transport, chan, "exec", command, reply=True)


def widen(transport: Transport, chan: Any, size: int) -> None:
    """Count ``size`` more bytes as taken, and grow the host's window once enough have accumulated.

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
    """Close a channel, and first kill its process group if the server supports that."""
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        if kill and not chan.closed:
            _ask(transport, chan, "signal", "KILL", reply=False)
        chan.close()


def ask_for_life(transport: Transport) -> None:
    """Send a request that every host answers, if only by a refusal; not during a key exchange."""
    if transport.clear_to_send.is_set():
        message = paramiko.Message()
        message.add_byte(common.cMSG_GLOBAL_REQUEST)
        message.add_string("keepalive@openssh.com")
        message.add_boolean(True)  # want_reply
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
