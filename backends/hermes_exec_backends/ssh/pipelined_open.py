"""The first channel of a connection, requested together with the login instead of after it.

The protocol passes data after the login request on to the service (RFC 4252, 5.1). OpenSSH does so, and after a
refused login it answers that it does not know channel requests. This saves a round trip.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, cast

from paramiko import SSHException

from hermes_exec_backends.ssh.packets import Packets

if TYPE_CHECKING:
    import paramiko

    from hermes_exec_backends.ssh.protocol_requests import Transport


_LOOK_S = 0.5


def may_hurry(transport: Transport) -> bool:
    """Return whether the host is known to accept requests before its responses."""
    packets = transport.packetizer
    return isinstance(packets, Packets) and packets.opens and "OpenSSH" in transport.remote_version


class PipelinedOpen:
    """A session that is requested right after a login request. It runs on a thread that ends with the response."""

    def __init__(self, transport: Transport, patience_s: float) -> None:
        self._transport = transport
        self._patience_s = patience_s
        self._asked = threading.Event()
        self._chan: paramiko.Channel | None = None
        packets = cast("Packets", transport.packetizer)
        packets.on_login = self._asked.set
        packets.on_too_early = self._too_early
        self._thread = threading.Thread(target=self._open, name="hermes_exec ssh session", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        while not self._asked.wait(_LOOK_S):
            if not self._transport.active:
                return
        # If this fails, the channel is requested again when it is needed, and the error is reported then.
        with contextlib.suppress(SSHException, EOFError, OSError):
            self._chan = self._transport.open_session(timeout=self._patience_s)

    def _too_early(self, number: int) -> None:
        # paramiko would otherwise store the reason where the failed login looks for its own.
        event = self._transport.channel_events.pop(number, None)
        if event is not None:
            event.set()

    def channel(self) -> paramiko.Channel | None:
        """Wait for the response; return the channel, or None if it was too early or the host refused it."""
        self._thread.join()
        return self._chan if self._chan is not None and self._chan.active else None
