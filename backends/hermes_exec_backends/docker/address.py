"""Where the engine listens: what the profile says, ``DOCKER_HOST``, or the first usual socket that answers."""

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
    """One way to an engine: the path of a unix socket, or a host and a port, with certificates or without."""

    path: str = ""
    host: str = ""
    port: int = 0
    certificates: Path | None = None
    """A folder with ``ca.pem``, ``cert.pem`` and ``key.pem``, where the engine asks for TLS."""
    verify: bool = True

    @classmethod
    def parse(cls, text: str, environ: Mapping[str, str]) -> Address:
        """Read an address as ``DOCKER_HOST`` has it.

        Raises:
            ConfigError: it is none.
        """
        if text.startswith("/"):
            return cls(path=text)
        parts = urlsplit(text)
        if parts.scheme in {"unix", "http+unix"} and parts.path:
            return cls(path=parts.netloc + parts.path)
        if parts.scheme == "ssh" and parts.netloc:
            raise ConfigError(
                "the docker engine's address is an ssh one, which takes a login for each request",
                remedy=f"open the place through ssh: docker:IMAGE+ssh://{parts.netloc.rpartition('@')[2]}",
            )
        if parts.scheme in {"tcp", "http", "https"} and parts.hostname and parts.path in {"", "/"}:
            return cls._tcp(parts.scheme, parts.hostname, _port(parts.netloc), environ)
        raise ConfigError(
            "the docker engine's address is none", remedy="unix:///var/run/docker.sock or tcp://HOST:PORT"
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
        """As ``DOCKER_HOST`` has it."""
        return f"unix://{self.path}" if self.path else f"tcp://{self.host}:{self.port}"


def _port(netloc: str) -> int:
    digits = netloc.rpartition("]")[2].rpartition(":")[2]
    try:
        return int(digits) if ":" in netloc.rpartition("]")[2] else 0
    except ValueError:
        raise ConfigError("the docker engine's address has a port that is no number") from None


def find(wanted: str | None, environ: Mapping[str, str]) -> Address:
    """The address of the engine to use; only the usual sockets are tried out.

    Raises:
        ConfigError: what was asked for is no address.
        PlaceUnavailable: nothing was asked for, and no usual socket answers.
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
    """Where engines listen: Docker's, the rootless one's, Docker Desktop's, and Podman's."""
    private = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    yield "/var/run/docker.sock"
    yield f"{private}/docker.sock"
    yield str(home_folder() / ".docker/run/docker.sock")
    yield f"{private}/podman/podman.sock"
    yield "/run/podman/podman.sock"


def knock(path: str) -> OSError | None:
    """Why nobody answers at a unix socket; None when somebody does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.settimeout(2.0)
        try:
            door.connect(path)
        except OSError as error:
            return error
    return None


def no_permission(path: str) -> PlaceUnavailable:
    """The error for a socket that is not for us."""
    return PlaceUnavailable(
        f"docker: no permission for the engine's socket {path}",
        remedy='sudo usermod -aG docker "$USER" and log in again, or use a rootless engine',
    )
