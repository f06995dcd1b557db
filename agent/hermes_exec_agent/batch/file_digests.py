"""The digests by which a run notices that a folder or a file that it copied was changed."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from hermes_exec.config.paths import read_regular
from hermes_exec.errors import ConfigError
from hermes_exec_agent.batch.canonical_json import digest_of

if TYPE_CHECKING:
    from pathlib import Path

_SHORT = 16


def digest_folder(folder: Path) -> str:
    """Return the SHA-256 of a folder in hexadecimal; a missing one differs from an empty one.

    Raises:
        OSError: something in it cannot be read.
    """
    if not folder.is_dir():
        return ""
    return digest_of(sorted(_describe(path, os.fsencode(path.relative_to(folder))) for path in folder.rglob("*")))


def _describe(path: Path, name: bytes) -> list[str]:
    """Return the name and what identifies the rest; names need not be text."""
    shown = name.hex()
    if path.is_symlink():
        return [shown, "link", os.fsencode(path.readlink()).hex()]
    if path.is_dir():
        return [shown, "folder", ""]
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return [shown, f"{path.stat().st_mode & 0o111:o}", content]


def digest_content(content: bytes) -> str:
    """Return the digest by which a run names a copied file."""
    return hashlib.sha256(content).hexdigest()[:_SHORT]


def find_frozen(path: Path, digest: str) -> Path:
    """Return the path of a copied file.

    Raises:
        ConfigError: it was changed, or cannot be read.
    """
    if digest_content(read_regular(path)) != digest:
        raise ConfigError(f"scripts/{path.name}: it was changed", remedy="undo the change, or begin another run")
    return path
