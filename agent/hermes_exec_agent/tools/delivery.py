"""Files that a skill left, brought to a person's folder. No link that lies there is followed."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def deliver(source: Path, files: Iterable[str], into: Path) -> list[str]:
    """Copy ``files`` of the folder ``source`` into the folder ``into``, which is made; older ones are replaced.

    Gives their new paths.

    Raises:
        HermesError: one of them cannot be put there; those before it are there.
    """
    done: list[str] = []
    try:
        into.mkdir(parents=True, exist_ok=True)
        for file in files:
            _copy(source / file, into, file.split("/"))
            done.append(str(into / file))
    except OSError as error:
        raise HermesError(
            f"the skill's files cannot be put into {into}: {error.strerror}",
            remedy="look at what lies there",
            state=f"the skill ran; put there: {', '.join(done) or 'nothing'}",
        ) from error
    return done


def _copy(source: Path, into: Path, parts: list[str]) -> None:
    here = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=here)
            below = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        draft = f".{secrets.token_hex(8)}"
        try:
            with source.open("rb") as original, os.fdopen(os.open(draft, _NEW, 0o666, dir_fd=here), "wb") as file:
                shutil.copyfileobj(original, file)
            os.replace(draft, parts[-1], src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=here)
            raise
    finally:
        os.close(here)
