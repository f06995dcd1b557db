"""The journal of an orchestrator's open terminals, from which the next orchestrator recovers after a crash.

``$XDG_STATE_HOME/hermes_exec/orchestrators/ID/`` (0700) holds ``owner.json``, which identifies the owning process, and
one small file (0600) for each terminal: its target and how to attach to it again, never commands or variables. Each
file is written atomically and belongs to the orchestrator whose folder holds it. An orchestrator takes over a dead
one's terminal by renaming its file into its own folder. Of several that try, one alone succeeds, also on a network
file system. So no locks are needed, and a crash at any moment leaves nothing half done.
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
    """One terminal: the key that it was leased to, and how to attach to its target again."""

    id: str
    profile: str
    key: str
    """The key that it is leased to; empty while it is not leased."""
    target: str
    """Its one-line target."""
    guest: GuestRecord | None = None
    """None in a target without Python, where nothing outlives its channel."""
    client: str = ""
    """The client id by which the guest knows the orchestrator, in hexadecimal."""

    @classmethod
    def from_values(cls, values: Any) -> JournalEntry:
        """Parse the content of a journal file, which is untrusted.

        Raises:
            TypeError, ValueError: a field is missing or invalid.
        """
        entry = cls(**values)
        for name in ("id", "profile", "key", "target", "client"):
            value: Any = getattr(entry, name)
            if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
                raise ValueError(f"{name} is not text, too long or not printable")
        if not _ID.fullmatch(entry.id):
            raise ValueError("id is not 16 hexadecimal digits")
        guest: Any = entry.guest
        if guest is None:
            return entry
        if not _CLIENT.fullmatch(entry.client):
            raise ValueError("client is not 32 hexadecimal digits")
        return replace(entry, guest=GuestRecord(**guest))


class Journal:
    """The journal of one orchestrator. Every method may block for the time of an fsync."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._base = state_folder(os.environ if environ is None else environ) / "orchestrators"
        self.folder = self._base / secrets.token_hex(8)

    def begin(self) -> None:
        """Create the folder and record this process as its owner.

        Raises:
            ConfigError: the folder or its file cannot be written.
        """
        try:
            make_private_folder(self.folder)
            write_private(self.folder / _OWNER, json.dumps(Owner.current().values).encode())
        except OSError as error:
            where = f"{self.folder}: {error.strerror}"
            raise ConfigError(f"no record can be kept: {where}", remedy="export XDG_STATE_HOME=…") from error

    def write(self, entry: JournalEntry, *, durable: bool = True) -> None:
        """Record a terminal; replaces its earlier record. For ``durable`` see `write_private`.

        Raises:
            OSError: it could not be written.
        """
        write_private(self.folder / f"{entry.id}.json", json.dumps(asdict(entry)).encode(), durable=durable)

    def remove(self, entry: JournalEntry) -> None:
        """Delete the record of a terminal that no longer exists; does nothing when there is none."""
        (self.folder / f"{entry.id}.json").unlink(missing_ok=True)

    def entries(self, folder: Path | None = None) -> list[JournalEntry]:
        """Return the entries of this orchestrator, or those in ``folder``; invalid ones are left out."""
        return [entry for path in _files(folder or self.folder) if (entry := _read(path)) is not None]

    def end(self) -> None:
        """Remove the folder, unless it still has entries that the next orchestrator must recover."""
        _remove_empty(self.folder)

    def find_others(self) -> dict[Path, Liveness]:
        """Return the folders of all other orchestrators, and whether their processes live."""
        found: dict[Path, Liveness] = {}
        for folder in sorted(self._base.glob("*")) if self._base.is_dir() else []:
            if _ID.fullmatch(folder.name) and folder != self.folder:
                try:
                    found[folder] = Owner.from_values(json.loads(read_regular(folder / _OWNER))).liveness
                except (ConfigError, TypeError, ValueError, RecursionError):
                    if not _files(folder):  # an orchestrator is starting, or two are removing the folder
                        continue
                    _log.warning("%s is ignored: it does not say whose it is", folder)
        return found

    def claim(self) -> list[JournalEntry]:
        """Move the entries of dead orchestrators into this one's journal, and return them."""
        claimed: list[JournalEntry] = []
        for folder, life in self.find_others().items():
            if life is not Liveness.DEAD:
                continue
            for path in _files(folder):
                mine = self.folder / path.name
                with contextlib.suppress(FileNotFoundError):  # another orchestrator was faster
                    path.rename(mine)
                if mine.exists() and (entry := _read(mine)) is not None:
                    claimed.append(entry)
            _remove_empty(folder)
        return claimed


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.json") if _ID.fullmatch(path.stem))


def _remove_empty(folder: Path) -> None:
    if not _files(folder):
        with contextlib.suppress(OSError):  # another orchestrator removes it as well
            for left in folder.iterdir():  # the owner, and files whose writing the crash interrupted
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
    """Run a blocking call in a thread; a cancelled caller still waits for its end, so that writes keep their order."""
    await shield_to_completion(asyncio.to_thread(call, *arguments), limit_s=None)
