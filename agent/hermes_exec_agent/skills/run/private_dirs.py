"""Folders of one run: nobody else finds what is in them, and what a kill left is swept by a later run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

_PREFIX = "hx-skill-"
_OLD_S = 600.0
"""A folder that is younger may be one that its run has not locked yet."""


@contextlib.contextmanager
def private_folder() -> Generator[Path]:
    """A new folder that the user of a sandbox can reach, and that nobody can find who is not told its name.

    Below /tmp, because whoever a sandbox runs as has to reach it, and a home is closed to them.
    """
    sweep()
    above = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
    handle = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        # Others may pass through, and cannot list it: the folder inside is known to this run alone.
        above.chmod(0o711 if os.geteuid() == 0 else 0o700)
        inside = above / secrets.token_hex(16)
        inside.mkdir(mode=0o755)
        inside.chmod(0o755)
        yield inside
    finally:
        shutil.rmtree(above, ignore_errors=True)
        os.close(handle)


def sweep() -> None:
    """Remove the folders of runs that were killed."""
    for path in Path("/tmp").glob(f"{_PREFIX}*"):  # noqa: S108  only what is ours is touched
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                seen = os.fstat(handle)
                if seen.st_uid == os.geteuid() and time.time() - seen.st_mtime > _OLD_S:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
