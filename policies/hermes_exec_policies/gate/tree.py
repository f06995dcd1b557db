"""Copy a skill's files once, and hash the copy: exactly these bytes are judged, kept and run.

Others may change the source while it is read, so it is read through descriptors, no link is followed, and no file is
read twice.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import unicodedata
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_exec_policies.gate.text_checks import find_hidden, find_lookalike
from hermes_exec_policies.gate.verdict import Finding, SkillRefused, functional

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_FILES = 1000
"""Public skills with trees of schemas or of fonts have up to about 100."""
MAX_FILE = 8 << 20
"""Bytes of one file: a font with Chinese characters, a template of slides."""
MAX_ALL = 32 << 20
"""Bytes of all files together: six times the largest of the known public skills, and little to read into memory."""
MAX_DEPTH = 12
"""Names in a path. Trees of schemas have 7; a deeper tree is rather a checkout with its dependencies."""
_MAX_NAME = 100
_MANIFEST = "SKILL.md"
_ELSEWHERE = re.compile(r"[ .]$|[<>:\"|?*]|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""File names that some systems do not support, or interpret differently."""
_PORTABLE = 'use none of < > : " | ? *, no dot or space at the end, and no name of a device'
_COPIED = 1_577_836_800
"""The time of all files of a copy, in seconds since 1970; archives cannot represent times before 1980."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a skill."""

    path: str
    mode: int
    """0o644, or 0o755 if any user could execute it."""
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Tree:
    """The files of a skill in a folder of ours."""

    root: Path
    files: tuple[FileEntry, ...]

    @property
    def digest(self) -> str:
        """A SHA-256 of paths, modes and bytes; every part with its length before it, so that no two trees share one."""
        total = hashlib.sha256()
        for each in self.files:
            path = each.path.encode()
            total.update(b"%d:%s%o:%d:%s" % (len(path), path, each.mode, each.size, each.sha256.encode()))
        return total.hexdigest()

    def facts(self) -> dict[str, Any]:
        """Return the tree as JSON data for another process, which reads the same files."""
        return {"root": str(self.root), "files": list(map(astuple, self.files))}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Tree:
        """Create a tree from the output of ``facts``."""
        return cls(Path(facts["root"]), tuple(FileEntry(*each) for each in facts["files"]))

    def read(self, path: str) -> bytes:
        """Return the bytes of a file of the skill."""
        return (self.root / path).read_bytes()


class SkillTreeWriter:
    """A writer that adds a skill's files to a new folder, within limits, and lists them."""

    def __init__(self, root: Path) -> None:
        """Create ``root``, which must not exist."""
        self.root = root
        self._files: dict[str, FileEntry] = {}
        self._folded: set[str] = set()
        self._bytes = 0
        root.mkdir()
        root.chmod(0o755)

    def add(self, path: str, executable: bool, data: bytes) -> None:  # noqa: FBT001  a mode has no better name
        """Write one file.

        Raises:
            SkillRefused: its name or its size is invalid, or there are too many files.
        """
        check_path(path)
        if path == _MANIFEST.lower():
            path = _MANIFEST  # the format allows both, and readers here look for this one
        folded = unicodedata.normalize("NFKC", path).casefold()
        if folded in self._folded:
            raise SkillRefused(
                functional(
                    "manifest.collision",
                    "two files have one name on some systems: rename one of them",
                    path,
                )
            )
        self._folded.add(folded)
        self._bytes += len(data)
        if len(self._files) >= MAX_FILES:
            raise SkillRefused(_too_many())
        if len(data) > MAX_FILE:
            wrong = f"the file has more than {MAX_FILE >> 20} MiB: leave it out, or make it smaller"
            raise SkillRefused(functional("manifest.size", wrong, path))
        if self._bytes > MAX_ALL:
            wrong = f"the files have more than {MAX_ALL >> 20} MiB together: leave out what the skill does not use"
            raise SkillRefused(functional("manifest.size", wrong, path))
        mode = 0o755 if executable else 0o644
        target = self.root / path
        self._folder(target.parent)
        descriptor = os.open(target, _NEW, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            hide_time(descriptor)
        self._files[path] = FileEntry(path, mode, len(data), hashlib.sha256(data).hexdigest())

    def _folder(self, folder: Path) -> None:
        """Create a folder and its parents, which a sandbox's user must reach whatever our umask is."""
        if not folder.is_dir():
            self._folder(folder.parent)
            folder.mkdir()
            folder.chmod(0o755)

    def tree(self) -> Tree:
        """Return the tree of the written files."""
        for folder in (self.root, *{self.root / part for path in self._files for part in Path(path).parents}):
            hide_time(folder)
        return Tree(self.root, tuple(self._files[path] for path in sorted(self._files, key=str.encode)))


def hide_time(file: Path | int) -> None:
    """Set the times of a file or a folder to a constant: a skill could recognize a check by the age of its files."""
    os.utime(file, (_COPIED, _COPIED))


def copy_tree(source: Path, into: Path) -> Tree:
    """Copy the skill in ``source`` to the new folder ``into``, hashing it on the way.

    Raises:
        SkillRefused: it contains links, devices, invalid names, or too much.
        OSError: it cannot be read; files that were copied before remain in ``into``.
    """
    writer = SkillTreeWriter(into)
    for path, descriptor in _walk(source):
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise SkillRefused(_special_finding(path))
            if status.st_nlink > 1:
                raise SkillRefused(
                    functional(
                        "manifest.hard-link",
                        "the file has a second name, by which it can change: copy the folder",
                        path,
                    )
                )
            if status.st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX):
                raise SkillRefused(set_id_finding(path))
            writer.add(path, bool(status.st_mode & 0o111), _read(descriptor))
        finally:
            os.close(descriptor)
    return writer.tree()


def copy_files(tree: Tree, into: Path) -> None:
    """Copy the files of a tree to ``into``, an empty folder, with the same modes and times."""
    shutil.copytree(tree.root, into, dirs_exist_ok=True)


def list_tree(root: Path) -> Tree:
    """Read the files in a folder of ours, which were copied before.

    Raises:
        SkillRefused: the folder has an entry that a copy of ours cannot have.
    """
    found: list[FileEntry] = []
    for path, descriptor in _walk(root):
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or len(found) > MAX_FILES:
                raise SkillRefused(functional("manifest.changed", "the copy was changed", path))
            data = _read(descriptor)
            mode = stat.S_IMODE(status.st_mode)
            found.append(FileEntry(path, mode, len(data), hashlib.sha256(data).hexdigest()))
        finally:
            os.close(descriptor)
    return Tree(root, tuple(sorted(found, key=lambda each: each.path.encode())))


def set_id_finding(path: str) -> Finding:
    """Return the finding about a file that runs with another user's rights."""
    return functional(
        "manifest.set-id", "a skill's file never has a set-user-ID, set-group-ID or sticky bit: chmod a-s,-t", path
    )


def check_path(path: str) -> None:
    """Refuse anything but a plain relative path of printable characters, which cannot lead out.

    Raises:
        SkillRefused: the path has another form.
    """
    parts = path.split("/")
    if any(part in {"", ".", ".."} for part in parts) or "\\" in path:
        raise SkillRefused(
            functional("manifest.path", f"{path[:80]!r} can lead out of the skill: name it by a plain path")
        )
    if len(parts) > MAX_DEPTH:
        raise SkillRefused(functional("manifest.path", f"{path[:80]!r} is deeper than {MAX_DEPTH} folders: move it up"))
    if any(len(part) > _MAX_NAME for part in parts):
        wrong = f"{ascii(path)[:80]} is longer than {_MAX_NAME} characters: shorten the name"
        raise SkillRefused(functional("manifest.file-name", wrong))
    if not path.isprintable() or (not path.isascii() and (find_hidden(path) or find_lookalike(path))):
        wrong = f"{ascii(path)[:80]} holds a character that is invisible or looks like another: rename the file"
        raise SkillRefused(functional("manifest.file-name", wrong))
    if any(_ELSEWHERE.search(part) for part in parts):
        wrong = f"{ascii(path)[:80]} is a name that some systems cannot store: {_PORTABLE}"
        raise SkillRefused(functional("manifest.file-name", wrong))


def _walk(source: Path) -> Iterator[tuple[str, int]]:
    """Yield every file below ``source`` as an open descriptor, with its path; the caller closes it."""
    entries = 0
    for here, folders, files, descriptor in os.fwalk(source, follow_symlinks=False):
        base = os.path.relpath(here, source)
        if base == ".":
            base = ""
        folders.sort()
        entries += len(folders) + len(files)
        if entries > 2 * MAX_FILES:
            raise SkillRefused(_too_many())
        for name in folders:
            path = _join(base, name)
            if stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                raise SkillRefused(_link_finding(path))
        for name in sorted(files):
            path = _join(base, name)
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                raise SkillRefused(_link_finding(path))
            if not stat.S_ISREG(status.st_mode):
                raise SkillRefused(_special_finding(path))
            yield path, os.open(name, _READ, dir_fd=descriptor)


def _join(base: str, name: str) -> str:
    path = f"{base}/{name}" if base else name
    try:
        path.encode()
    except UnicodeEncodeError:
        raise SkillRefused(functional("manifest.file-name", f"{ascii(path)[:80]} is not text")) from None
    check_path(path)
    return path


def _too_many() -> Finding:
    return functional("manifest.files", f"there are more than {MAX_FILES} files: leave out what the skill does not use")


def _link_finding(path: str) -> Finding:
    return functional("manifest.link", "a link can lead out of the skill: put a copy of the file in its place", path)


def _special_finding(path: str) -> Finding:
    return functional("manifest.special", "a device, a socket or a pipe holds no text or data: remove it", path)


def _read(descriptor: int) -> bytes:
    """Read at most one byte more than the limit, so that a larger file is recognized."""
    parts: list[bytes] = []
    left = MAX_FILE + 1
    while left and (part := os.read(descriptor, min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
