"""The folders of the registry: this user's alone, on a file system of this machine.

The registry (log, content, counters) is state; the key and the signed head are next to the configuration. No sandbox
sees any of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import config_folder, to_printable
from hermes_exec.errno_hints import path_remedy
from hermes_exec.errors import ConfigError, HermesError, Refused
from hermes_exec_agent.state_paths import NETWORKED, find_file_system, state_path

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

VARIABLE = "HERMES_EXEC_SKILLS"
MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class RegistryHome:
    """The paths of a registry."""

    folder: Path
    """Of the log, the content and the counters."""
    keys: Path
    """Of the key and the heads."""

    @property
    def content(self) -> Path:
        """The trees of all versions, by digest."""
        return self.folder / "content"

    @property
    def environments(self) -> Path:
        """The packages of skills."""
        return self.folder / "environments"

    @property
    def log(self) -> Path:
        """The database of events."""
        return self.folder / "registry.sqlite"

    @property
    def descriptions(self) -> Path:
        """The complete descriptions of versions, kept for speed; it can be removed."""
        return self.folder / "descriptions.json"

    @property
    def counts(self) -> Path:
        """The database of runs."""
        return self.folder / "runs.sqlite"

    def prepare(self) -> None:
        """Create the folders, and check them.

        Raises:
            Refused: other users or other machines could change their content.
            ConfigError: a folder cannot be created.
        """
        for folder in (self.folder, self.content, self.keys):
            _make_folder(folder)
        self.check()

    def check(self) -> None:
        """Check the existing folders; nothing is created.

        Raises:
            Refused: other users or other machines could change their content.
        """
        mounts = ""
        for folder in (self.folder, self.content, self.keys):
            if os.path.lexists(folder):
                mounts = mounts or MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
                check_private(folder)
                check_local(folder, mounts)

    def find_exposed(self, folders: Iterable[str]) -> str:
        """Return the first of ``folders`` that contains the registry or its key, or lies in one; empty if none does."""
        kept = [_end_with_slash(os.path.realpath(path)) for path in (self.folder, self.keys)]
        for folder in folders:
            real = _end_with_slash(os.path.realpath(folder))
            if any(each.startswith(real) or real.startswith(each) for each in kept):
                return folder
        return ""

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Exclude other writers. The kernel releases the lock when the process ends.

        Raises:
            HermesError: the folder cannot be written.
        """
        lock = self.folder / "lock"
        try:
            handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            remedy = path_remedy(lock, error.errno, f"{VARIABLE}=… another folder")
            raise HermesError(
                f"{to_printable(lock)}: nothing can be recorded: {error.strerror}", remedy=remedy
            ) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _end_with_slash(path: str) -> str:
    """Return a path with one slash at its end, so that its prefixes are folders that contain it."""
    return path.rstrip("/") + "/"


def default_home(environ: Mapping[str, str] | None = None) -> RegistryHome:
    """Return the user's registry, or that of the variable ``HERMES_EXEC_SKILLS``. It need not exist.

    Raises:
        ConfigError: the variable is not an absolute path.
    """
    known = os.environ if environ is None else environ
    return RegistryHome(state_path(VARIABLE, "skills", known), config_folder(known) / "skill-keys")


def check_private(folder: Path) -> None:
    """Check that only this user and root can write to the folder, or replace it.

    Raises:
        Refused: another user could.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise Refused(f"{to_printable(folder)} is not a folder", remedy="move it away")
    if found.st_uid != os.geteuid():
        raise Refused(f"{to_printable(folder)} belongs to another user", remedy=f"{VARIABLE}=… a folder of your own")
    if found.st_mode & 0o077:
        raise Refused(
            f"{to_printable(folder)} is open to others (mode {stat.S_IMODE(found.st_mode):04o})",
            remedy=f"look at what is in it, then chmod 700 {to_printable(folder)}",
        )
    for above in Path(os.path.realpath(folder)).parents:
        if _is_writable_by_others(above.stat()):
            raise Refused(
                f"others can write to {to_printable(above)}, which {to_printable(folder)} is in",
                remedy="chmod go-w there",
            )


def _is_writable_by_others(found: os.stat_result) -> bool:
    if found.st_uid not in {0, os.geteuid()}:
        return True
    if found.st_mode & stat.S_ISVTX:
        return False  # only its owner can rename an entry
    return bool(found.st_mode & 0o002) or bool(found.st_mode & 0o020 and not _is_private_group(found.st_gid))


def _is_private_group(number: int) -> bool:
    """Whether this user is the only member of a group, as of the private groups of many systems."""
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(number)
    except KeyError:
        return False
    shared = any(entry.pw_gid == number and entry.pw_uid != user.pw_uid for entry in pwd.getpwall())
    return number == user.pw_gid and not shared and set(group.gr_mem) <= {user.pw_name}


def check_local(folder: Path, mounts: str) -> None:
    """Check that the folder is on a file system of this machine alone; ``mounts`` is the kernel's mountinfo.

    Raises:
        Refused: other machines share it, so that locks and a database's journal protect nothing.
    """
    kind = find_file_system(folder, mounts)
    family = kind.partition(".")[0]
    if kind in NETWORKED or (family == "fuse" and kind not in {"fuseblk", "fuse.fuse-overlayfs", "fuse.ext4"}):
        raise Refused(
            f"{to_printable(folder)} is on a file system other machines may share ({kind}): nothing is safe there",
            remedy=f"{VARIABLE}=/a/folder/on/a/local/disk, and XDG_CONFIG_HOME likewise if it is the key's",
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{to_printable(folder)}: {error.strerror}", remedy=f"{VARIABLE}=… another folder") from error
