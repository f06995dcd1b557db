"""Compare the packed scans of two trees, and plan the steps that make one like the other."""

from __future__ import annotations

import stat
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_exec.errors import ProtocolError
from hermes_exec.guest.files.tree_scan import BLOCK, RECORD
from hermes_exec.guest.files.tree_stream import COPY, TOUCH

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = stat.S_IFDIR
_LINK = stat.S_IFLNK
_FILE = stat.S_IFREG
MAX_SCAN = 1 << 30
"""Bytes of a scan at most, enough for some 20 million files; a larger scan is an attack."""


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One name in a folder. Only files have a size and a time; only links have a target."""

    mode: int
    size: int
    mtime: int
    target: bytes

    @property
    def kind(self) -> int:
        """The file type."""
        return stat.S_IFMT(self.mode)

    @property
    def is_special(self) -> bool:
        """Whether it is neither a file, a folder nor a link."""
        return self.kind not in {_FILE, _FOLDER, _LINK}


@dataclass(frozen=True, slots=True)
class FolderBlock:
    """One folder of a scan: its entries as bytes, which equal the other side's if nothing differs."""

    packed: bytes
    names: int
    plain: int

    def entries(self) -> dict[bytes, TreeEntry]:
        """Return the entries of the folder, by name."""
        found: dict[bytes, TreeEntry] = {}
        names = self.packed[: self.names].split(b"\0") if self.packed else []
        records = RECORD.iter_unpack(self.packed[self.names :])
        for name, (mode, size, mtime) in zip(names, records, strict=True):
            plain, _, target = name.partition(b"/")
            found[plain] = TreeEntry(mode, size, mtime, target)
        return found


@dataclass(frozen=True, slots=True)
class TreeScan:
    """All folders of a tree by path, each before its subfolders; and the folders that could not be read."""

    folders: dict[bytes, FolderBlock] = field(default_factory=dict[bytes, FolderBlock])
    unreadable: dict[bytes, int] = field(default_factory=dict[bytes, int])

    @property
    def is_missing(self) -> bool:
        """Whether even the root is missing."""
        return not self.folders and not self.unreadable

    @classmethod
    def parse(cls, data: bytes) -> TreeScan:
        """Parse what the scanner packed."""
        scan = cls()
        try:
            for path, packed, names, plain in _blocks(data):
                if not names and packed and not RECORD.unpack_from(packed)[0]:
                    scan.unreadable[path] = RECORD.unpack_from(packed)[1]
                else:
                    scan.folders[path] = FolderBlock(packed, names, plain)
        except (struct.error, ValueError) as error:
            raise ProtocolError(f"the scan makes no sense: {error}") from None
        return scan

    @property
    def plain(self) -> int:
        """The number of entries that are not folders."""
        return sum(block.plain for block in self.folders.values())


def _blocks(data: bytes) -> Iterator[tuple[bytes, bytes, int, int]]:
    at = 0
    while at < len(data):
        path, names, count, plain = BLOCK.unpack_from(data, at)
        start = at + BLOCK.size
        end = start + path + names + count * RECORD.size
        if end > len(data):
            raise ValueError("it is cut short")
        yield data[start : start + path], data[start + path : end], names, plain
        at = end


@dataclass(slots=True)
class SyncPlan:
    """The steps of a sync: paths relative to the root, grouped by folder, each folder before its content."""

    copy: list[bytes] = field(default_factory=list[bytes])
    """Files, links and folders to send."""
    touch: list[bytes] = field(default_factory=list[bytes])
    """Files of the right content that need another mode or time."""
    check: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """Files of equal size and different time, with that size: their hashes have to be compared."""
    delete: list[bytes] = field(default_factory=list[bytes])
    """Entries that the source does not have, each after its content."""
    conflicts: list[bytes] = field(default_factory=list[bytes])
    """Folders where the source has something else, or the reverse; they must be deleted first."""
    special: list[bytes] = field(default_factory=list[bytes])
    """Devices, named pipes and sockets of the source, which are left out."""
    folders: int = 0
    """How many of ``copy`` are folders."""
    size: int = 0
    """Bytes of content in ``copy``."""

    def record_hashes(self, path: bytes, *, same: bool) -> None:
        """Record whether the hashes of a file of ``check`` are equal."""
        if same:
            self.touch.append(path)
        else:
            self.copy.append(path)
            self.size += self.check[path]

    def steps(self) -> list[bytes]:
        """Return the steps for the sender, in the order of the tree."""
        marked = [(path, COPY) for path in self.copy] + [(path, TOUCH) for path in self.touch]
        marked.sort(key=lambda step: step[0].split(b"/"))
        return [action + path for path, action in marked]


def compare(source: TreeScan, other: TreeScan) -> SyncPlan:
    """Return the plan that makes ``other`` like ``source``."""
    plan = SyncPlan()
    for path, block in source.folders.items():
        there = other.folders.get(path)
        if there is not None and there.packed == block.packed:
            continue
        prefix = path + b"/" if path else b""
        old = {} if there is None else there.entries()
        for name, entry in block.entries().items():
            _one(plan, prefix + name, entry, old.pop(name, None), other)
        if path not in other.unreadable:
            for name, entry in old.items():
                _delete_entry(plan, prefix + name, entry, other)
    plan.delete.reverse()
    return plan


def _one(plan: SyncPlan, path: bytes, entry: TreeEntry, old: TreeEntry | None, other: TreeScan) -> None:
    if entry.is_special:
        plan.special.append(path)
        return
    if old is not None and old.kind != entry.kind and _FOLDER in {old.kind, entry.kind}:
        plan.conflicts.append(path)
        _delete_entry(plan, path, old, other)
    is_folder = entry.kind == _FOLDER
    if old is None or old.kind != entry.kind or old.size != entry.size or old.target != entry.target:
        plan.copy.append(path)
        plan.folders += is_folder
        plan.size += entry.size
    elif is_folder:
        if old.mode != entry.mode:
            plan.copy.append(path)
            plan.folders += 1
    elif old.mtime != entry.mtime:
        plan.check[path] = entry.size
    elif old.mode != entry.mode:
        plan.touch.append(path)


def _delete_entry(plan: SyncPlan, path: bytes, entry: TreeEntry, other: TreeScan) -> None:
    """Delete an entry with everything that the scan has below it."""
    plan.delete.append(path)
    waiting = [path] if entry.kind == _FOLDER else []
    while waiting:
        folder = waiting.pop()
        block = other.folders.get(folder)
        for name, inner in (block.entries() if block else {}).items():
            plan.delete.append(folder + b"/" + name)
            if inner.kind == _FOLDER:
                waiting.append(folder + b"/" + name)
