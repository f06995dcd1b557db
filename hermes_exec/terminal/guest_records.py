"""Records of the guests that have jobs or kept PTYs: one small file each, by which another process finds them.

A record is written before a guest's first job or kept PTY is started, and removed when the guest has none left. So a
crash at any moment leaves a record too many rather than a job that cannot be found.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import time
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from hermes_exec.config.paths import read_regular, state_folder, to_printable, write_private
from hermes_exec.errno_hints import path_remedy
from hermes_exec.errors import ConfigError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hermes_exec.transport.link import Link

_log = logging.getLogger(__name__)
_ID = re.compile(r"[0-9a-f]{16}")
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class GuestRecord:
    """The location of a guest, and the values needed to attach to it again."""

    id: str
    target: str
    """Its one-line target."""
    created: float
    """Seconds since 1970."""
    folder: str
    host: str
    boot: str
    python: str
    uid: int
    interpreter: str
    place: str = ""
    """The value of the profile's ``attach_field`` that finds a created target again; else empty."""

    def __post_init__(self) -> None:
        """Check every field: guests and files are untrusted.

        Raises:
            TypeError, ValueError: a field is not valid.
        """
        for field in fields(self):
            value: Any = getattr(self, field.name)
            kind = {"created": (int, float), "uid": (int,)}.get(field.name, (str,))
            if isinstance(value, bool) or not isinstance(value, kind):
                raise TypeError(f"{field.name} is not of type {kind[0].__name__}")
            if isinstance(value, str) and (len(value) > _LONGEST or not value.isprintable()):
                raise ValueError(f"{field.name} is too long or not printable")
        if not _ID.fullmatch(self.id):
            raise ValueError("id is not 16 hexadecimal digits")
        if not self.folder.startswith("/") or self.interpreter.startswith("-") or not self.interpreter:
            raise ValueError("folder or interpreter is not a path")

    @classmethod
    def from_identity(cls, target: str, identity: Mapping[str, Any]) -> GuestRecord:
        """Return the record of a guest with this ``Link.identity``."""
        own = {field.name for field in fields(cls)} - {"target", "created", "place"}
        known = {name: identity[name] for name in own}
        return cls(target=target, created=time.time(), place=identity.get("place", ""), **known)

    @property
    def identity(self) -> dict[str, Any]:
        """The identity that ``Link.attach`` takes."""
        return {name: value for name, value in asdict(self).items() if name not in ("target", "created")}


def new_id() -> str:
    """Return a new name for a job or a PTY that is easy to type: four syllables, one of 40 million such names."""
    word = "".join(secrets.choice("bdfghjklmnprstvz") + secrets.choice("aeiou") for _ in range(4))
    return f"{word[:4]}-{word[4:]}"


def _folder(environ: Mapping[str, str] | None) -> Path:
    return state_folder(os.environ if environ is None else environ) / "guests"


def write_record(record: GuestRecord, environ: Mapping[str, str] | None = None) -> None:
    """Write a record (mode 0600, atomically), replacing an older one.

    Raises:
        ConfigError: it cannot be written.
    """
    path = _folder(environ) / f"{record.id}.json"
    try:
        write_private(path, json.dumps(asdict(record), indent=1).encode())
    except OSError as error:
        raise _refusal(f"the record of the guest, {to_printable(path)}, cannot be written", error) from error


def _refusal(what: str, error: OSError) -> ConfigError:
    remedy = path_remedy(state_folder(os.environ), error.errno, "export XDG_STATE_HOME=… another folder")
    return ConfigError(f"{what}: {error.strerror}", remedy=remedy)


def read_record(guest: str, environ: Mapping[str, str] | None = None) -> GuestRecord | None:
    """Return the record of one guest, or None when there is no valid one.

    Raises:
        ConfigError: the folder of the records cannot be read.
    """
    path = _folder(environ) / f"{guest}.json"
    try:
        return _read(path) if _ID.fullmatch(guest) and path.is_file() else None
    except OSError as error:
        raise _refusal(f"{to_printable(path)} cannot be read", error) from error


def remove_record(guest: str, environ: Mapping[str, str] | None = None) -> None:
    """Remove the record of a guest, if there is one.

    Raises:
        ConfigError: its record cannot be removed.
    """
    path = _folder(environ) / f"{guest}.json"
    try:
        if _ID.fullmatch(guest):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise _refusal(f"{to_printable(path)} cannot be removed", error) from error


def read_records(environ: Mapping[str, str] | None = None) -> list[GuestRecord]:
    """Return all records, the oldest first. An invalid file is left alone, and a warning names it.

    Raises:
        ConfigError: the folder of the records cannot be read.
    """
    folder = _folder(environ)
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _refusal(f"{to_printable(folder)} cannot be read", error) from error
    found = [_read(path) for path in paths if not path.name.startswith(".")]  # temporary files of a write
    return sorted((record for record in found if record), key=lambda record: record.created)


def _read(path: Path) -> GuestRecord | None:
    try:
        record = GuestRecord(**json.loads(read_regular(path)))
    except (ConfigError, TypeError, ValueError, RecursionError) as error:
        _log.warning("%s is ignored: %s", path, error)
        return None
    if f"{record.id}.json" != path.name:
        _log.warning("%s is ignored: its name is not its guest's id", path)
        return None
    return record


async def record_guest(link: Link, target: str) -> GuestRecord:
    """Record the guest of ``link`` unless it is recorded already."""
    try:
        guest = GuestRecord.from_identity(target, link.identity)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the guest sent an invalid identity: {error}") from error
    if read_record(guest.id) is None:
        await asyncio.to_thread(write_record, guest)
    return guest


async def forget_guest(link: Link) -> None:
    """Remove the record of a guest without jobs and kept PTYs; write it again if one was started meanwhile."""
    record = read_record(str(link.guest["id"]))
    if record is not None and not await _stays(link):
        remove_record(record.id)
        if await _stays(link):
            await asyncio.to_thread(write_record, record)


async def _stays(link: Link) -> bool:
    return bool((await link.call("stays", {}).result()).get("stays", True))
