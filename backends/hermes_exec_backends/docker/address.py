"""The engine's address: from the profile, from ``DOCKER_HOST``, or the first default socket that answers."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hermes_exec.config.paths import expand_home, home_folder
from hermes_exec.errors import ConfigError, PlaceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

START = "sudo systemctl start docker, or set DOCKER_HOST or 'engine' to an engine that runs"
_PORT, _TLS_PORT = 2375, 2376


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an engine: the path of a unix socket, or a host and a port, with certificates or without."""

    path: str = ""
    host: str = ""
    port: int = 0
    certificates: Path | None = None
    """A directory with ``ca.pem``, ``cert.pem`` and ``key.pem``, if the engine requires TLS."""
    verify: bool = True

    @classmethod
    def parse(cls, text: str, environ: Mapping[str, str]) -> Address:
        """Parse an address in the format of ``DOCKER_HOST``.

        Raises:
            ConfigError: it is invalid.
        """
        if text.startswith("/"):
            return cls(path=text)
        parts = urlsplit(text)
        if parts.scheme in {"unix", "http+unix"} and parts.path:
            return cls(path=parts.netloc + parts.path)
        if parts.scheme == "ssh" and parts.netloc:
            raise ConfigError(
                "the docker engine's address is an ssh one, which takes a login for each request",
                remedy=f"open the target through ssh: docker:IMAGE+ssh://{parts.netloc.rpartition('@')[2]}",
            )
        if parts.scheme in {"tcp", "http", "https"} and parts.hostname and parts.path in {"", "/"}:
            return cls._tcp(parts.scheme, parts.hostname, _port(parts.netloc), environ)
        raise ConfigError(
            "the docker engine's address is invalid", remedy="unix:///var/run/docker.sock or tcp://HOST:PORT"
        )

    @classmethod
    def _tcp(cls, scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Address:
        verify = bool(environ.get("DOCKER_TLS_VERIFY"))
        folder = environ.get("DOCKER_CERT_PATH") or (str(home_folder() / ".docker") if verify else "")
        if scheme == "https" or folder:
            return cls(
                host=host, port=port or _TLS_PORT, certificates=expand_home(folder or "~/.docker"), verify=verify
            )
        return cls(host=host, port=port or _PORT)

    def __str__(self) -> str:
        """Return the address in the format of ``DOCKER_HOST``."""
        return f"unix://{self.path}" if self.path else f"tcp://{self.host}:{self.port}"


def _port(netloc: str) -> int:
    digits = netloc.rpartition("]")[2].rpartition(":")[2]
    try:
        return int(digits) if ":" in netloc.rpartition("]")[2] else 0
    except ValueError:
        raise ConfigError("the docker engine's address has a port that is not a number") from None


def find(wanted: str | None, environ: Mapping[str, str]) -> Address:
    """Return the address of the engine to use; only the default sockets are tried.

    Raises:
        ConfigError: the configured address is invalid.
        PlaceUnavailable: no address is configured, and no default socket answers.
    """
    named = wanted or environ.get("DOCKER_HOST")
    if named:
        return Address.parse(named, environ)
    refused = ""
    for path in usual(environ):
        error = knock(path)
        if error is None:
            return Address(path=path)
        if isinstance(error, PermissionError):
            refused = path
    if refused:
        raise no_permission(refused)
    raise PlaceUnavailable("docker: no engine answers on this machine", remedy=START)


def usual(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the default sockets: Docker's, the rootless one's, Docker Desktop's, and Podman's."""
    private = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    yield "/var/run/docker.sock"
    yield f"{private}/docker.sock"
    yield str(home_folder() / ".docker/run/docker.sock")
    yield f"{private}/podman/podman.sock"
    yield "/run/podman/podman.sock"


def knock(path: str) -> OSError | None:
    """Try a unix socket; return the reason why it does not answer, or None when it does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.settimeout(2.0)
        try:
            door.connect(path)
        except OSError as error:
            return error
    return None


def no_permission(path: str) -> PlaceUnavailable:
    """Return the error for a socket that this user may not open."""
    return PlaceUnavailable(
        f"docker: no permission for the engine's socket {path}",
        remedy='sudo usermod -aG docker "$USER" and log in again, or use a rootless engine',
    )
