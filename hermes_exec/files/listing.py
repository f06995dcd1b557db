"""What the place tells about its files, checked: it is not trusted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hermes_exec.errors import ProtocolError
from hermes_exec.files.info import FileInfo, Kind, ResolvedPath
from hermes_exec.guest.filework import LISTED


def looked_at(path: str, row: list[Any]) -> FileInfo:
    """One file: mode, size, mtime, owner, group and a link's target."""
    if len(row) != 6 or not all(isinstance(number, int) for number in row[:5]):
        raise ProtocolError("the guest's answer makes no sense")
    mode, size, mtime_ns, uid, gid, target = row
    leads = os.fsdecode(target) if isinstance(target, bytes) else None
    return FileInfo(path, Kind.of(mode), size, mode & 0o7777, mtime_ns, uid, gid, leads)


def resolved(answer: Mapping[str, Any]) -> ResolvedPath:
    """Where a path leads."""
    real, source, links, id = (answer.get(name) for name in ("real", "source", "links", "id"))
    if not (isinstance(real, bytes) and isinstance(source, bytes) and isinstance(links, int) and isinstance(id, bytes)):
        raise ProtocolError("the guest's answer makes no sense")
    return ResolvedPath(os.fsdecode(real), os.fsdecode(source), links, id.decode("ascii", "replace"))


def listed(folder: bytes, data: bytes) -> list[FileInfo]:
    """The names of a folder, their paths as ``folder`` was given."""
    prefix = b"" if folder == b"." else folder.rstrip(b"/") + b"/"
    found: list[FileInfo] = []
    at = 0
    while at < len(data):
        if at + LISTED.size > len(data):
            raise ProtocolError("the listing is cut short")
        length, *row = LISTED.unpack_from(data, at)
        at += LISTED.size
        name, link, target = data[at : at + length].partition(b"/")
        at += length
        found.append(looked_at(os.fsdecode(prefix + name), [*row, target if link else None]))
    return found
