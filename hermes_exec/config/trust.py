"""The files of projects that the user trusts: by path and by the SHA-256 of their content.

A cloned repository must not choose hosts, binds or commands, so its ``hermes.toml`` is ignored until the user trusts
it, and again after any change of its content.
"""

from __future__ import annotations

import hashlib
import json
import os
from enum import Enum
from typing import TYPE_CHECKING, cast

from hermes_exec.config.paths import read_regular, to_printable, trust_file, write_private
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Trust(Enum):
    """Whether the user trusts a file."""

    TRUSTED = "trusted"
    CHANGED = "changed since it was trusted"
    UNKNOWN = "not trusted"


_ANOTHER_FOLDER = "export XDG_STATE_HOME=… another folder"


def trust(path: Path, *, content: bytes | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Trust the file with its present content, and return the recorded SHA-256.

    ``content`` is the content that the user was shown; a file that no longer holds it is refused.

    Raises:
        ConfigError: the file cannot be read, has changed meanwhile, or the record is damaged.
    """
    environ = os.environ if environ is None else environ
    found = read_regular(path)
    if content is not None and found != content:
        raise ConfigError(f"{to_printable(path)} changed while you read it", remedy="read it again")
    return record_trust(path, found, environ)


def record_trust(key: Path | str, content: bytes, environ: Mapping[str, str]) -> str:
    """Record trust in this content of a file, and return its SHA-256.

    ``key`` is the path of a file of this machine, or a text that names a file of another target.

    Raises:
        ConfigError: the record is damaged, or cannot be written.
    """
    record = _read(environ)
    digest = hashlib.sha256(content).hexdigest()
    record[_key(key)] = digest
    _write(record, environ)
    return digest


def distrust(path: Path, *, environ: Mapping[str, str] | None = None) -> bool:
    """Remove the file from the record; return False when it was not in it.

    Raises:
        ConfigError: the record is damaged.
    """
    environ = os.environ if environ is None else environ
    record = _read(environ)
    if record.pop(_key(path), None) is None:
        return False
    _write(record, environ)
    return True


def is_trusted(path: Path, *, environ: Mapping[str, str] | None = None) -> bool:
    """Return whether the user trusts the file with its present content.

    Raises:
        ConfigError: the file cannot be read, or the record is damaged.
    """
    environ = os.environ if environ is None else environ
    return read_trust(path, read_regular(path), environ) is Trust.TRUSTED


def read_trust(key: Path | str, content: bytes, environ: Mapping[str, str]) -> Trust:
    """Return whether the user trusts this content of a file; ``key`` as for `record_trust`.

    Raises:
        ConfigError: the record is damaged.
    """
    noted = _read(environ).get(_key(key))
    if noted is None:
        return Trust.UNKNOWN
    return Trust.TRUSTED if noted == hashlib.sha256(content).hexdigest() else Trust.CHANGED


def _key(key: Path | str) -> str:
    return key if isinstance(key, str) else str(key.resolve())


def _read(environ: Mapping[str, str]) -> dict[str, str]:
    path = trust_file(environ)
    try:
        path.stat()
        record: object = json.loads(read_regular(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{to_printable(path)} cannot be read: {error.strerror}", remedy=_ANOTHER_FOLDER) from error
    except ValueError:
        record = None
    files = cast("dict[str, object]", record).get("files") if isinstance(record, dict) else None
    if not isinstance(files, dict):
        raise ConfigError(
            f"{to_printable(path)} is damaged", remedy=f"remove it and trust your projects again: rm {path}"
        )
    return {str(key): str(value) for key, value in cast("dict[object, object]", files).items()}


def _write(record: dict[str, str], environ: Mapping[str, str]) -> None:
    path = trust_file(environ)
    try:
        write_private(path, json.dumps({"files": record}, indent=1, sort_keys=True).encode() + b"\n")
    except OSError as error:
        raise ConfigError(
            f"{to_printable(path)} cannot be written: {error.strerror}", remedy=_ANOTHER_FOLDER
        ) from error
