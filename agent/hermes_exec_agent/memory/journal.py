"""The journal: ``MEMORY.md`` and ``USER.md`` in the state folder, and the record of every change in the event log.

A change is written to a file of its own first, then recorded, then renamed, so that a program that is killed leaves
either the old state or the new one; the next writer completes a rename that the record has. Each event has all entries
with their origins, so that the files can be rebuilt from the last one.

The owner's ``USER.md`` is next to ``MEMORY.md``. That of another person is in a folder of its own, and its changes are
in a stream of their own.

A person may edit the files with any program. The next change records the edit as the person's. Entries that the edit
lacks are kept in a file next to it, as an editor may have saved a copy from before they were written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from hermes_exec.config.paths import make_private_folder, state_folder, to_printable
from hermes_exec.errno_hints import path_remedy
from hermes_exec.errors import HermesError, UsageError
from hermes_exec_agent.memory.entries import FILES, TARGETS, Entry, join_entries, split_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path

    from hermes_exec.config.settings import MemorySettings
    from hermes_exec_agent.memory.entries import Target
    from hermes_exec_agent.runtime.events.event import Event
    from hermes_exec_agent.runtime.events.log import EventLog

STREAM = "memory"
"""The journal's id in the event log, which numbers its events; those of another person's file have ``memory:NAME``."""
_PEOPLE = "people"
"""The folder of the folders of other persons."""
_LARGEST = 1 << 20
"""Bytes of a file that is read."""
_ATTEMPTS = 100
_PATIENCE_S = 30.0
_POLL_S = 0.005
_REBUILD = "hermes-exec memory rebuild"

State: TypeAlias = "dict[Target, list[Entry]]"


class Damaged(HermesError):
    """A file of the journal is not UTF-8 text, or is too large; it was left as it is."""


class _EditedMeanwhile(Exception):
    """The file changed while a change of it was prepared."""


@dataclass(frozen=True, slots=True)
class JournalChange:
    """A change that was recorded."""

    before: tuple[Entry, ...]
    after: tuple[Entry, ...]
    set_aside: tuple[str, ...] = ()
    """Texts of entries that the person's edit of the file lacked; they are kept next to it."""


class Journal:
    """The two files, and their events. Threads and programs may share it; calls block."""

    def __init__(self, folder: Path, log: EventLog, limits: Mapping[Target, int], person: str = "") -> None:
        """``limits`` are the characters of each file that a prompt may have; a file without one is not used.

        ``person`` is the name of the person of ``USER.md``; empty for the owner.
        """
        self.folder = folder
        self.person = person
        self.limits = dict(limits)
        self._log = log

    @classmethod
    def of_user(
        cls,
        log: EventLog,
        settings: MemorySettings,
        environ: Mapping[str, str] | None = None,
        *,
        person: str = "",
    ) -> Journal:
        """Return the user's journal with the file of a person. Nothing is created before the first change."""
        limits: dict[Target, int] = {}
        if settings.memory_enabled:
            limits["memory"] = settings.memory_char_limit
        if settings.user_profile_enabled:
            limits["user"] = settings.user_char_limit
        return cls(state_folder(os.environ if environ is None else environ) / "memory", log, limits, person)

    def path(self, target: Target) -> Path:
        """Return the path of a file."""
        return self._home(target) / FILES[target]

    def stream(self, target: Target) -> str:
        """Return the id of the stream that has the changes of a file."""
        return f"{STREAM}:{self.person}" if self.person and target == "user" else STREAM

    def of_person(self, person: str) -> Journal:
        """Return this journal with the file of another person."""
        return Journal(self.folder, self._log, self.limits, person)

    def read(self, target: Target) -> list[Entry]:
        """Return the entries of a file with their origins; none if it does not exist.

        Raises:
            Damaged: it is not text.
            HermesError: it, or the log, cannot be read.
        """
        texts = self._read_texts(target)[0]
        return _with_origins(texts, self._read_state(target)[target]) if texts else []

    def write(
        self, target: Target, change: Callable[[list[Entry]], Sequence[Entry]], *, who: str, why: str, source: str = ""
    ) -> JournalChange:
        """Replace the entries of a file by ``change`` of them; it may be called again if a person saves meanwhile.

        Args:
            target: the file.
            change: returns the new entries; an error of it changes nothing.
            who: ``agent`` or ``person``.
            why: the reason, in a line.
            source: the id of the conversation that the change came from.

        Raises:
            HermesError: nothing was changed, or another program holds the journal.
        """
        with self._lock():
            self._complete()
            for _ in range(_ATTEMPTS):
                with contextlib.suppress(_EditedMeanwhile):
                    return self._write(target, change, {"who": who, "why": why, "source": source})
        raise HermesError(f"{to_printable(self.path(target))}: another program keeps changing it; nothing was written")

    def record_edit(self, target: Target) -> None:
        """Record what a person changed in a file since the latest recorded change; a missing file is left alone.

        Raises:
            HermesError: the file or the log cannot be read or written.
        """
        texts, stamp = self._read_texts(target)
        if stamp is not None and texts != [each.text for each in self._read_state(target)[target]]:
            self.write(target, list, who="person", why="the file was edited")

    def history(self) -> list[Event]:
        """Return all changes in the stream of the person's file, the oldest first; the owner's has both files."""
        return [event for event in self._log.events(self.stream("user")) if event.kind == "memory"]

    def events_of(self, conversation: str) -> list[Event]:
        """Return the events of a conversation, from which a change takes its sources."""
        return self._log.events(conversation)

    def entries_at(self, number: int) -> tuple[Target, list[Entry]]:
        """Return the file that a change was of, and its entries after it.

        Raises:
            UsageError: there is no such change.
        """
        for event in self.history():
            if event.number == number:
                target: Target = event.data["target"]
                return target, _parse_state(event.data)[target]
        raise UsageError(f"there is no change {number} of memory", remedy="hermes-exec memory history")

    def set_aside(self, target: Target, texts: Sequence[str]) -> None:
        """Keep texts of entries next to a file.

        Raises:
            HermesError: they cannot be written.
        """
        with self._translate(target):
            self._make_home(target)
            self._put(self._beside(target, "other"), join_entries(Entry(text) for text in texts).encode())

    def remove_copies(self, target: Target) -> None:
        """Remove the backup of a file and the entries that were kept next to it."""
        with self._lock():
            for suffix in ("bak", "other"):
                self._beside(target, suffix).unlink(missing_ok=True)

    def persons(self) -> list[str]:
        """Return the names of the other persons whose file was ever changed."""
        return [stream.partition(":")[2] for stream in self._log.streams(f"{STREAM}:")]

    def rebuild(self) -> list[Path]:
        """Write the files of all persons from the events alone; a file that differs is kept next to it.

        Returns:
            The files that were written.

        Raises:
            HermesError: a file cannot be written.
        """
        written = self.of_person("").rebuild_own()
        for person in self.persons():
            written += self.of_person(person).rebuild_own()
        return written

    def rebuild_own(self) -> list[Path]:
        """Write the two files of this journal from the events; see `rebuild`."""
        written: list[Path] = []
        with self._lock():
            for target in TARGETS:
                state = self._read_state(target)
                with self._translate(target):
                    self._make_home(target)
                    path, content = self.path(target), join_entries(state[target]).encode()
                    before = path.read_bytes() if path.exists() else b""
                    if before == content:
                        continue
                    self._back_up(target)
                    self._put(path, content)
                    written.append(path)
        return written

    def _write(
        self, target: Target, change: Callable[[list[Entry]], Sequence[Entry]], cause: dict[str, str]
    ) -> JournalChange:
        texts, stamp = self._read_texts(target)
        state = self._read_state(target)
        recorded = state[target]
        current = _with_origins(texts, recorded)
        aside = [each.text for each in recorded if each.text not in texts]
        wanted = list(change(list(current)))
        records: list[dict[str, Any]] = []
        if texts != [each.text for each in recorded]:
            state[target] = current
            edit = {"who": "person", "why": "the file was edited", "source": ""}
            records.append(_to_record(target, recorded, state, edit))
        if wanted != current:
            state[target] = wanted
            records.append(_to_record(target, current, state, cause))
        if records:
            if aside:
                self.set_aside(target, aside)
            self._commit(target, join_entries(wanted).encode(), records, stamp)
        return JournalChange(tuple(current), tuple(wanted), tuple(aside))

    def _commit(self, target: Target, content: bytes, records: list[dict[str, Any]], stamp: object) -> None:
        pending = self._beside(target, "pending")
        try:
            with self._translate(target):
                self._make_home(target)
                self._put(pending, content)
            self._check_stamp(target, stamp)
            stream = self.stream(target)
            self._log.append_all(stream, [("memory", each) for each in records], after=self._log.last(stream))
            self._check_stamp(target, stamp)
        except BaseException:
            pending.unlink(missing_ok=True)
            raise
        with self._translate(target):
            self._back_up(target)
            self._rename(pending, self.path(target))

    def _complete(self) -> None:
        """Complete, or undo, the change of a program that was killed."""
        for target in TARGETS:
            pending = self._beside(target, "pending")
            if not pending.exists():
                continue
            with self._translate(target):
                content = pending.read_bytes()
                stream = self.stream(target)
                events = self._log.events(stream, max(self._log.last(stream) - 1, 0))
                last = events[-1].data if events else {}
                new = join_entries(_parse_state(last)[target]).encode() if last.get("target") == target else None
                if new == content and self._read_texts(target)[0] == [str(each) for each in last["before"]]:
                    self._back_up(target)
                    self._rename(pending, self.path(target))
                else:
                    pending.unlink()

    def _read_state(self, target: Target) -> State:
        """Return the state after the last event of a file's stream."""
        stream = self.stream(target)
        last = self._log.last(stream)
        events = self._log.events(stream, last - 1) if last else []
        return _parse_state(events[-1].data if events else {})

    def _read_texts(self, target: Target) -> tuple[list[str], object]:
        path = self.path(target)
        with self._translate(target):
            stamp = self._stamp(target)
            if stamp is None:
                return [], stamp
            with path.open("rb") as file:
                content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise Damaged(f"{to_printable(path)}: larger than 1 MiB", remedy=f"shorten it, or {_REBUILD}")
        try:
            return split_entries(content.decode("utf-8-sig")), stamp
        except UnicodeDecodeError:
            raise Damaged(f"{to_printable(path)}: no UTF-8 text", remedy=f"fix it, or {_REBUILD}") from None

    def _stamp(self, target: Target) -> object:
        try:
            found = self.path(target).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _check_stamp(self, target: Target, stamp: object) -> None:
        if self._stamp(target) != stamp:
            raise _EditedMeanwhile

    def _beside(self, target: Target, suffix: str) -> Path:
        return self._home(target) / f"{FILES[target]}.{suffix}"

    def _home(self, target: Target) -> Path:
        return self.folder / _PEOPLE / self.person if self.person and target == "user" else self.folder

    def _make_home(self, target: Target) -> None:
        """Create the folder of a file, for this user alone."""
        if (home := self._home(target)) != self.folder:
            make_private_folder(home.parent)
            make_private_folder(home)

    def _back_up(self, target: Target) -> None:
        path, backup = self.path(target), self._beside(target, "bak")
        if not path.exists():
            return
        backup.unlink(missing_ok=True)
        try:
            os.link(path, backup)
        except OSError:  # a file system without links
            shutil.copy2(path, backup)

    def _put(self, path: Path, content: bytes) -> None:
        """Write a file that only this user can read, completely or not at all."""
        new = path.with_name(f".{path.name}.new")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self._rename(new, path)

    def _rename(self, source: Path, target: Path) -> None:
        source.replace(target)
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def _translate(self, target: Target) -> Generator[None]:
        path = self.path(target)
        try:
            yield
        except OSError as error:
            remedy = path_remedy(path, error.errno, "check the state folder")
            raise HermesError(f"{to_printable(path)}: {error.strerror}", remedy=remedy) from error

    @contextlib.contextmanager
    def _lock(self) -> Generator[None]:
        """Exclude other writers. The kernel releases the lock when the process ends."""
        with self._translate("memory"):
            make_private_folder(self.folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(self.folder / "lock", flags, 0o600)
        try:
            self._wait(handle)
            yield
        finally:
            os.close(handle)

    def _wait(self, handle: int) -> None:
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    where = to_printable(self.folder)
                    raise HermesError(f"{where}: another program holds the journal; nothing was written") from None
                time.sleep(_POLL_S)  # flock has no time limit of its own


def _with_origins(texts: Sequence[str], recorded: Sequence[Entry]) -> list[Entry]:
    """Return the entries with these texts; those that are not recorded are the person's."""
    known = {each.text: each for each in recorded}
    return [known.get(text) or Entry(text) for text in texts]


def _parse_state(data: Mapping[str, Any]) -> State:
    records = data.get("entries", {})
    return {target: [Entry.from_record(each) for each in records.get(target, ())] for target in TARGETS}


def _to_record(target: Target, before: Sequence[Entry], state: State, cause: Mapping[str, str]) -> dict[str, Any]:
    entries = {each: [entry.to_record() for entry in state[each]] for each in TARGETS}
    return {**cause, "target": target, "before": [each.text for each in before], "entries": entries}
