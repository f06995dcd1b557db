"""Backups of the skills that a run of the curator changes: signed by the registry's key, and never removed.

A backup is an index with the state of every skill (the current version, pin, archive, digests) and all counters, and
the bytes of the skills that the run changes. The bytes are stored once by their SHA-256, as copies, so that a program
that damages a file of the registry does not damage its backup. The five latest indexes are kept in five files: a new
index replaces the oldest one. Stored bytes are never removed, and there is no function that could remove them: they are
at most as many as those of the registry, which keeps every version, too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import make_private_folder, to_printable
from hermes_exec.errno_hints import path_remedy
from hermes_exec.errors import HermesError, Refused
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.counts import RunCounter
from hermes_exec_agent.skills.registry.log import is_signed, sign, sync_folder
from hermes_exec_policies.gate.tree import SkillTreeWriter

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry

KEPT = 5
_PURPOSE = b"hermes-exec skills: backup 1\0"


@dataclass(frozen=True, slots=True)
class Backup:
    """The index of a backup."""

    run: str
    """The id of the run that it was made for."""
    number: int
    """Counts from 1; the five highest are kept, whatever the clock says."""
    at: float
    """Seconds since 1970."""
    names: tuple[str, ...]
    """The skills whose bytes it has."""
    skills: Mapping[str, Mapping[str, Any]]
    """The state of every skill."""
    counts: Mapping[str, list[list[Any]]] = field(default_factory=dict[str, "list[list[Any]]"])
    """The rows of the counters."""


class BackupStore:
    """The backups of one registry. One program at a time writes: the caller holds the curator's lock."""

    def __init__(self, registry: Registry) -> None:
        """Nothing is created before the first backup."""
        self._registry = registry
        self._folder = registry.home.folder / "backups"
        self._objects = self._folder / "objects"

    def write(self, run: str, names: Collection[str]) -> Backup:
        """Back up the state of the library, and the bytes of the skills ``names``, before a run changes them.

        Raises:
            ContentChanged: files of a skill differ from the signed list.
            HermesError: it cannot be written.
        """
        registry = self._registry
        skills = registry.skills()
        with self._translate():
            make_private_folder(self._objects)
            for name in sorted(names):
                for number in skills[name].versions:
                    self._store(registry.read_version(skills[name], number))
            sync_folder(self._objects)
            numbers = [each.number for each in self.list_backups()]
            backup = Backup(
                run=run,
                number=max(numbers, default=0) + 1,
                at=time.time(),
                names=tuple(sorted(names)),
                skills={name: describe_state(registry, name) for name in sorted(skills)},
                counts=RunCounter(registry.home.counts).dump(),
            )
            text = _encode(backup)
            signature = sign(registry.key, _PURPOSE, text).hex()
            self._put(self._index(backup.number), json.dumps([text.decode(), signature]).encode())
            sync_folder(self._folder)
        return backup

    def list_backups(self) -> list[Backup]:
        """Return the kept backups, the latest first.

        Raises:
            Refused: one is not signed by this registry's key.
            HermesError: one cannot be read.
        """
        with self._translate():
            found = [self._read(path) for number in range(KEPT) if (path := self._index(number)).exists()]
        return sorted(found, key=lambda backup: -backup.number)

    def find(self, run: str) -> Backup | None:
        """Return the backup of a run, if it is kept."""
        return next((each for each in self.list_backups() if each.run == run), None)

    def restore_bytes(self, backup: Backup, name: str) -> list[int]:
        """Bring back the files of a skill's versions that are missing or changed; return the versions.

        Raises:
            Refused: bytes of the backup were changed.
            HermesError: they cannot be read or written.
        """
        registry, brought = self._registry, list[int]()
        skill = registry.skill(name)
        for number in map(int, backup.skills[name]["versions"]):
            version = registry.read_version(skill, number)
            if not content.find_differences(registry.tree(version), version.files):
                continue
            with content.private_folder() as folder, self._translate():
                writer = SkillTreeWriter(folder / version.name)
                for each in version.files:
                    writer.add(each.path, bool(each.mode & 0o111), self._load(each.sha256))
                with registry.home.lock():
                    content.store(registry.home.content, writer.tree())
            brought.append(number)
        return brought

    def restore_counts(self, backup: Backup) -> None:
        """Bring back counters that were lost; those that have counted more since then stay."""
        RunCounter(self._registry.home.counts).merge(backup.counts)

    def _store(self, version: Version) -> None:
        root = self._registry.tree(version)
        self._registry.verify(version)
        for each in version.files:
            path = self._objects / each.sha256
            if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == each.sha256:
                continue
            data = (root / each.path).read_bytes()
            if hashlib.sha256(data).hexdigest() != each.sha256:
                raise content.ContentChanged(f"{version.name} {version.number}: {each.path}: its bytes were changed")
            self._put(path, data)

    def _load(self, digest: str) -> bytes:
        path = self._objects / digest
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise Refused(f"{to_printable(path)}: bytes of a backup were changed; nothing of it was restored")
        return data

    def _index(self, number: int) -> Path:
        return self._folder / f"backup-{number % KEPT}.json"

    def _read(self, path: Path) -> Backup:
        try:
            text, signature = json.loads(path.read_bytes())
            good = is_signed(self._registry.key.public_key(), _PURPOSE, text.encode(), bytes.fromhex(signature))
            facts: dict[str, Any] = json.loads(text)
            facts["names"] = tuple(facts["names"])
            backup = Backup(**facts)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise _create_tamper_error(path) from error
        if not good:
            raise _create_tamper_error(path)
        return backup

    def _put(self, path: Path, data: bytes) -> None:
        """Write a file that only this user can read, completely or not at all. A draft is overwritten by the next."""
        draft = path.with_name(".new")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)

    @contextlib.contextmanager
    def _translate(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise HermesError(
                f"{to_printable(self._folder)}: the backup cannot be read or written: {error.strerror}",
                remedy=path_remedy(self._folder, error.errno, "check free space and rights there"),
                state="no skill was changed",
            ) from error


def describe_state(registry: Registry, name: str) -> dict[str, Any]:
    """Return the state of a skill that a backup has, as JSON data."""
    skill = registry.skill(name)
    digests = {str(number): str(event.facts["digest"]) for number, event in sorted(skill.versions.items())}
    return {"current": skill.current, "pinned": skill.pinned, "archived": skill.archived, "versions": digests}


def _encode(backup: Backup) -> bytes:
    return json.dumps(asdict(backup), sort_keys=True, separators=(",", ":")).encode()


def _create_tamper_error(path: Path) -> Refused:
    return Refused(f"{to_printable(path)}: the backup was changed", remedy="move it away; the other backups stay")
