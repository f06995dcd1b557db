"""The first channel of a connection, asked for together with the login instead of after it.

The protocol passes on to the service what follows the request that logs in (RFC 4252, 5.1). OpenSSH does, and where
that login is refused it answers that it does not know what a channel is. Saves a round trip.
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
    """Whether the host is known to take what comes before its answers."""
    packets = transport.packetizer
    return isinstance(packets, Packets) and packets.opens and "OpenSSH" in transport.remote_version


class PipelinedOpen:
    """A session that is asked for as soon as a login was. It runs on a thread that ends with the answer."""

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
        # Where it does not work it is asked for again when it is needed, and told then.
        with contextlib.suppress(SSHException, EOFError, OSError):
            self._chan = self._transport.open_session(timeout=self._patience_s)

    def _too_early(self, number: int) -> None:
        # paramiko's own way would put its reason where the login that failed looks for its own.
        event = self._transport.channel_events.pop(number, None)
        if event is not None:
            event.set()

    def channel(self) -> paramiko.Channel | None:
        """It, or nothing: it was too early, or the host gives none. Waits for the answer."""
        self._thread.join()
        return self._chan if self._chan is not None and self._chan.active else None
