"""Keys that an SSH agent holds, at the socket that the configuration names."""

from __future__ import annotations

import socket

import paramiko
from paramiko.agent import AgentSSH


class Agent(AgentSSH):
    """A connection to an agent; paramiko's own looks at ``SSH_AUTH_SOCK`` alone."""

    def __init__(self, path: str) -> None:
        """Ask for its keys; raises OSError when no agent answers there."""
        super().__init__()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(10)
        try:
            connection.connect(path)
            self._connect(connection)  # type: ignore[attr-defined]  # not in its types, but its one way in
        except (OSError, paramiko.SSHException) as error:
            connection.close()
            raise OSError(f"no agent answers at {path} ({error})") from error
        connection.settimeout(None)  # it may be asking its person for leave

    @property
    def keys(self) -> list[tuple[paramiko.PKey, str]]:
        """Its keys with their comments, in its order."""
        return [(key, str(key.comment)) for key in self.get_keys()]

    def close(self) -> None:
        """Hang up; the keys cannot sign any more."""
        self._close()  # type: ignore[attr-defined]  # likewise
