"""Sources of skills: a folder, an archive or a git repository, with one skill or several.

A source is only read: each chosen skill is copied once, and nothing of it runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from abc import ABC, abstractmethod
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from hermes_exec.config.check import nearest_name
from hermes_exec.config.paths import to_printable
from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.skills.registry import bundle
from hermes_exec_agent.skills.registry.git_source import SCHEMES, GitAddress, GitCommit
from hermes_exec_agent.skills.registry.record import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from hermes_exec_agent.skills.registry.git_source import GitEntry
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.archive_members import ArchiveMember
    from hermes_exec_policies.gate.tree import Tree

ARCHIVES = (".zip", ".skill", ".tar", ".tar.gz", ".tgz")
_MANIFESTS = ("SKILL.md", "skill.md")
_DEPTH = 6
_MOST_FOLDERS = 5000
_MOST_MEMBERS = 20_000
_MOST_BYTES = 128 << 20
"""Of an archive, and of its members together."""
_NAME = re.compile(r"^name:[ \t]*[\"']?([a-z0-9]+(?:-[a-z0-9]+)*)[\"']?[ \t]*\r?$", re.MULTILINE)


class SkillSource(ABC):
    """A source that was opened, with the skills in it."""

    def __init__(self, origin: Origin, folders: Mapping[str, str]) -> None:
        self.origin = origin
        """Of each skill of the source; without a digest, that of the imported tree counts."""
        self.signer = ""
        """Of a bundle: the fingerprint of its key."""
        self.folders = folders
        """The path of each skill in the source, by its name there."""

    def choose(self, names: Sequence[str], *, everything: bool) -> list[str]:
        """Return the names of the chosen skills.

        Raises:
            UsageError: a name is unknown, or the source has several skills and none was chosen.
        """
        if unknown := [name for name in names if name not in self.folders]:
            guess = nearest_name(unknown[0], self.folders)
            hint = f"; the nearest known one is {guess!r}" if guess else ""
            raise UsageError(f"the source has no skill {unknown[0][:80]!a}{hint}", remedy=self._list())
        if names:
            return list(dict.fromkeys(names))
        if everything or len(self.folders) == 1:
            return sorted(self.folders)
        raise UsageError(f"the source has {len(self.folders)} skills: {self._list()}", remedy="their names, or --all")

    def _list(self) -> str:
        shown = sorted(self.folders)[:40]
        return ", ".join(shown) + (", …" if len(self.folders) > len(shown) else "")

    @abstractmethod
    def copy(self, name: str, into: Path) -> Tree:
        """Copy a skill to a new folder of its name in the folder ``into``.

        Raises:
            SkillRefused: it has links, devices, invalid names, or too much.
            HermesError: the source cannot be read.
        """


def open_source(text: str, work: Path, registry: Registry) -> SkillSource:
    """Open a source of skills.

    Args:
        text: a folder, an archive, a bundle, or the address of a repository.
        work: a private folder.
        registry: the one that imports from it.

    Raises:
        UsageError: there is no such source, or it has no skill.
        Refused: it is hostile, or too large.
        HermesError: it cannot be read.
    """
    from pathlib import Path

    if not text:  # an unset variable would import the current folder
        raise UsageError("the source is empty", remedy="a folder such as ., an archive, or git+https://…")
    scheme = text.partition("://")[0] if "://" in text else ""
    if scheme in SCHEMES:
        return _GitSource(GitAddress.parse(text), work)
    if scheme:
        raise UsageError(
            f"{ascii(scheme)[1:-1][:40]}:// is not read", remedy=f"a folder, an archive, or {SCHEMES[0]}://…"
        )
    path = Path(text)
    if path.is_dir():
        return _FolderSource(path)
    if path.exists():
        digest, members = _read_members(path)
        origin = Origin(kind="imported", source=to_printable(path.resolve()), digest=digest)
        is_bundle = bundle.STATEMENT in members
        return _BundleSource(path, origin, work, registry) if is_bundle else _ArchiveSource(path, origin, members)
    raise UsageError(f"{to_printable(path)}: there is no such folder or file")


class _FolderSource(SkillSource):
    """A skill's folder, or a folder with skills at any depth."""

    def __init__(self, path: Path) -> None:
        root = path.resolve()
        found = list(_walk_for_skills(root))
        folders = _name_folders(found, root.name, str(path))
        super().__init__(Origin(kind="imported", source=to_printable(root)), folders)
        self._root = root

    def copy(self, name: str, into: Path) -> Tree:
        from hermes_exec_policies.gate.tree import copy_tree

        if (self._root / self.folders[name] / ".git").exists():
            here = to_printable(self._root / self.folders[name])
            raise UsageError(f"{here} is a clone with git's own files", remedy=f"skill import git+file://{here}")
        try:
            return copy_tree(self._root / self.folders[name], into / PurePosixPath(name).name)
        except OSError as error:
            raise UsageError(f"{to_printable(self._root)} cannot be read: {error.strerror}") from error


def _walk_for_skills(root: Path) -> Iterable[str]:
    """Yield the folders with a SKILL.md, without following links, and not below a skill."""
    for count, (here, folders, files) in enumerate(os.walk(root, followlinks=False)):
        relative = os.path.relpath(here, root)
        if count > _MOST_FOLDERS:
            raise UsageError(f"{to_printable(root)} has more than {_MOST_FOLDERS} folders", remedy="a folder of skills")
        if any(name in files for name in _MANIFESTS):
            yield "" if relative == "." else relative
            folders.clear()
        elif relative.count(os.sep) >= _DEPTH:
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in {".git", "node_modules"})


class _ArchiveSource(SkillSource):
    """A zip or tar archive with skills."""

    def __init__(self, path: Path, origin: Origin, members: Mapping[str, ArchiveMember]) -> None:
        self._members = members
        found = _find_manifests(members)
        stem = path.name
        for ending in sorted(ARCHIVES, key=len, reverse=True):
            stem = stem.removesuffix(ending)
        at_root = members[found[""]].data if "" in found else b""
        super().__init__(origin, _name_folders(found, _read_name(at_root) or stem, str(path)))

    def copy(self, name: str, into: Path) -> Tree:
        from hermes_exec_policies.gate.archive_members import MemberKind
        from hermes_exec_policies.gate.tree import SkillTreeWriter
        from hermes_exec_policies.gate.verdict import SkillRefused, security

        writer = SkillTreeWriter(into / PurePosixPath(name).name)
        for path, member in _select_below(self._members, self.folders[name]):
            if member.kind is MemberKind.OTHER:
                raise SkillRefused(security("manifest.link", "a link or a device: pack the file itself", path))
            if member.kind is MemberKind.FILE:
                writer.add(path, bool(member.mode & 0o111), member.data)
        return writer.tree()


def _read_members(path: Path) -> tuple[str, dict[str, ArchiveMember]]:
    """Return the SHA-256 of an archive, and its members by their paths; nothing is written.

    Raises:
        UsageError: it is not an archive, or cannot be read.
        Refused: a member leads out of the archive, has a set-user-ID bit, or is there twice.
    """
    from hermes_exec_policies.gate.archive_members import ArchiveBounds, MemberKind, read_archive, read_members
    from hermes_exec_policies.gate.tree import MAX_FILE
    from hermes_exec_policies.gate.verdict import SkillRefused

    bounds = ArchiveBounds(members=_MOST_MEMBERS, file=4 * MAX_FILE, unpacked=_MOST_BYTES)
    members: dict[str, ArchiveMember] = {}
    shown = to_printable(path)
    try:
        data = read_archive(path, bounds)
        for member in read_members(data, bounds):
            name = member.name.removeprefix("./").rstrip("/")
            if member.name.startswith("/") or "\\" in name or ".." in name.split("/"):
                raise Refused(f"{shown}: the member {ascii(member.name)[:80]} leads out of the archive")
            if member.kind is MemberKind.FILE and member.mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX):
                raise Refused(f"{shown}: the member {ascii(member.name)[:80]} has a set-user-ID or like bit")
            if name in members and MemberKind.FILE in {member.kind, members[name].kind}:
                raise Refused(f"{shown}: the member {ascii(member.name)[:80]} is there twice")
            members[name] = member
    except SkillRefused as error:
        raise UsageError(f"{shown} cannot be imported: {error.findings[0].operator}") from error
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}") from error
    return hashlib.sha256(data).hexdigest(), members


class _BundleSource(SkillSource):
    """A bundle of another installation, whose signature is valid; its evidence does not count here."""

    def __init__(self, path: Path, origin: Origin, work: Path, registry: Registry) -> None:
        (into := work / "bundle").mkdir()
        found, self._tree = bundle.read(registry, path, into)
        super().__init__(origin, {self._tree.root.name: ""})
        self.signer = found.signer

    def copy(self, name: str, into: Path) -> Tree:
        from hermes_exec_policies.gate.tree import copy_tree

        return copy_tree(self._tree.root, into / name)


class _GitSource(SkillSource):
    """One commit of a repository with skills."""

    def __init__(self, address: GitAddress, work: Path) -> None:
        self._commit = GitCommit(work / "repository", address)
        self._commit.fetch()
        prefix = f"{address.subdirectory}/" if address.subdirectory else ""
        self._entries = {entry.path.removeprefix(prefix): entry for entry in self._commit.list_entries()}
        found = _find_manifests(self._entries)
        name = ""
        if "" in found:
            manifest = self._entries[found[""]]
            _check_sizes({found[""]: manifest})
            name = _read_name(self._commit.read_blobs({"": manifest})[""])
        folders = _name_folders(found, name or address.name, address.text)
        super().__init__(Origin(kind="imported", source=address.text, revision=self._commit.revision), folders)

    def copy(self, name: str, into: Path) -> Tree:
        from hermes_exec_policies.gate.tree import SkillTreeWriter

        entries = dict(_select_below(self._entries, self.folders[name]))
        _check_sizes(entries)
        data = self._commit.read_blobs(entries)
        writer = SkillTreeWriter(into / PurePosixPath(name).name)
        for path, entry in entries.items():
            writer.add(path, entry.mode == "100755", data[path])
        return writer.tree()


def _check_sizes(entries: Mapping[str, GitEntry]) -> None:
    """Refuse links, submodules, and more than a skill may have, before any object is read.

    Raises:
        SkillRefused: there is such an entry.
    """
    from hermes_exec_policies.gate.tree import MAX_ALL, MAX_FILES
    from hermes_exec_policies.gate.verdict import SkillRefused, functional, security

    for path, entry in entries.items():
        if entry.mode not in {"100644", "100755"}:
            kind = {"120000": "a link", "160000": "a submodule"}.get(entry.mode, "an entry of an unknown kind")
            raise SkillRefused(security("manifest.link", f"{kind}: commit the files themselves", path))
    if len(entries) > MAX_FILES:
        raise SkillRefused(functional("manifest.files", f"there are more than {MAX_FILES} files"))
    if sum(entry.size for entry in entries.values()) > MAX_ALL:
        raise SkillRefused(functional("manifest.size", f"the files have more than {MAX_ALL >> 20} MiB together"))


def _find_manifests(paths: Iterable[str]) -> dict[str, str]:
    """Return the path of each SKILL.md by its folder, except those below another skill's folder."""
    found = {path.rpartition("/")[0]: path for path in paths if path.rpartition("/")[2] in _MANIFESTS}
    return {
        folder: path
        for folder, path in found.items()
        if not any(str(above) in found for above in PurePosixPath(folder).parents if str(above) != ".")
        and ("" not in found or folder == "")
        and folder.count("/") <= _DEPTH
    }


_Entry = TypeVar("_Entry")


def _select_below(entries: Mapping[str, _Entry], folder: str) -> list[tuple[str, _Entry]]:
    """Return the entries below a folder, by their paths in it."""
    prefix = f"{folder}/" if folder else ""
    below = [(path.removeprefix(prefix), entry) for path, entry in entries.items() if path.startswith(prefix)]
    return sorted((path, entry) for path, entry in below if path)


def _name_folders(folders: Iterable[str], root: str, where: str) -> dict[str, str]:
    """Return the folders of skills by their last names, or by their paths where several have one name.

    Raises:
        UsageError: there is no folder.
    """
    paths = list(folders)
    if not paths:
        raise UsageError(
            f"{to_printable(where)} has no skill: no folder with a SKILL.md", remedy="hermes-exec skill new NAME"
        )
    last = [path.rpartition("/")[2] for path in paths]
    names = [name if last.count(name) == 1 else path for path, name in zip(paths, last, strict=True)]
    return {name or root: path for name, path in zip(names, paths, strict=True)}


def _read_name(manifest: bytes) -> str:
    """Return the name in a SKILL.md at the root of a source, whose own name says nothing of the skill."""
    match = _NAME.search(manifest.decode("utf-8", "replace"))
    return match.group(1) if match else ""
