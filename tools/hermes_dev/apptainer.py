"""Apptainer on a Debian whose own archive has none: the newer suite's package, made to fit the older C library.

The programs in it need nothing newer than glibc 2.36 but ``__isoc23_strtol`` and its like, which compilers write
for plain ``strtol``. They are renamed back in the program's dynamic symbols, the package's bound on libc6 is
lowered, and apt installs it with every dependency from the machine's own suite. The machine's C library, its
sources and its lists of packages stay as they are. The finished package is kept in ``.cache``.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_dev.place import CACHE, DevError, environment

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        DevError: it cannot be had or made; says what is amiss.
    """
    folder = CACHE / "apptainer"
    finished = folder / "apptainer-fitted.deb"
    if not finished.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unpacked = folder / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        _run(["dpkg-deb", "-R", str(_download(folder)), str(unpacked)])
        _fit(unpacked)
        made = folder / "made.deb"
        _run(["dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "-b", str(unpacked), str(made)])
        made.rename(finished)
        shutil.rmtree(unpacked)
    return finished


def archive() -> str | None:
    """Where this machine's apt has Debian's own archive; None where it has none, as on Ubuntu."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)|$(ORIGIN)|$(LABEL)", "Created-By: Packages"]
    archives = [line.split("|") for line in _run(targets).splitlines()]
    return next((uri for uri, origin, label in archives if origin == label == "Debian"), None)


def _download(folder: Path) -> Path:
    """Fetch the package of the newer suite from the archive that this machine's apt is set up with."""
    uri = archive()
    if uri is None:
        raise DevError("no Debian archive is configured here. Try: apt-get update, or install apptainer by hand")
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (folder / "sources.list").write_text(f"deb [signed-by={key}] {uri} {DONOR} main\n", encoding="utf-8")
    (folder / "status").touch()
    settings = {
        "Dir::Etc::sourcelist": f"{folder}/sources.list",
        "Dir::Etc::sourceparts": os.devnull,
        "Dir::Etc::preferences": os.devnull,
        "Dir::Etc::preferencesparts": os.devnull,
        "Dir::State::lists": f"{folder}/lists",
        "Dir::State::status": f"{folder}/status",
        "Dir::Cache::archives": f"{folder}/archives",
        "Dir::Cache::pkgcache": "",
        "Dir::Cache::srcpkgcache": "",
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": "1",
        "Acquire::Check-Valid-Until": "false",  # a mirror that stands still for some days is good enough
        "Acquire::Languages": "none",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    for old in folder.glob("apptainer_*.deb"):
        old.unlink()
    _run(["apt-get", *options, "-qq", "update"])
    _run(["apt-get", *options, "-qq", "download", "apptainer"], folder)
    shutil.rmtree(folder / "lists")
    return next(folder.glob("apptainer_*.deb"))


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


def _run(argv: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(
        argv,
        check=False,
        cwd=cwd,
        env={**environment(), "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise DevError(f"{' '.join(argv[:2])} failed: {done.stderr.strip()[-400:]}")
    return done.stdout
