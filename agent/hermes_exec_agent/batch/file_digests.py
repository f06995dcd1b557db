"""The digest of a folder: of the names, kinds, modes and contents of all that is in it."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from hermes_exec_agent.batch.tasks import digest_of

if TYPE_CHECKING:
    from pathlib import Path


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
