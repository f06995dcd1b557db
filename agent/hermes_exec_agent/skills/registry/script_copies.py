"""Copies of registered scripts for people to read: ``skills/generate_csv_report.py``. They never run."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
from typing import TYPE_CHECKING

from hermes_exec.config.paths import to_printable
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.content import private_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Version

NAME = "skills"
"""The folder of the copies, next to the folder for files of skills."""
_SAYS = ": a copy, which is not what runs\n"
_READ_ONLY = 0o444
_MOST_HEAD = 256
_log = logging.getLogger("hermes_exec.skills")


def modules_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of the copies next to ``PERSISTENT_DIR``; None if that is not set."""
    from pathlib import Path

    kept = environ.get("PERSISTENT_DIR")
    return Path(kept).absolute().parent / NAME if kept else None


def module_text(tree: Path, version: Version) -> bytes:
    """Return the script of a version below a line that identifies it.

    Raises:
        content.Changed: the files in ``tree`` differ from the signed list.
    """
    with private_folder() as folder:
        content.copy_verified(tree, version.files, folder / "tree")
        text = (folder / "tree" / version.entry).read_bytes()
    return f"# {version.name} {version.number}, SHA-256 {version.digest}{_SAYS}".encode() + text


def write_module(folder: Path, tree: Path, version: Version) -> None:
    """Write the copy of a version, read-only and atomically. Another file of that name stays.

    A copy is for reading alone, so a folder that cannot be written is logged, and is not an error.
    """
    name = f"{version.module}.py"
    try:
        text = module_text(tree, version)
        folder.mkdir(parents=True, exist_ok=True)
        # The folder may be a link of another user, which is not followed.
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _replace(handle, name, text)
        finally:
            os.close(handle)
    except OSError as error:
        _log.warning("%s: no copy of the script was written: %s", to_printable(folder / name), error.strerror or error)


def _replace(folder: int, name: str, text: bytes) -> None:
    if not _is_replaceable(folder, name):
        raise FileExistsError(0, "there is another file of that name")
    draft = f".{name}.{secrets.token_hex(8)}"
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _READ_ONLY, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), _READ_ONLY)
            file.write(text)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
        raise


def _is_replaceable(folder: int, name: str) -> bool:
    """Whether there is no such file, or a copy that this program made."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    with os.fdopen(handle, "rb") as file:
        return file.readline(_MOST_HEAD).endswith(_SAYS.encode())
