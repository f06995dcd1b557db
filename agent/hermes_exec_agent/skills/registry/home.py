"""The folders of the registry: this user's alone, on a file system of this machine.

The registry (log, content, counts) is state; the key and the signed head are beside the configuration. Both lie
outside of what any sandbox sees.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import pwd
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import config_folder, shown, state_folder
from hermes_exec.errno_hints import remedy_at
from hermes_exec.errors import ConfigError, HermesError, Refused

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

VARIABLE = "HERMES_EXEC_SKILLS"
MOUNTS = Path("/proc/self/mountinfo")
NETWORKED = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fhgfs", "gfs2", "gluster", "glusterfs", "gpfs",
        "lustre", "ncp", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf",
        "wekafs",
    }
)  # fmt: skip
"""Kinds of file systems that several machines may write to, so that a lock here holds off nobody there."""
_ESCAPE = re.compile(r"\\([0-7]{3})")
_NO_FILE_SYSTEM = frozenset({"autofs"})


@dataclass(frozen=True, slots=True)
class Home:
    """Where everything is."""

    folder: Path
    """Of the log, the content and the counts."""
    keys: Path
    """Of the key and the heads."""

    @property
    def content(self) -> Path:
        """The trees of all versions, by their digests."""
        return self.folder / "content"

    @property
    def environments(self) -> Path:
        """The packages that skills need."""
        return self.folder / "environments"

    @property
    def log(self) -> Path:
        """The database of events."""
        return self.folder / "registry.sqlite"

    @property
    def counts(self) -> Path:
        """The database of runs."""
        return self.folder / "runs.sqlite"

    def prepare(self) -> None:
        """Make the folders, and see that they are what they must be.

        Raises:
            Refused: others could change what is in them, or other machines could.
            ConfigError: one of them cannot be made.
        """
        for folder in (self.folder, self.content, self.keys):
            _make(folder)
        self.check()

    def check(self) -> None:
        """See that the folders that are there are what they must be; nothing is made.

        Raises:
            Refused: others could change what is in them, or other machines could.
        """
        mounts = ""
        for folder in (self.folder, self.content, self.keys):
            if os.path.lexists(folder):
                mounts = mounts or MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
                check_private(folder)
                check_local(folder, mounts)

    def exposes(self, folders: Iterable[str]) -> str:
        """The first of ``folders`` through which the registry or its key could be reached; empty if none is."""
        kept = [_ending(os.path.realpath(path)) for path in (self.folder, self.keys)]
        for folder in folders:
            real = _ending(os.path.realpath(folder))
            if any(each.startswith(real) or real.startswith(each) for each in kept):
                return folder
        return ""

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Hold everybody else off from registering. Released by the kernel however we end.

        Raises:
            HermesError: nothing can be written there.
        """
        lock = self.folder / "lock"
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            remedy = remedy_at(lock, error.errno, f"{VARIABLE}=… another folder")
            raise HermesError(f"{shown(lock)}: nothing can be recorded: {error.strerror}", remedy=remedy) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _ending(path: str) -> str:
    """A path with one slash at its end, so that what begins with it lies in it."""
    return path.rstrip("/") + "/"


def this_home(environ: Mapping[str, str] | None = None) -> Home:
    """The user's, or that of the variable ``HERMES_EXEC_SKILLS``. It need not exist.

    Raises:
        ConfigError: the variable is no absolute path.
    """
    known = os.environ if environ is None else environ
    chosen = known.get(VARIABLE, "")
    if chosen and not chosen.startswith("/"):
        raise ConfigError(f"{VARIABLE}={shown(chosen)}: should be an absolute path")
    folder = Path(chosen) if chosen else state_folder(known) / "skills"
    return Home(folder, config_folder(known) / "skill-keys")


def check_private(folder: Path) -> None:
    """See that nobody but this user and root can put anything in, or another folder in its place.

    Raises:
        Refused: somebody else could.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(f"{shown(folder)} is no folder", remedy="move it away")
    if found.st_uid != os.geteuid():
        raise Refused(f"{shown(folder)} belongs to somebody else", remedy=f"{VARIABLE}=… a folder of your own")
    if found.st_mode & 0o077:
        raise Refused(
            f"{shown(folder)} is open to others (mode {stat.S_IMODE(found.st_mode):04o})",
            remedy=f"look at what is in it, then chmod 700 {shown(folder)}",
        )
    for above in Path(os.path.realpath(folder)).parents:
        if _others_write(above.stat()):
            raise Refused(f"others can write to {shown(above)}, which {shown(folder)} is in", remedy="chmod go-w there")


def _others_write(found: os.stat_result) -> bool:
    if found.st_uid not in {0, os.geteuid()}:
        return True
    if found.st_mode & stat.S_ISVTX:
        return False  # what is in there can be renamed by its owner alone
    return bool(found.st_mode & 0o002) or bool(found.st_mode & 0o020 and not _own_group(found.st_gid))


def _own_group(number: int) -> bool:
    """Whether a group has nobody in it but this user, as many systems give to everybody."""
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(number)
    except KeyError:
        return False
    shared = any(entry.pw_gid == number and entry.pw_uid != user.pw_uid for entry in pwd.getpwall())
    return number == user.pw_gid and not shared and set(group.gr_mem) <= {user.pw_name}


def check_local(folder: Path, mounts: str) -> None:
    """See that the folder is on a file system of this machine alone; ``mounts`` is what the kernel tells of them.

    Raises:
        Refused: it is shared with other machines, where locks and a database's journal protect nothing.
    """
    kind = file_system(folder, mounts)
    family = kind.partition(".")[0]
    if kind in NETWORKED or (family == "fuse" and kind not in {"fuseblk", "fuse.fuse-overlayfs", "fuse.ext4"}):
        raise Refused(
            f"{shown(folder)} is on a file system other machines may share ({kind}): nothing is safe there",
            remedy=f"{VARIABLE}=/a/folder/on/a/local/disk, and XDG_CONFIG_HOME likewise if it is the key's",
        )


def file_system(folder: Path, mountinfo: str) -> str:
    """The kind of file system that ``folder`` is on; ``mountinfo`` is what the kernel tells of mounts."""
    path = os.path.realpath(folder)
    found, longest = "", -1
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4])
        kind = after.split(" ")[0]
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # A later mount at the same place hides the earlier one.
        if inside and len(point) >= longest and kind not in _NO_FILE_SYSTEM:
            found, longest = kind, len(point)
    return found


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{shown(folder)}: {error.strerror}", remedy=f"{VARIABLE}=… another folder") from error
