"""Paths of the agent's state, and the kinds of file systems that they may be on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hermes_exec.config.paths import state_folder, to_printable
from hermes_exec.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

NETWORKED = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fhgfs", "gfs2", "gluster", "glusterfs", "gpfs",
        "lustre", "ncp", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf",
        "wekafs",
    }
)  # fmt: skip
"""Kinds of file systems that several machines may write to, where a local lock does not exclude the others."""
WEB_KEY = "web-key"
"""The file, in the state folder, of the key that signs sessions of the web view."""
WEB_ENDED = "web-ended"
"""The file, in the state folder, of the sessions of the web view that were ended before their time."""
_ESCAPE = re.compile(r"\\([0-7]{3})")
_NO_FILE_SYSTEM = frozenset({"autofs"})


def state_path(variable: str, name: str, environ: Mapping[str, str]) -> Path:
    """Return the path in an environment variable, or ``name`` in the user's state folder. It need not exist.

    Raises:
        ConfigError: the variable is not an absolute path.
    """
    chosen = environ.get(variable, "")
    if chosen and not chosen.startswith("/"):
        raise ConfigError(f"{variable}={to_printable(chosen)}: should be an absolute path")
    return Path(chosen) if chosen else state_folder(environ) / name


def create_private_file(path: str) -> TextIO:
    """Create a new text file that only this user can read.

    Raises:
        OSError: it exists, or cannot be created.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(handle, "w", encoding="utf-8")


def find_file_system(folder: Path, mountinfo: str) -> str:
    """Return the kind of file system of ``folder``; ``mountinfo`` is the kernel's table of mounts."""
    path = os.path.realpath(folder)
    found, longest = "", -1
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4])
        kind = after.split(" ")[0]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # A later mount at the same path hides the earlier one.
        if inside and len(point) >= longest and kind not in _NO_FILE_SYSTEM:
            found, longest = kind, len(point)
    return found
