"""LoRA adapters that a trainer leaves in a folder: which is the newest whole one, and its version.

A trainer writes while it is looked at. The header of a file of ``safetensors`` has the length of its content, so that
a file that is still being written is recognized without loading it.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_MAX_HEADER = 100 << 20
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Adapter:
    """A whole adapter."""

    folder: Path
    version: str
    """Of its weights and settings: digits of their digest."""


def find_adapter(folder: Path) -> Adapter | None:
    """Return the newest whole adapter in ``folder`` or directly below it; None if there is none."""
    candidates = [folder]
    try:
        candidates += [each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()]
    except OSError:
        return None
    found: list[tuple[float, str, Path]] = []
    for each in candidates:
        try:
            found.append(((each / WEIGHTS).stat().st_mtime, each.name, each))
        except OSError:
            continue
    for _, _, each in sorted(found, reverse=True):
        if is_whole(each):
            try:
                return Adapter(each, digest_adapter(each))
            except OSError:
                continue
    return None


def is_whole(folder: Path) -> bool:
    """Whether a folder has both files of an adapter, completely written."""
    try:
        config = json.loads((folder / CONFIG).read_bytes())
        with (folder / WEIGHTS).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_MAX_HEADER, size - 8):
                return False
            header = json.loads(file.read(length))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and 8 + length + _find_end(header) == size


def _find_end(header: object) -> int:
    """Return the number of bytes of all tensors, or -1 if the header does not say it."""
    if not isinstance(header, dict):
        return -1
    end = 0
    for name, each in cast("dict[str, Any]", header).items():
        if name == "__metadata__":
            continue
        try:
            end = max(end, int(each["data_offsets"][1]))
        except (TypeError, KeyError, IndexError, ValueError):
            return -1
    return end


def digest_adapter(folder: Path) -> str:
    """Return the version of an adapter.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    for name in (CONFIG, WEIGHTS):
        with (folder / name).open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
        digest.update(name.encode())
    return digest.hexdigest()[:12]
