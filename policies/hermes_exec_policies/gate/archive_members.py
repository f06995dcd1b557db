"""Read the members of tar and zip archives from untrusted sources, within bounds; nothing is extracted.

The readers of the standard library do what an archive says: they read a header of any size into memory, search it in
quadratic time, and unpack a bzip2 or LZMA member of a zip file whole. So tar is parsed here, in linear time, and zip
goes through ``zipfile`` once its directory has been checked. For any input, ``SkillRefused`` is the only exception.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from hermes_exec_policies.gate.tree import (
    MAX_ALL,
    MAX_FILE,
    MAX_FILES,
    SkillTreeWriter,
    Tree,
    check_path,
    set_id_finding,
)
from hermes_exec_policies.gate.verdict import SkillRefused, functional

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_BLOCK = 512
_MAX_HEADERS = 64 << 10
"""Bytes of the extended headers of one member of a tar archive, which have long names and attributes."""
_MAX_DIRECTORY = 512 << 10
"""Bytes of the directory of a zip archive."""
_NAME = 512
_MAX_NUMBER = 20
"""Digits of a number in a pax header."""
_GZIP, _GZIP_MAGIC = 31, b"\x1f\x8b"
_ZIP_MAGICS = (b"PK\3\4", b"PK\5\6")
_END_OF_ZIP = struct.Struct("<4s4H2LH")
_END_OF_ZIP64, _ZIP64_LOCATOR = b"PK\6\7", 20
_ENCRYPTED = 0x1
_FILES, _NO_DATA = b"0\0007", b"123456"
"""Types of tar members: regular files, and members without data."""


class MemberKind(Enum):
    """The type of a member."""

    FILE = "file"
    FOLDER = "folder"
    OTHER = "other"
    """A link or a device."""


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One member of an archive, with untrusted fields: the name can be any text."""

    name: str
    kind: MemberKind
    mode: int
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ArchiveBounds:
    """The limits of an archive."""

    members: int
    file: int
    """Bytes of one file."""
    unpacked: int
    """Bytes of all files together, and of the archive itself."""


def read_archive(path: Path, bounds: ArchiveBounds) -> bytes:
    """Return the bytes of an archive; a device or a FIFO never blocks.

    Raises:
        SkillRefused: it is not a regular file, or it is too large.
        OSError: it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise SkillRefused(functional("manifest.archive", "this is not a regular file"))
        with open(handle, "rb", closefd=False) as file:
            data = file.read(bounds.unpacked + 1)
    finally:
        os.close(handle)
    if len(data) > bounds.unpacked:
        raise SkillRefused(functional("manifest.size", f"the archive is larger than {bounds.unpacked} bytes"))
    return data


def read_members(data: bytes, bounds: ArchiveBounds) -> Iterator[ArchiveMember]:
    """Yield the members of a zip archive, or of a tar archive, which may be compressed with gzip.

    Raises:
        SkillRefused: it is not a complete archive, exceeds ``bounds``, or has a member that cannot be read safely.
    """
    if data.startswith(_ZIP_MAGICS):
        return _zip(data, bounds)
    return read_tar(_gunzip(data, bounds) if data.startswith(_GZIP_MAGIC) else data, bounds)


def read_tar(data: bytes, bounds: ArchiveBounds) -> Iterator[ArchiveMember]:
    """Yield the members of an uncompressed tar archive: ustar, pax or GNU.

    Raises:
        SkillRefused: as ``read_members``.
    """
    position, headers, count = 0, 0, 0
    said: dict[bytes, bytes] = {}
    while (block := data[position : position + _BLOCK]).strip(b"\0"):
        kind, size = block[156:157], _header_size(block)
        position += _BLOCK
        if kind in b"xXgLK":
            headers += _BLOCK + size
            if headers > _MAX_HEADERS:
                raise SkillRefused(
                    functional("manifest.size", f"a member has more than {_MAX_HEADERS} bytes of headers")
                )
            text = _cut(data, position, size)
            if kind == b"L":
                said[b"path"] = text.partition(b"\0")[0]
            elif kind == b"g":
                _check_global(text)
            elif kind != b"K":
                said |= _records(text)
            position += _pad(size)
            continue
        if (count := count + 1) > bounds.members:
            raise SkillRefused(functional("manifest.files", f"there are more than {bounds.members} members"))
        name = (said[b"path"] if b"path" in said else _name(block)).decode("utf-8", "surrogateescape")
        if kind == b"S" or any(key.startswith(b"GNU.sparse.") for key in said):
            raise SkillRefused(functional("manifest.link", "a file with holes is not read", name))
        size = 0 if kind in _NO_DATA else _decimal(said[b"size"]) if b"size" in said else size
        _check_size(size, name, bounds)
        found = MemberKind.FILE if kind in _FILES else MemberKind.FOLDER if kind == b"5" else MemberKind.OTHER
        if found is MemberKind.FILE and name.endswith("/"):  # folders in archives from before tar had a type for them
            found = MemberKind.FOLDER
        content = _cut(data, position, size)
        yield ArchiveMember(name, found, _octal(block[100:108]), content if found is MemberKind.FILE else b"")
        position += _pad(size)
        said, headers = {}, 0
    # At least one block of zeros marks the end, and nothing may follow it.
    if len(block) < _BLOCK or said or data[position:].strip(b"\0"):
        raise _create_damage_error()


def find_zip_names(data: bytes) -> Iterator[str]:
    """Yield each member name in data that could contain a zip archive at any offset, as Python could import from it.

    A very long name is yielded as its beginning and its end.
    """
    for magic, place, fixed in ((b"PK\1\2", 28, 46), (b"PK\3\4", 26, 30)):
        position = data.find(magic)
        while position >= 0:
            begin = position + fixed
            end = begin + int.from_bytes(data[position + place : position + place + 2], "little")
            name = data[begin:end] if end - begin <= _NAME else data[begin : begin + _NAME] + data[end - _NAME : end]
            yield name.decode("utf-8", "replace")
            position = data.find(magic, position + 1)


def _header_size(block: bytes) -> int:
    """Return the size in a tar header after checking the checksum."""
    if len(block) < _BLOCK or sum(block) - sum(block[148:156]) + 8 * ord(" ") != _octal(block[148:156]):
        raise _create_damage_error()
    return _octal(block[124:136])


def _octal(field: bytes) -> int:
    """Parse a number in a header; a large one is binary, after a first byte of 0x80."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip(b" ")
    if digits.strip(b"01234567"):
        raise _create_damage_error()
    return int(digits or b"0", 8)


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > _MAX_NUMBER:
        raise _create_damage_error()
    return int(text)


def _name(block: bytes) -> bytes:
    name, prefix = block[:100].partition(b"\0")[0], block[345:500].partition(b"\0")[0]
    return b"/".join((prefix, name)) if prefix and block[257:263] == b"ustar\0" else name


def _records(text: bytes) -> dict[bytes, bytes]:
    """Parse the records of a pax header, each ``LENGTH KEY=VALUE`` and a newline."""
    found: dict[bytes, bytes] = {}
    position = 0
    while position < len(text):
        space = text.find(b" ", position, position + _MAX_NUMBER)
        end = position + _decimal(text[position : max(space, position)])
        key, equals, value = text[space + 1 : end - 1].partition(b"=")
        if end > len(text) or not equals or text[end - 1 : end] != b"\n":
            raise _create_damage_error()
        found[key] = value
        position = end
    return found


def _check_global(text: bytes) -> None:
    """Refuse a global header that sets names, link targets or sizes; the one of git has a commit id alone."""
    if any(key in {b"path", b"linkpath", b"size"} or key.startswith(b"GNU.") for key in _records(text)):
        raise _create_damage_error()


def _cut(data: bytes, position: int, size: int) -> bytes:
    """Return the bytes of a member, whose padding must be complete, too."""
    if position + _pad(size) > len(data):
        raise _create_damage_error()
    return data[position : position + size]


def _pad(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _gunzip(data: bytes, bounds: ArchiveBounds) -> bytes:
    """Decompress one gzip stream; more are refused, as thousands of them take seconds."""
    packed = zlib.decompressobj(wbits=_GZIP)
    try:
        plain = packed.decompress(data, bounds.unpacked + 1)
    except zlib.error as error:
        raise _create_damage_error() from error
    if len(plain) > bounds.unpacked:
        raise SkillRefused(functional("manifest.size", f"the archive holds more than {bounds.unpacked} bytes"))
    if not packed.eof or packed.unused_data:
        raise _create_damage_error()
    return plain


def _zip(data: bytes, bounds: ArchiveBounds) -> Iterator[ArchiveMember]:
    _check_directory(data, bounds)
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except Exception as error:  # the bytes are in memory, so any exception of the library is about them
        raise _create_damage_error() from error
    left = bounds.unpacked
    with archive:
        for each in archive.infolist():
            member = _read_zip_member(archive, each, bounds)
            left -= len(member.data)
            if left < 0:
                raise SkillRefused(functional("manifest.size", f"the archive holds more than {bounds.unpacked} bytes"))
            yield member


def _check_directory(data: bytes, bounds: ArchiveBounds) -> None:
    """Refuse a directory that is too long, or whose offset is wrong: readers would find different members."""
    end = data.rfind(_ZIP_MAGICS[1], max(0, len(data) - _END_OF_ZIP.size - 0xFFFF))
    if end < 0 or len(data) - end < _END_OF_ZIP.size:
        raise _create_damage_error()
    _, disk, first_disk, here, members, size, start, comment = _END_OF_ZIP.unpack_from(data, end)
    if members > bounds.members or size > _MAX_DIRECTORY:
        raise SkillRefused(functional("manifest.files", f"there are more than {bounds.members} members"))
    if data[max(0, end - _ZIP64_LOCATOR) : end].startswith(_END_OF_ZIP64):
        raise SkillRefused(functional("manifest.archive", "a zip archive with the fields of ZIP64 is not read"))
    whole = end + _END_OF_ZIP.size + comment == len(data) and start + size == end
    if not whole or disk or first_disk or here != members:
        raise _create_damage_error()


def _read_zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, bounds: ArchiveBounds) -> ArchiveMember:
    name, mode = member.filename, member.external_attr >> 16
    if member.is_dir():
        return ArchiveMember(name, MemberKind.FOLDER, mode)
    if stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
        return ArchiveMember(name, MemberKind.OTHER, mode)
    if member.flag_bits & _ENCRYPTED:
        raise SkillRefused(functional("manifest.encrypted", "an archive with a password hides what it holds"))
    if member.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise SkillRefused(functional("manifest.archive", "it is packed with another method than deflate", name))
    _check_size(member.file_size, name, bounds)
    try:
        with archive.open(member) as file:
            data = file.read(bounds.file + 1)
    except Exception as error:
        raise _create_damage_error() from error
    if len(data) != member.file_size:
        raise _create_damage_error()
    return ArchiveMember(name, MemberKind.FILE, mode, data)


def _check_size(size: int, name: str, bounds: ArchiveBounds) -> None:
    if size > bounds.file:
        raise SkillRefused(functional("manifest.size", f"a file is larger than {bounds.file} bytes", name))


def _create_damage_error() -> SkillRefused:
    return SkillRefused(functional("manifest.archive", "this is not a complete tar or zip archive"))


_SET_ID = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_BOUNDS = ArchiveBounds(members=2 * MAX_FILES, file=MAX_FILE, unpacked=2 * MAX_ALL)


def unpack(archive: Path, into: Path) -> Tree:
    """Write the files of ``archive`` to the new folder ``into``.

    Raises:
        SkillRefused: it is not an archive, exceeds a limit, or has links, devices, escaping paths or duplicate names.
        OSError: it cannot be read.
    """
    data = read_archive(archive, _BOUNDS)
    writer = SkillTreeWriter(into)
    for member in read_members(data, _BOUNDS):
        name = member.name.removeprefix("./")
        if member.kind is MemberKind.FOLDER:
            check_path(name.rstrip("/") or "x")
        elif member.kind is MemberKind.OTHER:
            raise SkillRefused(
                functional("manifest.link", "a link or a device in an archive: pack the file itself", name)
            )
        elif member.mode & _SET_ID:
            raise SkillRefused(set_id_finding(name))
        else:
            writer.add(name, bool(member.mode & 0o111), member.data)
    return writer.tree()
