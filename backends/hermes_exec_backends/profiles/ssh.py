"""The profile of a host over SSH."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from hermes_exec.config.profile import Profile
from hermes_exec.config.values import LocalPath, Name, Seconds, Source, Words

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPELT = re.compile(r"//(?:(.*)@)?(?:\[([^@/\[\]]+)\]|([^@:/\[\]]+))(?::([0-9]{1,5}))?/?", re.ASCII)


def _host(value: str) -> str:
    if any(mark in value for mark in "@/[]") or (":" in value and value.count(":") < 2):
        raise ValueError("should be the host alone; 'user' and 'port' have their own keys")
    return value


def _user(value: str) -> str:
    if any(mark in value for mark in ":/"):
        raise ValueError("should be a user's name alone; a password has a key of its own")
    return value


class SshProfile(Profile, frozen=True):
    """A host that is reached over SSH. Omitted values come from the OpenSSH client's own files."""

    type: Literal["ssh"] = "ssh"
    """`ssh`."""
    host: Annotated[Name, AfterValidator(_host)]
    """The host's name, its address, or a `Host` of the OpenSSH client's file."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """The port."""
    user: Annotated[Name, AfterValidator(_user)] | None = None
    """The user to log in as."""
    transport: Literal["paramiko", "openssh"] = "paramiko"
    """`openssh` uses the `ssh` program: for FIDO keys, Kerberos, `Match` and connections that are shared."""

    key_path: LocalPath | None = None
    """The private key; the agent's and the usual ones are tried when left out."""
    certificate_path: LocalPath | None = None
    """The certificate that belongs to the key."""
    passphrase: Source | None = None
    """Where the key's passphrase is found: `env:NAME`, `file:/path` or `{command = [...]}`."""
    password: Source | None = None
    """Where the password is found, in the same forms."""
    agent: bool = True
    """Whether keys of the SSH agent are tried."""

    config_path: LocalPath | None = None
    """The OpenSSH client's file; `~/.ssh/config` when left out."""
    known_hosts_path: LocalPath | None = None
    """The hosts' known keys; `~/.ssh/known_hosts` when left out."""
    accept_new: bool = False
    """Whether the key of a new host is accepted without verification. A changed key is always refused."""
    proxy_jump: Name | None = None
    """Hosts to go through, as in `me@bastion:22`; commas between several."""
    proxy_command: Words = ()
    """A program, with its arguments, whose streams are the connection."""

    compression: bool = False
    """Whether to compress; worth it on slow links only."""
    connect_timeout_s: Seconds = 20.0
    """Seconds to wait for the connection and the login."""

    @classmethod
    def fields_of_target(cls, text: str) -> Mapping[str, object]:
        """Read ``//USER@HOST:PORT``, of which only the host must be there.

        Raises:
            ValueError: it is spelt otherwise, or holds a password.
        """
        match = _SPELT.fullmatch(text)
        if match is None:
            raise ValueError("should be spelt ssh://USER@HOST:PORT")
        user, address, host, port = match.groups()
        if user is not None and ":" in user:
            raise ValueError("a password does not belong in a target; name its source in a profile")
        fields: dict[str, object] = {"host": address or host}
        if user is not None:
            fields["user"] = user
        if port is not None:
            fields["port"] = int(port)
        return fields

    def target_text(self) -> str:
        """``ssh://USER@HOST:PORT``, with the values of the profile."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"ssh://{user}{host}{port}"
