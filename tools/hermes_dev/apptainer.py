"""Apptainer on a Debian whose own archive has none: the newer suite's package, made to fit the older C library.

The programs in it need nothing newer than glibc 2.36 but ``__isoc23_strtol`` and its like, which compilers write
for plain ``strtol``. They are renamed back in the program's dynamic symbols, the package's bound on libc6 is
lowered, and apt installs it with every dependency from the machine's own suite. The machine's C library, its
sources and its lists of packages stay as they are. The finished package is kept in ``.cache``.
"""

from __future__ import annotations

import re
import shutil
import struct
from typing import TYPE_CHECKING

from hermes_dev import newer
from hermes_dev.place import CACHE, DevError

if TYPE_CHECKING:
    from pathlib import Path

DEPENDENCIES = ("squashfs-tools", "squashfuse", "fuse2fs", "fuse-overlayfs", "uidmap", "fuse3", "e2fsprogs")
"""What Apptainer mounts images with; all of the machine's own suite."""
DONOR = "sid"
_NEWEST_MINOR = 36
_RENAMED = "__isoc23_"
_KNOWN = frozenset(_RENAMED + name for name in ("strtol", "strtoul", "strtoll", "strtoull"))
_DYNSYM, _VERNEED, _VERSYM = 11, 0x6FFFFFFE, 0x6FFFFFFF


def build_package() -> Path:
    """The .deb that fits this machine, made now unless it is in the cache.

    Raises:
        DevError: it cannot be downloaded or built; the message has the reason.
    """
    folder = CACHE / "apptainer"
    finished = folder / "apptainer-fitted.deb"
    if not finished.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unpacked = folder / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        newer.run(["dpkg-deb", "-R", str(newer.download("apptainer", DONOR, folder)), str(unpacked)])
        _fit(unpacked)
        made = folder / "made.deb"
        newer.run(["dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "-b", str(unpacked), str(made)])
        made.rename(finished)
        shutil.rmtree(unpacked)
    return finished


def _fit(unpacked: Path) -> None:
    for path in sorted((unpacked / "usr").rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                is_program = file.read(6) == b"\x7fELF\x02\x01"
            if is_program:
                path.write_bytes(remove_newer_names(path.read_bytes(), path.name))
    control = unpacked / "DEBIAN" / "control"
    text = re.sub(r"libc6 \(>= [^)]*\)", f"libc6 (>= 2.{_NEWEST_MINOR})", control.read_text(encoding="utf-8"))
    control.write_text(re.sub(r"(?m)^(Version: .*)$", r"\1+fitted1", text), encoding="utf-8")
    (unpacked / "DEBIAN" / "md5sums").unlink(missing_ok=True)  # they are those of the programs before


def remove_newer_names(program: bytes, name: str) -> bytes:
    """A 64-bit program or library without the newer names that it can do without.

    Raises:
        DevError: it needs something newer that has no older name; says what.
    """
    data = bytearray(program)
    (start,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * number) for number in range(count)]
    kinds = {section[1]: section for section in sections}
    if not kinds.keys() >= {_DYNSYM, _VERNEED, _VERSYM}:
        return program  # it is linked to nothing
    symbols, strings = kinds[_DYNSYM], sections[kinds[_DYNSYM][6]][4]

    def text(at: int) -> str:
        return data[strings + at : data.index(0, strings + at)].decode()

    versions = _versions(data, kinds[_VERNEED])
    newer = {number for number, (at, name_at) in versions.items() if _is_newer(text(name_at)) and at}
    base = next((at for at, name_at in versions.values() if text(name_at) == "GLIBC_2.2.5"), None)
    if not newer or base is None:
        return program
    for number in range(symbols[5] // 24):
        (version,) = struct.unpack_from("<H", data, kinds[_VERSYM][4] + 2 * number)
        if version & 0x7FFF not in newer:
            continue
        at = symbols[4] + 24 * number
        (name_at,) = struct.unpack_from("<I", data, at)
        if text(name_at) not in _KNOWN:
            raise DevError(f"{name} of the newer apptainer needs {text(name_at)}, which this C library lacks")
        struct.pack_into("<I", data, at, name_at + len(_RENAMED))  # the rest of the same string
    for number in newer:
        at = versions[number][0]
        data[at : at + 4] = data[base : base + 4]  # the hash of the version's name
        data[at + 8 : at + 12] = data[base + 8 : base + 12]  # the name
    return bytes(data)


def _versions(data: bytearray, needed: tuple[int, ...]) -> dict[int, tuple[int, int]]:
    """From a version's number to where its entry is, and where its name is among the strings."""
    found: dict[int, tuple[int, int]] = {}
    at = needed[4]
    for _ in range(needed[7]):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, at)
        entry = at + first
        for _ in range(count):
            _, _, number, name_at, step = struct.unpack_from("<IHHII", data, entry)
            found[number] = (entry, name_at)
            entry += step
        at += following
    return found


def _is_newer(version: str) -> bool:
    match = re.fullmatch(r"GLIBC_2\.([0-9]+)", version)
    return match is not None and int(match[1]) > _NEWEST_MINOR
