"""The token of a server: the configured one, or one that is created at the first start in a file for this user only."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import make_private_folder, state_folder, to_printable
from hermes_exec.config.secrets import Secret, SecretSource, resolve_secrets
from hermes_exec.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "serve-token"
SHORTEST_TOKEN = 16
_MOST = 4096


def token_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the file."""
    return state_folder(environ) / NAME


def load_token(path: Path, remedy: str = "--token-from env:NAME or file:/path, or --socket PATH") -> Secret:
    """Read the token, or create it. Two servers that start at once get the same one.

    Raises:
        ConfigError: the file cannot be created or read, or is too short, or other users can read it; ``remedy`` says
            what to try if the folder cannot be used.
    """
    try:
        if not path.exists():
            _create(path)
        text = read_token(path)
    except OSError as error:
        raise ConfigError(
            f"{to_printable(path)}: the token cannot be stored: {error.strerror}", remedy=remedy
        ) from error
    if len(text.strip()) < SHORTEST_TOKEN:
        raise ConfigError(
            f"{to_printable(path)}: the token is shorter than {SHORTEST_TOKEN} characters",
            remedy="remove it; the next start creates a new one",
        )
    return Secret("the server's token", text.strip())


def resolve_token(source: str, variable: str, environ: Mapping[str, str]) -> Secret:
    """Return the token that ``--token-from`` names, as the value of ``variable``.

    Raises:
        UsageError: ``source`` names no secret.
        ConfigError: there is no such secret, or it is too short.
    """
    try:
        parsed = SecretSource.parse(source)
    except ValueError as error:
        raise UsageError(f"--token-from: {error}") from None
    token = resolve_secrets({variable: parsed}, environ)[variable]
    if len(token.reveal()) < SHORTEST_TOKEN:
        raise ConfigError(f"the token is shorter than {SHORTEST_TOKEN} characters", remedy="openssl rand -hex 32")
    return token


def _create(path: Path) -> None:
    make_private_folder(path.parent)
    handle, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # created 0600
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another server was first
            os.link(draft, path)
    finally:
        Path(draft).unlink()


def read_token(path: Path) -> str:
    """Return the content of the file.

    Raises:
        ConfigError: other users can read it.
        OSError: it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise ConfigError(
                f"{to_printable(path)}: other users may have read or created it"
                f" (mode {stat.S_IMODE(found.st_mode):04o})",
                remedy="remove it; the next start creates a new one",
            )
        return file.read(_MOST).decode("ascii", "replace")
