"""Keep what a turn changes in the target before its first change, so that it can be rolled back.

Files that tools write are copied one by one. Changes by commands are found by comparing two snapshots of the git work
tree in which they run; elsewhere the record says that they are not covered. The log has what was changed, and the
digests of what was kept; the contents stay in the target. See also `WatchedFolder`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import posixpath
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, TransferError, Unsupported
from hermes_exec.terminal.copies import TargetCopy
from hermes_exec_agent.tools import file_scripts
from hermes_exec_agent.tools.file_states import FileChange, FileState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from hermes_exec import Terminal
    from hermes_exec_agent.runtime.events.event import Event, Kind

    Keep = Callable[..., Awaitable[tuple[str, list[FileChange]]]]
    """`keep_files`."""

_log = logging.getLogger("hermes_exec.agent")
_LIMIT_S = 60.0
SNAPSHOT_S = 10.0
"""Seconds of a snapshot; changes of commands in a work tree that takes longer are not covered."""
_MOST_CHANGES = 5000
"""Files that commands of one turn change; more of them are not covered."""
_NEAR = frozenset({"local", "docker", "bubblewrap", "singularity"})
"""Kinds of targets on which several calls take less time than several programs."""
_SMALL = 256 << 10
"""Bytes of a file that is copied through this program."""
_MOST_OUTPUT = 16 << 20
_FIELDS = 7
_SUBMODULE = "160000"
_LINK = "120000"
_BATCH = 60_000
"""Bytes of arguments of one script."""
COPIED = frozenset({"docker"})
"""Kinds of targets with snapshots that take a second and cost nothing; Modal and Daytona store and bill them."""
_LIST_LIMIT_S = 10.0
_MOST_FILES = 2000
_MOST_BYTES = 256 << 20
"""Bytes of earlier contents of one turn."""
_REASONS = {
    3: "the folder does not exist", 4: "the root folder is not watched", 5: "other file systems are mounted there",
    7: "not all of its files can be listed", 8: "the find of this target cannot compare times",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Snapshot:
    top: str
    tree: str
    modes: str
    event: int


class NotCovered(Exception):
    """A snapshot could not be made; the message says why."""


class FileCheckpoints:
    """What one conversation keeps. Delegated conversations share that of the delegating one."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._id = secrets.token_hex(8)
        """Names this conversation's index of a work tree."""
        self._record: Callable[[Kind, dict[str, Any]], Awaitable[Event]] | None = None
        self._lock = asyncio.Lock()
        self._paths: dict[str, str] = {}
        """Paths that were kept in this turn, and where they led."""
        self._folders: set[str] = set()
        self._snapshots: dict[str, _Snapshot] = {}
        self._watched: WatchedFolder | None = None
        """The folder outside of a work tree in which the turn's first command ran."""
        self._is_pruned = False
        self._blobs = ""
        """The folder of contents in the target; empty before it is known."""

    def begin(self, record: Callable[[Kind, dict[str, Any]], Awaitable[Event]]) -> None:
        """Record with ``record`` from now on."""
        self._record = record

    async def keep(self, changes: Mapping[str, bytes | None]) -> None:
        """Keep files before they change.

        A file that cannot be kept is recorded with the reason, and changes nevertheless.

        Args:
            changes: the new content of each path; None for a file that is removed.

        Raises:
            HermesError: the change could not be recorded.
        """
        async with self._lock:
            new = [path for path in changes if path not in self._paths]
            before = dict(zip(new, await self._keep(new), strict=True))
            self._paths |= {path: kept.path for path, kept in before.items()}
            records: list[FileChange] = []
            for path, content in changes.items():
                state = before[path].before if path in before else None
                records.append(FileChange(self._paths[path], state, FileState.of_content(content)))
            await self._note("change", changes=[each.to_record() for each in records])

    async def _keep(self, paths: Sequence[str]) -> list[FileChange]:
        kept: dict[str, FileChange] = {}
        try:
            for path in paths:
                if change := await self._keep_small(path):
                    kept[path] = change
            if rest := [path for path in paths if path not in kept]:
                self._blobs, found = await keep_files(self._terminal, rest, follow=True)
                kept |= zip(rest, found, strict=True)
        except HermesError as error:
            state = FileState("unkept", why=str(error))
            return [kept.get(path) or FileChange(path, state, state) for path in paths]
        return [kept[path] for path in paths]

    async def _keep_small(self, path: str) -> FileChange | None:
        """Keep a small file by calls of a near guest, each of which takes less than a program; None otherwise."""
        if self._terminal.kind not in _NEAR or not self._terminal.capabilities.file_transfer or not self._blobs:
            return None
        files = self._terminal.files
        try:
            info = await files.stat(path)
            if not info.is_file or info.size > _SMALL:
                return None
            where, data = await files.read_resolved(path, 0, _SMALL + 1)
            if not where.path or len(data) > _SMALL:
                return None
            state = replace(FileState.of_content(data), mode=f"{info.mode:o}", owner=f"{info.uid}:{info.gid}")
            change = FileChange(where.path, state, state)
            await files.write(posixpath.join(self._blobs, state.digest.partition(":")[2]), data, mode=0o600)
        except (TransferError, ValueError):
            return None
        return change

    async def begin_command(self, folder: str) -> None:
        """Take a snapshot of the work tree around ``folder`` before the turn's first command there.

        Raises:
            HermesError: the snapshot could not be recorded.
        """
        async with self._lock:
            if folder in self._folders:
                return
            self._folders.add(folder)
            try:
                top, store, tree, modes, _ = await self._snapshot(folder)
            except NotCovered as error:
                await self._begin_folder(folder, error)
                return
            if top not in self._snapshots:
                event = await self._note("snapshot", top=top, store=store, tree=tree, modes=modes)
                self._snapshots[top] = _Snapshot(top, tree, modes, event)

    async def _begin_folder(self, folder: str, reason: NotCovered) -> None:
        """Watch a folder outside of a work tree if the target has snapshots; record ``reason`` otherwise."""
        if self._watched is None and self._terminal.kind in COPIED:
            try:
                self._watched = await WatchedFolder.begin(self._terminal, folder, self._id)
            except HermesError as error:
                await self._note("uncovered", folder=folder, why=f"{reason}, and {error.what}")
                return
            self._watched.event = await self._note("snapshot", top=self._watched.top)
        elif self._watched is None or not self._watched.contains(folder):
            await self._note("uncovered", folder=folder, why=str(reason))

    async def _compare_folder(self, watched: WatchedFolder) -> None:
        try:
            changes = await watched.list_changes(keep_files)
        except (ValueError, HermesError) as error:
            what = error.what if isinstance(error, HermesError) else str(error)
            await self._note("uncovered", folder=watched.top, why=what, since=watched.event)
        else:
            records = [each.to_record() for each in changes]
            await self._note("commands", top=watched.top, since=watched.event, changes=records)
        finally:
            await watched.end()

    async def end_turn(self) -> None:
        """Record what the commands of the turn changed, and remove old contents."""
        async with self._lock:
            did = bool(self._paths or self._snapshots or self._watched)
            snapshots, self._snapshots = self._snapshots, {}
            watched, self._watched = self._watched, None
            self._paths, self._folders = {}, set()
            try:
                if watched is not None:
                    await self._compare_folder(watched)
                for each in snapshots.values():
                    await self._compare(each)
                if did and not self._is_pruned:
                    self._is_pruned = True
                    argv = ["sh", "-c", file_scripts.PRUNE, "sh", str(file_scripts.DAYS), str(file_scripts.MOST)]
                    await self._terminal.run(argv, timeout=_LIMIT_S)
            except HermesError as error:
                _log.warning("the files of this turn were not kept well: %s", error)

    async def _compare(self, before: _Snapshot) -> None:
        try:
            _, store, _, _, rest = await self._snapshot(before.top, before)
            changes = _parse_differences(rest, before.top, store)
        except NotCovered as error:
            await self._note("uncovered", folder=before.top, why=str(error), since=before.event)
        except (ValueError, HermesError) as error:
            why = f"the changes cannot be read: {error}"
            await self._note("uncovered", folder=before.top, why=why, since=before.event)
        else:
            records = [each.to_record() for each in changes]
            await self._note("commands", top=before.top, since=before.event, changes=records)

    async def _snapshot(self, folder: str, before: _Snapshot | None = None) -> tuple[str, str, str, str, bytes]:
        """Return the work tree, its store, the tree, its modes, and the rest of the output."""
        more = [before.top, before.tree, before.modes] if before else ["", "", ""]
        argv = ["sh", "-c", file_scripts.SNAPSHOT, "sh", folder, self._id, *more]
        result = await self._terminal.run(argv, timeout=SNAPSHOT_S, max_output=_MOST_OUTPUT)
        if result.exit_code == file_scripts.NO_WORK_TREE:
            raise NotCovered("no git work tree")
        if result.exit_code == file_scripts.NO_GIT:
            raise NotCovered("git is not installed")
        if result.timed_out:
            raise NotCovered(f"a snapshot takes more than {SNAPSHOT_S:g} s")
        if not result.ok:
            lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
            raise NotCovered(lines[-1] if lines else result.reason)
        fields = result.stdout.split(b"\0", 4)
        if result.truncated or len(fields) != 5 or not fields[0].startswith(b"/"):
            raise NotCovered("too many files changed" if result.truncated else "the target sent an invalid snapshot")
        top, store, tree, modes = (os.fsdecode(each) for each in fields[:4])
        return top, store, tree, modes, fields[4]

    async def _note(self, what: str, **data: Any) -> int:
        """Record an event of this target, and return its number."""
        if self._record is None:
            return 0
        return (await self._record("files", {"what": what, "target": self._terminal.target, **data})).number


async def keep_files(terminal: Terminal, paths: Iterable[str], *, follow: bool) -> tuple[str, list[FileChange]]:
    """Copy files to the folder of kept contents; return that folder, and the resolved path and the state of each.

    Raises:
        HermesError: the target failed.
    """
    kept: list[FileChange] = []
    blobs = ""
    for group in group_arguments([[path] for path in paths]):
        given = [path for (path,) in group]
        flags = ["1" if follow else "0", str(file_scripts.LARGEST)]
        result = await terminal.run(
            ["sh", "-c", file_scripts.KEEP, "sh", *flags, *given], timeout=_LIMIT_S, check=True, max_output=_MOST_OUTPUT
        )
        fields = [os.fsdecode(each) for each in result.stdout.split(b"\0")[:-1]]
        if len(fields) != _FIELDS * len(given) + 1:
            raise HermesError("the target sent an invalid list of kept files")
        blobs = fields[-1]
        for index, path in enumerate(given):
            kept.append(_parse_kept(path, fields[_FIELDS * index : _FIELDS * (index + 1)]))
    return blobs, kept


def _parse_kept(path: str, fields: Sequence[str]) -> FileChange:
    real, kind, digest, mode, owner, above, why = fields
    try:
        state = FileState(kind, digest, mode, owner, above, why)
        return FileChange(real, state, state)
    except ValueError as error:
        state = FileState("unkept", why=str(error))
        return FileChange(path, state, state)


def group_arguments(items: Iterable[Sequence[str]]) -> list[list[Sequence[str]]]:
    """Group arguments of scripts, so that those of one script fit a command line."""
    groups: list[list[Sequence[str]]] = []
    room = 0
    for each in items:
        size = sum(len(os.fsencode(word)) + 1 for word in each)
        if size > room or not groups:
            groups.append([])
            room = _BATCH
        groups[-1].append(each)
        room -= size
    return groups


def _parse_differences(output: bytes, top: str, store: str) -> list[FileChange]:
    """Return the changes that `SNAPSHOT` prints.

    Raises:
        ValueError: the output is invalid.
        NotCovered: there are too many changes.
    """
    lines, separator, raw = output.partition(b"\0")
    if not separator:
        raise ValueError("the output is cut")
    pairs = [line.partition(b" ") for line in lines.split(b"\n") if line]
    modes = {name: mode for mode, _, name in pairs}
    parts = raw.split(b"\0")[:-1]
    if len(parts) % 2:
        raise ValueError("the output is cut")
    if len(parts) // 2 > _MOST_CHANGES:
        raise NotCovered(f"more than {_MOST_CHANGES:,} files changed")
    changes: list[FileChange] = []
    for head, name in zip(parts[::2], parts[1::2], strict=True):
        mode1, mode2, old, new, _ = head.decode("ascii").removeprefix(":").split(" ")
        if _SUBMODULE in (mode1, mode2):
            continue
        path = f"{'' if top == '/' else top}/{os.fsdecode(name)}"
        mode = modes.get(name.replace(b"\n", b"\1"), b"-").decode("ascii")
        before = _to_state(mode1, old, store)
        if before.kind == "file" and mode != "-":
            before = replace(before, mode=mode)
        changes.append(FileChange(path, before, _to_state(mode2, new, store)))
    return changes


def _to_state(mode: str, id: str, store: str) -> FileState:
    """Return the state of an entry of a tree."""
    if mode == "000000":
        return FileState("absent")
    kind = "link" if mode == _LINK else "file"
    return FileState(kind, f"git:{store}:{id}", "" if kind == "link" else mode[-3:])


class WatchedFolder:
    """A folder, and a snapshot of its target from the beginning of the turn."""

    def __init__(self, terminal: Terminal, top: str, id: str, copy: TargetCopy) -> None:
        """``top`` is the physical path of the folder, and ``id`` names its lists in the target."""
        self._terminal = terminal
        self._id = id
        self._copy = copy
        self.top = top
        self.event = 0
        """The number of the event that records the beginning."""

    @classmethod
    async def begin(cls, terminal: Terminal, folder: str, id: str) -> WatchedFolder:
        """List the files of a folder, and take the snapshot.

        Raises:
            HermesError: the folder cannot be watched; the message says why.
        """
        (top,) = await _run(terminal, file_scripts.BEGIN_LIST, folder, id)
        return cls(terminal, top, id, await TargetCopy.take(terminal))

    def contains(self, folder: str) -> bool:
        """Whether a folder is this one or in it."""
        return posixpath.normpath(folder) == self.top or posixpath.normpath(folder).startswith(f"{self.top}/")

    async def list_changes(self, keep: Keep) -> list[FileChange]:
        """Return the files that came, went or changed since the beginning, with their states then and now.

        Raises:
            HermesError: they cannot be compared; the message says why.
            ValueError: a state of a file is invalid.
        """
        paths = await _run(self._terminal, file_scripts.END_LIST, self.top, self._id)
        if len(paths) > _MOST_FILES:
            raise Unsupported(f"more than {_MOST_FILES:,} files changed")
        if not paths:
            return []
        blobs, after = await keep(self._terminal, paths, follow=False)
        async with self._copy.open() as copy:
            earlier, before = await keep(copy, paths, follow=False)
            left = _MOST_BYTES
            for digest in dict.fromkeys(each.after.digest for each in before if each.after.digest):
                name = digest.partition(":")[2]
                argv = ["cat", posixpath.join(earlier, name)]  # its size is that which the target names, or any other
                content = await copy.run(argv, timeout=_LIST_LIMIT_S, check=True, max_output=max(left, 1))
                left -= len(content.stdout)
                if content.truncated or left < 0:
                    raise Unsupported(f"more than {_MOST_BYTES >> 20} MiB changed")
                await self._terminal.write(posixpath.join(blobs, name), content.stdout)
        pairs = zip(paths, before, after, strict=True)
        changes = [FileChange(path, then.before, now.after) for path, then, now in pairs]
        return [each for each in changes if each.before != each.after]

    async def end(self) -> None:
        """Remove the snapshot."""
        try:
            await self._copy.remove()
        except HermesError as error:
            _log.warning("a snapshot of %s was not removed: %s", self._terminal.target, error)


async def _run(terminal: Terminal, script: str, *argv: str) -> Sequence[str]:
    """Run a script and return the fields that it prints.

    Raises:
        Unsupported: it failed, with the reason.
        HermesError: the target failed.
    """
    result = await terminal.run(["sh", "-c", script, "sh", *argv], timeout=_LIST_LIMIT_S, max_output=_MOST_OUTPUT)
    if result.timed_out:
        raise Unsupported(f"listing its files takes more than {_LIST_LIMIT_S:g} s")
    if not result.ok or result.truncated:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        reason = _REASONS.get(result.exit_code or 0) or (lines[-1] if lines else result.reason)
        raise Unsupported(reason)
    return [os.fsdecode(field) for field in result.stdout.split(b"\0")[:-1]]
