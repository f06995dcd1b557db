"""Unpack a skill from a tar or zip archive by our own hand: members are read, never extracted by their own words."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.members import Bounds, MemberKind, read_archive, read_members
from hermes_exec_policies.gate.tree import MAX_ALL, MAX_FILE, MAX_FILES, Tree, Writer, check_path
from hermes_exec_policies.gate.verdict import Refused, security

if TYPE_CHECKING:
    from pathlib import Path

_SET_ID = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_BOUNDS = Bounds(members=2 * MAX_FILES, file=MAX_FILE, unpacked=2 * MAX_ALL)


def unpack(archive: Path, into: Path) -> Tree:
    """Write the files of ``archive`` to the new folder ``into``.

    Raises:
        Refused: it is no archive, or it holds links, devices, ways out, one name twice, or too much.
        OSError: it cannot be read.
    """
    data = read_archive(archive, _BOUNDS)
    writer = Writer(into)
    for member in read_members(data, _BOUNDS):
        name = member.name.removeprefix("./")
        if member.kind is MemberKind.FOLDER:
            check_path(name.rstrip("/") or "x")
        elif member.kind is MemberKind.OTHER:
            raise Refused(security("manifest.link", "a skill holds no links and no devices", name))
        elif member.mode & _SET_ID:
            raise Refused(security("manifest.set-id", "a file has a set-user-ID or like bit", name))
        else:
            writer.add(name, bool(member.mode & 0o111), member.data)
    return writer.tree()
