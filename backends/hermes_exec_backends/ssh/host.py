"""Resolution of a profile to one host and its connection settings: the profile first, then OpenSSH's client files."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hermes_exec.config.paths import expand_home, home_folder
from hermes_exec.errors import ConfigError
from hermes_exec.terminal.encoding import parse_number
from hermes_exec_backends.ssh.ssh_config import lookup

if TYPE_CHECKING:
    from hermes_exec.config.secrets import SecretSource
    from hermes_exec_backends.profiles.ssh import SshProfile

_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
_MAX_JUMPS = 8


@dataclass(frozen=True, slots=True)
class Host:
    """One host with all settings of its connection: two equal ones can share a connection."""

    name: str
    """The name as the profile has it."""
    address: str
    port: int
    user: str
    keys: tuple[Path, ...]
    """Private key files, best first."""
    certificates: tuple[Path, ...]
    keys_only: bool
    """Whether to try only those keys of the agent that are in ``keys``."""
    agent: str
    """The agent's socket, or empty."""
    known_hosts: tuple[Path, ...]
    known_as: str
    """The host's name in ``known_hosts``."""
    accept_new: bool
    password: SecretSource | None
    passphrase: SecretSource | None
    proxy_command: tuple[str, ...]
    jump: Host | None
    compression: bool
    keepalive_s: float
    connect_timeout_s: float

    def __str__(self) -> str:
        """Return the host as users write it."""
        where = f"[{self.address}]:{self.port}" if self.port != 22 else self.address
        return f"{self.user}@{where}"


def resolve(profile: SshProfile) -> Host:
    """Return all settings of the profile's host. Reads the OpenSSH client's files.

    Raises:
        ConfigError: one of these files is invalid.
    """
    jumps = profile.proxy_jump.split(",") if profile.proxy_jump else None
    return _resolve(profile, profile.host, profile.user, profile.port, jumps, depth=0)


def _resolve(
    profile: SshProfile, name: str, user: str | None, port: int | None, jumps: list[str] | None, *, depth: int
) -> Host:
    if depth > _MAX_JUMPS:
        raise ConfigError(f"ssh: more than {_MAX_JUMPS} hosts to jump through for {profile.host}: is it a circle?")
    options = lookup(name, profile.config_path, user, port)
    keys, explicit = _keys(profile, options)
    command = _proxy_command(profile, options) if depth == 0 else _words(options.get("proxycommand"))
    if jumps is None and not command:
        said = str(options.get("proxyjump") or "none")
        jumps = [] if said.lower() == "none" else said.split(",")
    address = str(options.get("hostname") or name)
    port = port or _number(options.get("port"), 22)
    user = user or str(options.get("user") or getpass.getuser())
    agent = str(options.get("identityagent") or "SSH_AUTH_SOCK")
    alias = options.get("hostkeyalias")
    return Host(
        name=name,
        address=address,
        port=port,
        user=user,
        keys=keys,
        certificates=_certificates(profile, options),
        keys_only=explicit and _yes(options.get("identitiesonly")),
        agent=_agent(agent) if profile.agent else "",
        known_hosts=_find_known_hosts(profile, options),
        known_as=str(alias) if alias else (f"[{address}]:{port}" if port != 22 else address),
        accept_new=profile.accept_new,
        password=profile.password if depth == 0 else None,
        passphrase=profile.passphrase,
        proxy_command=tuple(_expand(word, address, port, user) for word in command),
        jump=_jump(profile, jumps or [], depth),
        compression=profile.compression or _yes(options.get("compression")),
        keepalive_s=profile.keepalive_s,
        connect_timeout_s=profile.connect_timeout_s,
    )


def _jump(profile: SshProfile, jumps: list[str], depth: int) -> Host | None:
    """Return the last of ``jumps``, which is reached through those before it."""
    if not jumps:
        return None
    *before, last = (jump.strip().removeprefix("ssh://") for jump in jumps)
    user, _, rest = last.rpartition("@")
    if rest.startswith("["):
        name, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    else:
        name, _, port = rest.partition(":")
    return _resolve(profile, name, user or None, _number(port, 0) or None, before or None, depth=depth + 1)


def _keys(profile: SshProfile, options: dict[str, object]) -> tuple[tuple[Path, ...], bool]:
    """Return the keys to try, and whether the profile or a file names them."""
    if profile.key_path:
        return (profile.key_path,), True
    named = options.get("identityfile")
    if isinstance(named, list):
        return tuple(expand_home(str(path)) for path in cast("list[object]", named)), True
    return tuple(path for each in _USUAL_KEYS if (path := home_folder() / ".ssh" / each).is_file()), False


def _certificates(profile: SshProfile, options: dict[str, object]) -> tuple[Path, ...]:
    if profile.certificate_path:
        return (profile.certificate_path,)
    named = options.get("certificatefile")
    return (expand_home(str(named)),) if named else ()


def _find_known_hosts(profile: SshProfile, options: dict[str, object]) -> tuple[Path, ...]:
    if profile.known_hosts_path:
        return (profile.known_hosts_path,)
    users = str(options.get("userknownhostsfile") or "~/.ssh/known_hosts ~/.ssh/known_hosts2")
    everybodys = str(options.get("globalknownhostsfile") or "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")
    return tuple(map(expand_home, (*users.split(), *everybodys.split())))


def _agent(name: str) -> str:
    if name.lower() == "none":
        return ""
    if name == "SSH_AUTH_SOCK":
        return os.environ.get(name, "")
    return os.environ.get(name[1:], "") if name.startswith("$") else str(expand_home(name.strip('"')))


def _proxy_command(profile: SshProfile, options: dict[str, object]) -> tuple[str, ...]:
    if profile.proxy_command or profile.proxy_jump:
        return profile.proxy_command
    return _words(options.get("proxycommand"))


def _words(command: object) -> tuple[str, ...]:
    """Return the argv that runs a command of the client's file, which is written for a shell."""
    return ("/bin/sh", "-c", f"exec {command}") if command else ()


def _expand(word: str, address: str, port: int, user: str) -> str:
    """Expand the tokens of a proxy command as in ssh_config(5)."""
    marks = {"%%": "%", "%h": address, "%p": str(port), "%r": user}
    parts = [word[i : i + 2] for i in range(len(word))]
    out, skip = "", False
    for part in parts:
        if skip:
            skip = False
        elif part in marks:
            out, skip = out + marks[part], True
        else:
            out += part[0]
    return out


def _number(text: object, otherwise: int) -> int:
    if text in {None, ""}:
        return otherwise
    port = parse_number(str(text), 1, 65535)
    if port is None:
        raise ConfigError(f"ssh: {text!r} is not a port")
    return port


def _yes(value: object) -> bool:
    return str(value).lower() in {"yes", "true"}
