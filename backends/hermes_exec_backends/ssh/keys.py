"""The keys to try in a login, from files and from the agent, in the order of ssh."""

from __future__ import annotations

import base64
import os
import re
import socket
import sys
from typing import TYPE_CHECKING, cast

import paramiko
from paramiko.agent import AgentSSH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hermes_exec.config.secrets import SecretSource
    from hermes_exec_backends.ssh.host import Host


class Agent(AgentSSH):
    """A connection to an agent; paramiko's own class reads only ``SSH_AUTH_SOCK``."""

    def __init__(self, path: str) -> None:
        """Request the agent's keys; raises OSError when no agent answers."""
        super().__init__()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(10)
        try:
            connection.connect(path)
            self._connect(connection)  # type: ignore[attr-defined]  # not in its types, but its one way in
        except (OSError, paramiko.SSHException) as error:
            connection.close()
            raise OSError(f"no agent answers at {path} ({error})") from error
        connection.settimeout(None)  # the agent may ask its user for confirmation

    @property
    def keys(self) -> list[tuple[paramiko.PKey, str]]:
        """Return the agent's keys with their comments, in its order."""
        return [(key, str(key.comment)) for key in self.get_keys()]

    def close(self) -> None:
        """Disconnect; the keys can no longer sign."""
        self._close()  # type: ignore[attr-defined]  # likewise


LONG = re.compile(r"[\x00-\x1f\x7f]+")
"""Characters of foreign messages that must not appear in a line of output."""


class Keys:
    """A host's keys; the reasons why some are unusable are added to ``tried``."""

    def __init__(self, host: Host, tried: list[str], *, interactive: bool) -> None:
        self._host = host
        self._tried = tried
        self._interactive = interactive
        self._agent: Agent | None = None

    def close(self) -> None:
        """Disconnect from the agent."""
        if self._agent is not None:
            self._agent.close()

    def in_order(self) -> Iterator[tuple[paramiko.PKey, str]]:
        """Yield the keys with display names; explicitly named files first, as ssh does."""
        loaded = [(path, key) for path in self._host.keys if (key := self._load(path)) is not None]
        agents = self._agent_keys()
        blobs = {key.asbytes() for _, key in loaded}
        for path, key in loaded:
            for certificate in self._host.certificates:
                key.load_certificate(str(certificate))
            yield key, str(path)
        public = {line for path in self._host.keys if (line := _public(path))}
        for agents_key, comment in agents:
            if agents_key.asbytes() in blobs:
                continue
            if not self._host.keys_only or agents_key.get_base64() in public:
                yield agents_key, f"agent's {comment}".strip()

    def _agent_keys(self) -> list[tuple[paramiko.PKey, str]]:
        if not self._host.agent:
            return []

        try:
            self._agent = self._agent or Agent(self._host.agent)
        except OSError as error:
            self._tried.append(str(error))
            return []
        return self._agent.keys

    def _load(self, path: Path) -> paramiko.PKey | None:
        from paramiko import PasswordRequiredException, PKey, SSHException
        from paramiko.pkey import UnknownKeyType

        try:
            data = path.read_bytes()
        except OSError as error:
            self._tried.append(f"publickey ({path}: {error.strerror})")
            return None
        encrypted = b"ENCRYPTED" in data or _has_passphrase(data)
        password: str | None = None
        if encrypted and self._host.passphrase:
            password = secret(self._host.passphrase, "passphrase")
        elif encrypted and self._interactive and not self._agent_has(path):
            password = ask(f"Passphrase of {path}: ", shown=False)
        elif encrypted:
            if not self._agent_has(path):
                self._tried.append(f"publickey ({path}: it needs a passphrase, and the profile names none)")
            return None
        try:
            return PKey.from_path(path, cast("str", password.encode()) if password else None)  # its type
        except UnknownKeyType:
            self._tried.append(
                f"publickey ({path}: a kind of key that paramiko does not know; try transport = 'openssh')"
            )
        except PasswordRequiredException:
            self._tried.append(f"publickey ({path}: it needs a passphrase)")
        except (SSHException, ValueError, TypeError) as error:
            reason = "the passphrase is wrong" if password else LONG.sub(" ", str(error))[:120]
            self._tried.append(f"publickey ({path}: {reason})")
        return None

    def _agent_has(self, path: Path) -> bool:
        public = _public(path)
        return any(key.get_base64() == public for key, _ in self._agent_keys())


def secret(source: SecretSource | None, name: str) -> str:
    """Return the value of a secret source, looked up now; raises ConfigError when the source has none."""
    from hermes_exec.config.secrets import resolve_secrets

    return resolve_secrets({name: source}, os.environ)[name].reveal() if source else ""


def _public(path: Path) -> str:
    """Return the public half of a key file, if it is in the same directory."""
    try:
        words = path.with_name(path.name + ".pub").read_text().split()
    except (OSError, UnicodeDecodeError):
        return ""
    return words[1] if len(words) > 1 else ""


def _has_passphrase(data: bytes) -> bool:
    """Return whether a file in OpenSSH's own format is encrypted: the cipher's name is in its first bytes."""
    body = b"".join(data.split(b"-----")[2:3]).replace(b"\n", b"")
    try:
        head = base64.b64decode(body[:64])
    except ValueError:
        return False
    return head.startswith(b"openssh-key-v1\0") and b"none" not in head


def ask(prompt: str, *, shown: bool) -> str:
    """Ask the user at the terminal, with or without echo."""
    import getpass

    if not shown:
        return getpass.getpass(f"{prompt} " if not prompt.endswith(" ") else prompt)
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().rstrip("\n")
