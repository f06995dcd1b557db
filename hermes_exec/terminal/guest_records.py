"""Which guests have jobs or kept PTYs: one small file for each, so that a new process finds those of an old one.

A record is written before a guest's first job is started and removed when the guest has none left, so a
crash at any moment leaves a record too many rather than a job that nobody can find. Likewise with PTYs.
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

from hermes_exec.config.paths import read_regular, shown, state_folder, write_private
from hermes_exec.errno_hints import remedy_at
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
    """Where a guest is, and how to come back to it."""

    id: str
    target: str
    """The one-line target of its place."""
    created: float
    """Seconds since 1970."""
    folder: str
    host: str
    boot: str
    python: str
    uid: int
    interpreter: str
    place: str = ""
    """What a profile's ``attach_field`` has to say to find the place again, where opening created it."""

    def __post_init__(self) -> None:
        """Refuse what no guest has: both guests and files are written by others.

        Raises:
            TypeError, ValueError: a field is not what it must be.
        """
        for field in fields(self):
            value: Any = getattr(self, field.name)
            kind = {"created": (int, float), "uid": (int,)}.get(field.name, (str,))
            if isinstance(value, bool) or not isinstance(value, kind):
                raise TypeError(f"{field.name} is no {kind[0].__name__}")
            if isinstance(value, str) and (len(value) > _LONGEST or not value.isprintable()):
                raise ValueError(f"{field.name} is too long or not printable")
        if not _ID.fullmatch(self.id):
            raise ValueError("id is not 16 hexadecimal digits")
        if not self.folder.startswith("/") or self.interpreter.startswith("-") or not self.interpreter:
            raise ValueError("folder or interpreter is no path")

    @classmethod
    def of(cls, target: str, identity: Mapping[str, Any]) -> GuestRecord:
        """The record of a guest whose ``Link.identity`` is known."""
        own = {field.name for field in fields(cls)} - {"target", "created", "place"}
        known = {name: identity[name] for name in own}
        return cls(target=target, created=time.time(), place=identity.get("place", ""), **known)

    @property
    def identity(self) -> dict[str, Any]:
        """What ``Link.attach`` takes."""
        return {name: value for name, value in asdict(self).items() if name not in ("target", "created")}


def new_id() -> str:
    """A name for a job or a PTY: short, and easy to say and to type: four syllables, of 40 million such words."""
    word = "".join(secrets.choice("bdfghjklmnprstvz") + secrets.choice("aeiou") for _ in range(4))
    return f"{word[:4]}-{word[4:]}"


def _folder(environ: Mapping[str, str] | None) -> Path:
    return state_folder(os.environ if environ is None else environ) / "guests"


def write_record(record: GuestRecord, environ: Mapping[str, str] | None = None) -> None:
    """Keep a record (0600, whole or not at all); one that is there is replaced.

    Raises:
        ConfigError: it cannot be kept.
    """
    path = _folder(environ) / f"{record.id}.json"
    try:
        write_private(path, json.dumps(asdict(record), indent=1).encode())
    except OSError as error:
        raise _refusal(f"nobody would find it again, for {shown(path)} cannot be written", error) from error


def _refusal(what: str, error: OSError) -> ConfigError:
    remedy = remedy_at(state_folder(os.environ), error.errno, "export XDG_STATE_HOME=… another folder")
    return ConfigError(f"{what}: {error.strerror}", remedy=remedy)


def read_record(guest: str, environ: Mapping[str, str] | None = None) -> GuestRecord | None:
    """The record of one guest; None where there is none, or one that makes no sense.

    Raises:
        ConfigError: the folder of the records cannot be read.
    """
    path = _folder(environ) / f"{guest}.json"
    try:
        return _read(path) if _ID.fullmatch(guest) and path.is_file() else None
    except OSError as error:
        raise _refusal(f"{shown(path)} cannot be read", error) from error


def remove_record(guest: str, environ: Mapping[str, str] | None = None) -> None:
    """Forget a guest; safe when it is not recorded.

    Raises:
        ConfigError: its record cannot be removed.
    """
    path = _folder(environ) / f"{guest}.json"
    try:
        if _ID.fullmatch(guest):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise _refusal(f"{shown(path)} cannot be removed", error) from error


def read_records(environ: Mapping[str, str] | None = None) -> list[GuestRecord]:
    """All records, the oldest first. A file that is no record is left alone, and a warning names it.

    Raises:
        ConfigError: the folder of the records cannot be read.
    """
    folder = _folder(environ)
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".json")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _refusal(f"{shown(folder)} cannot be read", error) from error
    found = [_read(path) for path in paths if not path.name.startswith(".")]  # those are being written
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
    """Record the guest at the other end of ``link`` unless it is recorded already."""
    try:
        guest = GuestRecord.of(target, link.identity)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the guest's account of itself makes no sense: {error}") from error
    if read_record(guest.id) is None:
        await asyncio.to_thread(write_record, guest)
    return guest


async def forget_guest(link: Link) -> None:
    """Remove the record of a guest that has nothing left; put it back if it got something at that very moment."""
    record = read_record(str(link.guest["id"]))
    if record is not None and not await _stays(link):
        remove_record(record.id)
        if await _stays(link):
            await asyncio.to_thread(write_record, record)


async def _stays(link: Link) -> bool:
    return bool((await link.call("stays", {}).result()).get("stays", True))
