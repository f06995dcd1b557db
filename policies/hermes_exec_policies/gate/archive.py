"""Unpack a skill from a tar or zip archive by our own hand: members are read, never extracted by their own words."""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
import zlib
from typing import IO, TYPE_CHECKING, cast

from hermes_exec_policies.gate.tree import MAX_ALL, MAX_FILE, MAX_FILES, Tree, Writer, check_path
from hermes_exec_policies.gate.verdict import Refused, functional, security

if TYPE_CHECKING:
    from pathlib import Path

_SET_ID = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_ENCRYPTED = 0x1
_MAX_ARCHIVE = 2 * MAX_ALL
_MAX_HEADERS = 256 << 10
"""Bytes between two members of a tar archive; long names and attributes stand there."""
_GZIP = 31
"""For zlib: gzip's own header and sum are wanted."""
_END_OF_ZIP = struct.Struct("<4s4H2LH")
_MAX_END = _END_OF_ZIP.size + 0xFFFF


def unpack(archive: Path, into: Path) -> Tree:
    """Write the files of ``archive`` to the new folder ``into``.

    Raises:
        Refused: it is no archive, or it holds links, devices, ways out, one name twice, or too much.
        OSError: it cannot be read.
    """
    if archive.stat().st_size > _MAX_ARCHIVE:
        raise Refused(functional("manifest.size", f"the archive is larger than {_MAX_ARCHIVE} bytes"))
    writer = Writer(into)
    try:
        if zipfile.is_zipfile(archive):
            _count(archive)
            _unzip(archive, writer)
        else:
            _untar(archive, writer)
    except (
        tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError,
        OverflowError,
    ) as error:  # fmt: skip
        raise Refused(functional("manifest.archive", "this is no whole tar or zip archive")) from error
    return writer.tree()


def _untar(archive: Path, writer: Writer) -> None:
    # Streamed, so that members are met in the order of their bytes and nothing is looked up twice.
    whole = _whole(archive)
    with _tar(bounded := _Bounded(io.BytesIO(whole))) as members:
        for count, member in enumerate(members):
            if count >= 2 * MAX_FILES:
                raise Refused(functional("manifest.files", f"there are more than {MAX_FILES} files"))
            if member.isdir():
                check_path(member.name.rstrip("/").removeprefix("./") or "x")
                continue
            if not member.isreg() or member.issparse():
                raise Refused(security("manifest.link", "a skill holds no links, devices or holes", member.name))
            if member.mode & _SET_ID:
                raise Refused(security("manifest.set-id", "a file has a set-user-ID or like bit", member.name))
            _bound(member.size, member.name)
            bounded.allow(member.size + _MAX_HEADERS)
            data = members.extractfile(member)
            writer.add(member.name.removeprefix("./"), bool(member.mode & 0o111), data.read() if data else b"")
            bounded.allow(_MAX_HEADERS)
        # A header that is damaged ends the list as its end does.
        if whole[members.offset :].strip(b"\0"):
            raise EOFError


def _tar(file: _Bounded) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast("IO[bytes]", file), mode="r|")


def _count(archive: Path) -> None:
    """Refuse what says that it has many members, before the list of them is read, which takes seconds."""
    with archive.open("rb") as file:
        file.seek(max(0, archive.stat().st_size - _MAX_END))
        last = file.read()
    found = last.rfind(b"PK\5\6")
    if found < 0 or len(last) - found < _END_OF_ZIP.size:
        return
    _, _, _, _, members, size, _, _ = _END_OF_ZIP.unpack_from(last, found)
    # Both: of many members the count is kept elsewhere, or lies, and what is read is as long as this says.
    if members > 2 * MAX_FILES or size > _MAX_HEADERS:
        raise Refused(functional("manifest.files", f"there are more than {MAX_FILES} files"))


def _unzip(archive: Path, writer: Writer) -> None:
    with zipfile.ZipFile(archive) as members:
        entries = members.infolist()
        if len(entries) > 2 * MAX_FILES:
            raise Refused(functional("manifest.files", f"there are more than {MAX_FILES} files"))
        for member in entries:
            mode = member.external_attr >> 16
            if member.is_dir():
                check_path(member.filename.rstrip("/") or "x")
                continue
            if stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
                raise Refused(security("manifest.link", "a skill holds no links and no devices", member.filename))
            if mode & _SET_ID:
                raise Refused(security("manifest.set-id", "a file has a set-user-ID or like bit", member.filename))
            if member.flag_bits & _ENCRYPTED:
                raise Refused(security("manifest.encrypted", "an archive with a password hides what it holds"))
            _bound(member.file_size, member.filename)
            with members.open(member) as file:
                writer.add(member.filename, bool(mode & 0o111), file.read(MAX_FILE + 1))


def _bound(size: int, path: str) -> None:
    if size < 0:
        raise Refused(functional("manifest.archive", "the archive says that a file is smaller than nothing", path))
    if size > MAX_FILE:
        raise Refused(functional("manifest.size", f"a file is larger than {MAX_FILE} bytes", path))


def _whole(archive: Path) -> bytes:
    """The bytes of the tar archive, unpacked with gzip where it is; of one stream, as thousands take seconds."""
    data = archive.read_bytes()
    if not data.startswith(b"\x1f\x8b"):
        return data
    packed = zlib.decompressobj(wbits=_GZIP)
    data = packed.decompress(data, _MAX_ARCHIVE + 1)
    if len(data) > _MAX_ARCHIVE:
        raise Refused(functional("manifest.size", f"the archive holds more than {_MAX_ARCHIVE} bytes"))
    if not packed.eof or packed.unused_data:
        raise EOFError
    return data


class _Bounded:
    """A file of which no more is read than an archive may hold, its headers counted."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = _MAX_ARCHIVE
        self._now = _MAX_HEADERS

    def allow(self, size: int) -> None:
        """No more than this until it is said again."""
        self._now = size

    def read(self, size: int) -> bytes:
        """As a file does.

        Raises:
            Refused: it is too large.
        """
        data = self._file.read(min(size, 1 << 20))
        self._left -= len(data)
        self._now -= len(data)
        if self._left < 0 or self._now < 0:
            raise Refused(functional("manifest.size", f"the archive holds more than {_MAX_ARCHIVE} bytes"))
        return data
