"""The files of registered versions, by digest, and private folders that they are copied to.

A stored tree has files of mode 0644 and 0755 and folders of mode 0755, and nothing else. Any byte, mode, file, folder
or link that differs from the signed list was changed by another program.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.errors import HermesError, Refused
from hermes_exec_agent.skills.registry.log import sync_folder
from hermes_exec_policies.gate.tree import hide_time

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hermes_exec_policies.gate.tree import FileEntry, Tree

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = 0o755
_DRAFT = ".new-"


class ContentChanged(Refused):
    """Stored files differ from the signed list."""


def store(content: Path, tree: Tree) -> None:
    """Store a tree under its digest; a crash leaves it complete, or leaves a draft that is removed later.

    The caller holds the registry's lock.

    Raises:
        Changed: the tree differs from its list.
        HermesError: it cannot be written.
    """
    target = content / tree.digest
    remove_drafts(content)
    try:
        if os.path.lexists(target):
            if not find_differences(target, tree.files):
                return
            # The changed tree is kept for inspection.
            target.rename(content / f".changed-{tree.digest}-{secrets.token_hex(8)}")
        draft = content / f"{_DRAFT}{secrets.token_hex(8)}"
        copy_verified(tree.root, tree.files, draft, lasting=True)
        draft.rename(target)
        sync_folder(content)
    except OSError as error:
        raise HermesError(f"the skill cannot be kept: {error}", state="nothing was registered") from error


def remove_drafts(content: Path) -> None:
    """Remove drafts that crashes left. The caller holds the registry's lock."""
    for entry in content.iterdir():
        if entry.name.startswith(_DRAFT):
            shutil.rmtree(entry, ignore_errors=True)


def copy_verified(source: Path, files: Sequence[FileEntry], into: Path, *, lasting: bool = False) -> None:
    """Copy a tree to the folder ``into``, new or empty, comparing it with the list; ``lasting`` syncs the disk.

    Raises:
        Changed: it differs from the list; nothing is left in ``into``.
        OSError: it cannot be read or written; nothing is left in ``into``.
    """
    found: list[str] = []
    try:
        _Reader(files, found, into, lasting=lasting).read(source)
        if found:
            raise _create_change_error(source, found)  # noqa: TRY301  what is there so far has to go
    except BaseException:
        shutil.rmtree(into, ignore_errors=True)
        raise


def _create_change_error(source: Path, found: Sequence[str]) -> ContentChanged:
    return ContentChanged(f"{source.name[:12]}: {'; '.join(found[:5])}", remedy="hermes-exec skill verify")


def find_differences(source: Path, files: Sequence[FileEntry]) -> list[str]:
    """Return the differences of a tree from its list."""
    found: list[str] = []
    _Reader(files, found).read(source)
    return found


class _Reader:
    def __init__(
        self, files: Sequence[FileEntry], found: list[str], into: Path | None = None, *, lasting: bool = False
    ) -> None:
        self._files = {each.path: each for each in files}
        self._folders = {each.path[:place] for each in files for place, letter in enumerate(each.path) if letter == "/"}
        self._found = found
        self._into = into
        self._lasting = lasting

    def read(self, source: Path) -> None:
        try:
            handle = os.open(source, _READ | os.O_DIRECTORY)
        except OSError as error:
            self._found.append(f"{source.name[:12]}: {error.strerror}")
            return
        try:
            self._folder(handle, "")
        finally:
            os.close(handle)
        self._found += [f"{path}: it is missing" for path in sorted({*self._files, *self._folders})]

    def _folder(self, handle: int, path: str) -> None:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode != _FOLDER:
            self._found.append(f"{path or '.'}: its mode is {mode:04o}")
        self._folders.discard(path)
        target = self._into / path if self._into is not None else None
        if target is not None:
            target.mkdir(exist_ok=not path)
            target.chmod(_FOLDER)  # a sandbox's user must reach it, independent of the umask
        with os.scandir(handle) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            self._entry(handle, name, f"{path}/{name}" if path else name)
        if target is not None:
            hide_time(target)
            if self._lasting:
                sync_folder(target)

    def _entry(self, folder: int, name: str, path: str) -> None:
        if path not in self._files and path not in self._folders:
            self._found.append(f"{ascii(path)[1:-1]}: it was added")
            return
        try:
            handle = os.open(name, _READ, dir_fd=folder)
        except OSError as error:  # a link, or a socket
            self._found.append(f"{path}: {error.strerror}")
            self._forget(path)
            return
        try:
            kind = os.fstat(handle).st_mode
            if path in self._folders and stat.S_ISDIR(kind):
                self._folder(handle, path)
            elif path in self._files and stat.S_ISREG(kind):
                self._file(handle, self._files.pop(path))
            else:
                self._found.append(f"{path}: it is something else")
                self._forget(path)
        finally:
            os.close(handle)

    def _forget(self, path: str) -> None:
        self._files.pop(path, None)
        self._folders.discard(path)

    def _file(self, handle: int, listed: FileEntry) -> None:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode != listed.mode:
            self._found.append(f"{listed.path}: its mode is {mode:04o}")
        data = bytearray()
        while len(data) <= listed.size and (part := os.read(handle, listed.size + 1 - len(data))):
            data += part
        if len(data) != listed.size or hashlib.sha256(data).hexdigest() != listed.sha256:
            self._found.append(f"{listed.path}: its bytes were changed")
        elif self._into is not None:
            self._write(self._into / listed.path, listed.mode, bytes(data))

    def _write(self, target: Path, mode: int, data: bytes) -> None:
        with os.fdopen(os.open(target, _NEW, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            hide_time(file.fileno())
            if self._lasting:
                os.fsync(file.fileno())


_PREFIX = "hx-skill-"
_OLD_S = 600.0
"""Age of a folder before which its run may not have locked it yet."""


@contextlib.contextmanager
def private_folder() -> Generator[Path]:
    """Create a folder that the user of a sandbox can reach by its name, which cannot be listed.

    It is below /tmp, as a sandbox's user must reach it, and a home folder is closed to other users.
    """
    remove_stale_folders()
    above = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
    handle = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        # Others may traverse it, but not list it: only this run knows the folder inside.
        above.chmod(0o711 if os.geteuid() == 0 else 0o700)
        inside = above / secrets.token_hex(16)
        inside.mkdir(mode=0o755)
        inside.chmod(0o755)
        yield inside
    finally:
        shutil.rmtree(above, ignore_errors=True)
        os.close(handle)


def remove_stale_folders() -> None:
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
