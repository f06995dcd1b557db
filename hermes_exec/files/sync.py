"""Sync: make one tree like another and move only the differences, by one scan of each side and one stream."""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hermes_exec.errors import ProtocolError, UsageError
from hermes_exec.files import errors
from hermes_exec.files.download import download
from hermes_exec.files.file_thread import FileThread, open_file_thread
from hermes_exec.files.info import Change, Skipped, SyncReport, TransferReport
from hermes_exec.files.requests import FileRequests, Path, encode_path, require_field
from hermes_exec.files.transfer import ProgressMeter, TransferSettings
from hermes_exec.files.upload import TreeRequest, send_tree
from hermes_exec.guest.files import tree_scan, tree_stream
from hermes_exec.guest.files.safe_paths import FOLDER
from hermes_exec.guest.files.tree_scan import BLOCK, RECORD
from hermes_exec.guest.files.tree_stream import COPY, TOUCH
from hermes_exec.terminal.encoding import validate_choice, validate_flag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


Direction = Literal["up", "down"]
_PORTION = 16 << 20
"""Bytes of paths in one request at most."""
_WHAT = "cannot sync"

_FOLDER = stat.S_IFDIR
_LINK = stat.S_IFLNK
_FILE = stat.S_IFREG
MAX_SCAN = 1 << 30
"""Bytes of a scan at most, enough for some 20 million files; a larger scan is an attack."""


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """The options of a sync, besides its two paths."""

    direction: Direction
    delete: bool
    dry_run: bool
    options: TransferSettings


class Sync:
    """One running sync."""

    def __init__(
        self, requests: FileRequests, hand: FileThread, local: bytes, remote: bytes, wish: SyncRequest
    ) -> None:
        self._requests = requests
        self._hand = hand
        self._local = local
        self._remote = remote
        self._wish = wish
        self._shown = os.fsdecode(remote if wish.direction == "down" else local)

    async def run(self) -> SyncReport:
        """Scan, compare, delete, copy."""
        up = self._wish.direction == "up"
        scanning = self._hand.submit(self._scan_here, missing_ok=not up)
        there = await self._scan_there(missing_ok=up)
        here = await scanning
        source, other = (here, there) if up else (there, here)
        self._demand_whole(source)
        plan = compare(source, other)
        await self._check(plan)
        if not self._wish.delete:
            self._demand_no_conflict(plan)
            plan.delete.clear()
        if self._wish.dry_run:
            return self._report(source, plan, len(plan.copy) - plan.folders, plan.size, len(plan.delete), ())
        removed = await self._prune(plan)
        done = await self._copy(plan) if plan.copy or plan.touch or other.is_missing else TransferReport(0, 0)
        return self._report(source, plan, done.files, done.bytes, removed, done.skipped)

    def _scan_here(self, *, missing_ok: bool) -> TreeScan:
        try:
            folder = os.open(self._local, FOLDER)
        except FileNotFoundError as error:
            if missing_ok:
                return TreeScan()
            raise errors.local_path_error(_WHAT, os.fsdecode(self._local), error) from None
        except OSError as error:
            raise errors.local_path_error(_WHAT, os.fsdecode(self._local), error) from None
        try:
            return TreeScan.parse(b"".join(tree_scan.scan(folder, self._wish.options.parse_ignore())))
        finally:
            os.close(folder)

    async def _scan_there(self, *, missing_ok: bool) -> TreeScan:
        ignore = list(self._wish.options.ignore)
        async with self._requests.stream("scan", self._remote, ignore=ignore) as stream:
            data = await stream.read_all(MAX_SCAN)
            answer = await stream.call.result()
        try:
            errors.raise_for_answer(answer, _WHAT, os.fsdecode(self._remote))
        except FileNotFoundError:
            if missing_ok:
                return TreeScan()
            raise
        return TreeScan.parse(data)

    def _demand_whole(self, source: TreeScan) -> None:
        """Refuse to delete when a part of the source cannot be read, since unseen files would count as deleted."""
        for path, code in source.unreadable.items():
            place = f"{self._shown}/{os.fsdecode(path)}"
            raise errors.path_error(_WHAT, place, code, os.strerror(code), remedy="leave it out by a pattern to ignore")

    def _demand_no_conflict(self, plan: SyncPlan) -> None:
        for path in plan.conflicts:
            line = f"{os.fsdecode(path)} is a folder on one side and none on the other; nothing was changed"
            raise UsageError(line, remedy="delete, too, replaces what is in the way")

    async def _check(self, plan: SyncPlan) -> None:
        """Compare the hashes of the files whose times differ."""
        for paths in split_portions(list(plan.check)):
            hashing = self._hand.submit(self._hashes_here, paths)
            async with self._requests.stream("hashes", self._remote, paths=b"\0".join(paths)) as stream:
                theirs = await stream.read_all(MAX_SCAN)
                errors.raise_for_answer(await stream.call.result(), _WHAT, self._shown)
            ours = await hashing
            if len(theirs) != len(ours):
                raise ProtocolError("the guest sent another number of hashes than it was asked for")
            for index, path in enumerate(paths):
                at = slice(index * tree_stream.DIGEST, (index + 1) * tree_stream.DIGEST)
                plan.record_hashes(path, same=ours[at] == theirs[at] != tree_stream.NO_DIGEST)

    def _hashes_here(self, paths: list[bytes]) -> bytes:
        folder = os.open(self._local, FOLDER)
        try:
            return b"".join(digest or tree_stream.NO_DIGEST for digest in tree_scan.hashes(folder, paths))
        finally:
            os.close(folder)

    async def _prune(self, plan: SyncPlan) -> int:
        """Delete before copying, so that conflicts are gone and the folders' times are right in the end."""
        removed = 0
        for paths in split_portions(plan.delete):
            if self._wish.direction == "up":
                what = "cannot delete in"
                answer = await self._requests.request("prune", what, self._remote, paths=b"\0".join(paths))
                removed += require_field(answer, "removed", int)
            else:
                removed += await self._hand.run(self._prune_here, paths)
        return removed

    def _prune_here(self, paths: list[bytes]) -> int:
        folder = os.open(self._local, FOLDER)
        try:
            return tree_scan.prune(folder, paths)
        except OSError as error:
            place = f"{os.fsdecode(self._local)}/{os.fsdecode(error.filename or b'')}"
            raise errors.local_path_error("cannot delete", place, error, state="a part was deleted") from None
        finally:
            os.close(folder)

    def _sender(self) -> tree_stream.TreeSender:
        return tree_stream.TreeSender(os.open(self._local, FOLDER), self._wish.options.verify)

    async def _copy(self, plan: SyncPlan) -> TransferReport:
        steps = plan.steps()
        options = self._wish.options
        if self._wish.direction == "up":
            sender = await self._hand.acquire(tree_stream.TreeSender.close, self._sender)
            meter = ProgressMeter(options.progress, plan.size, len(plan.copy) - plan.folders)
            blocks = sender.send_plan(steps)
            request = TreeRequest(self._requests, self._remote, options, meter)
            return await send_tree(request, self._hand, sender, blocks)
        done = TransferReport(0, 0)
        for portion in split_portions(steps) if steps else [steps]:
            chosen = b"\0".join(portion)
            part = await download(self._requests, self._remote, self._local, options, chosen)
            skipped = done.skipped + part.skipped
            done = TransferReport(done.files + part.files, done.bytes + part.bytes, skipped)
        return done

    def _report(
        self, source: TreeScan, plan: SyncPlan, copied: int, size: int, deleted: int, skipped: tuple[Skipped, ...]
    ) -> SyncReport:
        kinds = ("delete", plan.delete), ("copy", plan.copy), ("touch", plan.touch)
        special = (Skipped(os.fsdecode(path), "neither a file, a folder nor a link") for path in plan.special)
        return SyncReport(
            copied=copied,
            deleted=deleted,
            unchanged=source.plain - len(plan.copy) + plan.folders - len(plan.touch) - len(plan.special),
            bytes=size,
            touched=len(plan.touch),
            changes=tuple(Change(os.fsdecode(path), kind) for kind, paths in kinds for path in paths),
            skipped=(*special, *skipped),
        )


def split_portions(paths: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Split paths into lists that each fit into one request."""
    portion: list[bytes] = []
    size = 0
    for path in paths:
        portion.append(path)
        size += len(path) + 1
        if size >= _PORTION:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


async def sync(requests: FileRequests, local: Path, remote: Path, wish: SyncRequest) -> SyncReport:
    """Make one tree like the other."""
    validate_choice(wish.direction, "direction", ("up", "down"))
    validate_flag(wish.delete, "delete")
    validate_flag(wish.dry_run, "dry_run")
    async with open_file_thread() as hand:
        return await Sync(requests, hand, encode_path(local, "local"), encode_path(remote, "remote"), wish).run()


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
            raise ProtocolError(f"the scan is invalid: {error}") from None
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
    """Files of equal size and different time, with that size: their hashes must be compared."""
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
