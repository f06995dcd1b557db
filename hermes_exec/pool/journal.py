"""The record of what an orchestrator has open, from which the next one finds what a crash left behind.

``$XDG_STATE_HOME/hermes_exec/orchestrators/ID/`` (0700) has ``owner.json``, which says whose it is, and one
small file (0600) for each terminal: where it is and how to come back to it, never commands or variables. Each
file is written whole or not at all, and belongs to whoever has it in his folder. To take over from the dead
is to rename a file into the own folder, which of several can succeed for one alone, also on a network
file system; so nothing here needs a lock, and a crash at any moment leaves nothing half done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import secrets
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from hermes_exec._async import shield_to_completion
from hermes_exec.config.paths import make_private_folder, read_regular, state_folder, write_private
from hermes_exec.errors import ConfigError
from hermes_exec.pool.owner import Liveness, Owner
from hermes_exec.terminal.guest_records import GuestRecord

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_log = logging.getLogger("hermes_exec.pool")
_ID = re.compile(r"[0-9a-f]{16}")
_CLIENT = re.compile(r"[0-9a-f]{32}")
_OWNER = "owner.json"
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One terminal: whose it was, and how to come back to its place."""

    id: str
    profile: str
    key: str
    """Whom it was handed out to; empty while nobody has it."""
    target: str
    """The one-line target of its place."""
    guest: GuestRecord | None = None
    """None in a place without a Python, where nothing outlives its channel."""
    client: str = ""
    """What the guest knows the orchestrator by, in hexadecimal."""

    @classmethod
    def from_values(cls, values: Any) -> JournalEntry:
        """From a file, which others may have written.

        Raises:
            TypeError, ValueError: it makes no sense.
        """
        entry = cls(**values)
        for name in ("id", "profile", "key", "target", "client"):
            value: Any = getattr(entry, name)
            if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
                raise ValueError(f"{name} is no text, too long or not printable")
        if not _ID.fullmatch(entry.id):
            raise ValueError("id is not 16 hexadecimal digits")
        guest: Any = entry.guest
        if guest is None:
            return entry
        if not _CLIENT.fullmatch(entry.client):
            raise ValueError("client is not 32 hexadecimal digits")
        return replace(entry, guest=GuestRecord(**guest))


class Journal:
    """The record of one orchestrator. Every method may block for the time of an fsync."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._base = state_folder(os.environ if environ is None else environ) / "orchestrators"
        self.folder = self._base / secrets.token_hex(8)

    def begin(self) -> None:
        """Say whose the folder is.

        Raises:
            ConfigError: nothing can be written there.
        """
        try:
            make_private_folder(self.folder)
            write_private(self.folder / _OWNER, json.dumps(Owner.current().values).encode())
        except OSError as error:
            where = f"{self.folder}: {error.strerror}"
            raise ConfigError(f"no record can be kept: {where}", remedy="export XDG_STATE_HOME=…") from error

    def write(self, entry: JournalEntry) -> None:
        """Keep what is to be known of a terminal; replaces what was known.

        Raises:
            OSError: it could not be written.
        """
        write_private(self.folder / f"{entry.id}.json", json.dumps(asdict(entry)).encode())

    def remove(self, entry: JournalEntry) -> None:
        """Forget a terminal, of which nothing is left; safe when it is forgotten already."""
        (self.folder / f"{entry.id}.json").unlink(missing_ok=True)

    def entries(self, folder: Path | None = None) -> list[JournalEntry]:
        """What is recorded, of this orchestrator or of that of ``folder``; what makes no sense is left out."""
        return [entry for path in _files(folder or self.folder) if (entry := _read(path)) is not None]

    def end(self) -> None:
        """Remove the folder, unless it still has something that the next one has to look after."""
        _remove_empty(self.folder)

    def find_others(self) -> dict[Path, Liveness]:
        """The folders of all other orchestrators, and whether these live."""
        found: dict[Path, Liveness] = {}
        for folder in sorted(self._base.glob("*")) if self._base.is_dir() else []:
            if _ID.fullmatch(folder.name) and folder != self.folder:
                try:
                    found[folder] = Owner.from_values(json.loads(read_regular(folder / _OWNER))).liveness
                except (ConfigError, TypeError, ValueError, RecursionError):
                    if not _files(folder):  # one that begins, or that two are removing
                        continue
                    _log.warning("%s is ignored: it does not say whose it is", folder)
        return found

    def claim(self) -> list[JournalEntry]:
        """Take over what dead orchestrators have left; gives it, now in this one's record."""
        claimed: list[JournalEntry] = []
        for folder, life in self.find_others().items():
            if life is not Liveness.DEAD:
                continue
            for path in _files(folder):
                mine = self.folder / path.name
                with contextlib.suppress(FileNotFoundError):  # another one was faster
                    path.rename(mine)
                if mine.exists() and (entry := _read(mine)) is not None:
                    claimed.append(entry)
            _remove_empty(folder)
        return claimed


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if _ID.fullmatch(path.stem))


def _remove_empty(folder: Path) -> None:
    if not _files(folder):
        with contextlib.suppress(OSError):  # another one removes it as well
            for left in folder.iterdir():  # the owner, and what was being written at the crash
                left.unlink(missing_ok=True)
            folder.rmdir()


def _read(path: Path) -> JournalEntry | None:
    try:
        entry = JournalEntry.from_values(json.loads(read_regular(path)))
        if entry.id != path.stem:
            raise ValueError("its name is not its id")  # noqa: TRY301  told with the rest
    except (ConfigError, TypeError, ValueError, RecursionError) as error:
        _log.warning("%s is ignored: %s", path, error)
        return None
    return entry


async def run_in_thread(call: Any, *arguments: Any) -> None:
    """Do what blocks in a thread; a cancelled wait still waits for its end, so that writes keep their order."""
    await shield_to_completion(asyncio.to_thread(call, *arguments), limit_s=None)
