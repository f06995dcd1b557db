"""Archives that lie, bombs, and damaged copies of real ones; and a child process that reads them within bounds."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import resource
import stat
import struct
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
ROOM = 160 << 20
"""Bytes of memory that reading may take beside what the interpreter has."""
CPU_S = 100
BOMB = 512 << 20
FILES = {"SKILL.md": b"---\nname: x\n---\n", "scripts/main.py": b"x = 1\n" * 200, "data/t.bin": bytes(range(256)) * 9}


def tarred(*members: tuple[Any, ...], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar archive of names (or ``TarInfo``) and their bytes."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as archive:
        for name, data in members:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.size = member.size or len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def typed(kind: bytes, name: str = "x", link: str = "/etc/passwd", **fields: Any) -> bytes:
    """A tar archive of one member of a type."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    for field, value in fields.items():
        setattr(member, field, value)
    return tarred((member, b""))


def header(name: bytes, size: int, kind: bytes = b"0", magic: bytes = b"ustar\x0000") -> bytes:
    """One header of tar whose sum is right, whatever else it says."""
    number = b"%011o\0" % size if size < 1 << 33 else b"\x80" + size.to_bytes(11, "big")
    block = bytearray(name.ljust(100, b"\0") + b"0000644\0" * 3 + number + b"00000000000\0" + b" " * 8 + kind)
    block += bytes(100) + magic
    block += bytes(512 - len(block))
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def record(key: bytes, value: bytes) -> bytes:
    """A record of a pax header."""
    size = len(key) + len(value) + 3
    while size != len(key) + len(value) + 3 + len(str(size)):
        size = len(key) + len(value) + 3 + len(str(size))
    return b"%d %s=%s\n" % (size, key, value)


def huge(kind: bytes) -> bytes:
    """A packed tar archive whose one extended header is longer than the memory that is allowed."""
    packer = zlib.compressobj(1, wbits=31)
    parts = [packer.compress(header(b"x", BOMB, kind))]
    parts += [packer.compress(bytes(1 << 20)) for _ in range(BOMB >> 20)]
    return b"".join([*parts, packer.compress(header(b"SKILL.md", 0) + bytes(1024)), packer.flush()])


def extended(*records: tuple[bytes, bytes], kind: bytes = b"x", data: bytes = b"y") -> bytes:
    """A tar archive of one file with a pax header."""
    text = b"".join(record(*each) for each in records)
    return header(b"h", len(text), kind) + padded(text) + header(b"f", len(data)) + padded(data) + bytes(1024)


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.comment = comment
    return made.getvalue()


def patched(data: bytes, *changes: tuple[bytes, int, bytes]) -> bytes:
    """Bytes with others at a distance from the first place of a magic number."""
    made = bytearray(data)
    for magic, distance, value in changes:
        place = data.index(magic) + distance
        made[place : place + len(value)] = value
    return bytes(made)


def zip64_liar() -> bytes:
    """A directory of 200,000 members, which the end of the archive does not mention, but that of ZIP64 does."""
    one = zipped({"a": b""})
    entry = one[one.index(b"PK\1\2") : one.index(b"PK\5\6")]
    local = one[: one.index(b"PK\1\2")]
    directory = entry * 200_000
    at = len(local)
    end64 = struct.pack(
        "<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, 200_000, 200_000, len(directory), at
    ) + struct.pack("<4sIQI", b"PK\6\7", 0, at + len(directory), 1)
    return local + directory + end64 + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 47, at, 0)


def packed_with(method: int, data: bytes) -> bytes:
    """A zip archive whose one member says that it is short, and unpacks to far more."""
    packed = zipped({"x": data}, method)
    return patched(packed, (b"PK\1\2", 24, struct.pack("<L", 5)), (b"PK\3\4", 22, struct.pack("<L", 5)))


def overlapping() -> bytes:
    """A zip archive with 400 names for the same packed bytes, 2 MiB each."""
    one = zipped({"n000": bytes(2 << 20)}, zipfile.ZIP_DEFLATED)
    start, end = one.index(b"PK\1\2"), one.index(b"PK\5\6")
    entry = one[start:end]
    directory = b"".join(entry.replace(b"n000", b"n%03d" % number) for number in range(400))
    return one[:start] + directory + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 400, 400, len(directory), start, 0)


def linked_in_zip(mode: int) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        member = zipfile.ZipInfo("x")
        member.external_attr = mode << 16
        archive.writestr(member, "/etc/passwd")
    return made.getvalue()


def _gnu_sparse() -> bytes:
    """A file with holes as old GNU tar writes it, whose list of holes goes on where the archive ends."""
    block = bytearray(header(b"x", 0, b"S", b"ustar  \0"))
    block[482] = 1
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "pax header of 512 MiB": (lambda: huge(b"x"), "manifest.size"),
    "global pax header of 512 MiB": (lambda: huge(b"g"), "manifest.size"),
    "GNU long name of 512 MiB": (lambda: huge(b"L"), "manifest.size"),
    "GNU long link of 512 MiB": (lambda: huge(b"K"), "manifest.size"),
    "pax header that is not there": (lambda: header(b"x", 40_000, b"x"), "manifest.archive"),
    "size of 8 EiB": (lambda: header(b"x", 1 << 63) + bytes(1024), "manifest.size"),
    "pax size of 300 digits": (lambda: extended((b"size", b"9" * 300)), "manifest.archive"),
    "pax size below 0": (lambda: extended((b"size", b"-1")), "manifest.archive"),
    "size below 0": (lambda: patched(header(b"x", 1 << 40), (b"\x80", 0, b"\xff")) + bytes(1024), "manifest.archive"),
    "pax header of digits": (
        lambda: gzip.compress((header(b"x", 60_000, b"x") + padded(b"1" * 60_000)) * 200), "manifest.archive",
    ),
    "chain of pax headers": (lambda: (header(b"x", 6, b"x") + padded(b"6 a=b\n")) * 3000, "manifest.size"),
    "global size": (lambda: extended((b"size", b"0"), kind=b"g"), "manifest.archive"),
    "global path": (lambda: extended((b"path", b"x"), kind=b"g"), "manifest.archive"),
    "sparse 0.0": (lambda: extended((b"GNU.sparse.size", b"9"), (b"GNU.sparse.numblocks", b"1")), "manifest.link"),
    "sparse 0.1": (lambda: extended((b"GNU.sparse.map", b"0,1"), (b"GNU.sparse.size", b"1")), "manifest.link"),
    "sparse 1.0": (
        lambda: extended((b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"1")),
        "manifest.link",
    ),
    "sparse of old": (_gnu_sparse, "manifest.link"),
    "packed bomb": (lambda: gzip.compress(bytes(BOMB), 1), "manifest.size"),
    "bomb in a bomb": (lambda: gzip.compress(gzip.compress(bytes(BOMB), 1), 1), "manifest.archive"),
    "several packed streams": (lambda: gzip.compress(tarred(("x", b""))) + gzip.compress(b"") * 9, "manifest.archive"),
    "many members": (lambda: gzip.compress(header(b"d/", 0, b"5") * 30_000 + bytes(1024), 1), "manifest.files"),
    "one name twice": (lambda: tarred(("x", b"1"), ("x", b"2")), "manifest.collision"),
    "one name in two cases": (lambda: tarred(("x", b"1"), ("X", b"2")), "manifest.collision"),
    "path from the root": (lambda: header(b"/x", 0) + bytes(1024), "manifest.path"),
    "path that climbs": (lambda: tarred(("a/../../x", b"1")), "manifest.path"),
    "pax path that climbs": (lambda: extended((b"path", b"../x")), "manifest.path"),
    "GNU name that climbs": (
        lambda: header(b"l", 5, b"L") + padded(b"../x\0") + header(b"f", 0) + bytes(1024), "manifest.path",
    ),
    "symbolic link": (lambda: typed(tarfile.SYMTYPE), "manifest.link"),
    "hard link": (lambda: typed(tarfile.LNKTYPE), "manifest.link"),
    "device": (lambda: typed(tarfile.BLKTYPE, devmajor=8), "manifest.link"),
    "character device": (lambda: typed(tarfile.CHRTYPE, devmajor=1), "manifest.link"),
    "FIFO": (lambda: typed(tarfile.FIFOTYPE), "manifest.link"),
    "unknown type": (lambda: header(b"x", 0, b"Z") + bytes(1024), "manifest.link"),
    "set-user-ID": (lambda: typed(tarfile.REGTYPE, mode=0o4755), "manifest.set-id"),
    "name that is not UTF-8": (lambda: header(b"\xff\xfe", 0) + bytes(1024), "manifest.file-name"),
    "pax name that is not UTF-8": (lambda: extended((b"path", b"\xff")), "manifest.file-name"),
    "name with a newline": (lambda: header(b"a\nb", 0) + bytes(1024), "manifest.file-name"),
    "no name": (lambda: header(b"", 0) + bytes(1024), "manifest.path"),
    "truncated after a member": (lambda: header(b"x", 1) + padded(b"1"), "manifest.archive"),
    "truncated in a member": (lambda: header(b"x", 900) + bytes(512), "manifest.archive"),
    "truncated stream": (lambda: gzip.compress(tarred(("x", b"1")))[:-4], "manifest.archive"),
    "garbage at the end": (lambda: tarred(("x", b"1")) + b"#", "manifest.archive"),
    "garbage after the stream": (lambda: gzip.compress(tarred(("x", b"1"))) + b"#", "manifest.archive"),
    "nothing": (lambda: b"", "manifest.archive"),
    "bzip2": (lambda: bz2.compress(tarred(("x", b"1"))), "manifest.archive"),
    "xz": (lambda: lzma.compress(tarred(("x", b"1"))), "manifest.archive"),
    "zip64 liar": (zip64_liar, "manifest.archive"),
    "zip of many": (lambda: zipped({f"f{number}": b"" for number in range(2000)}), "manifest.files"),
    "zip bomb": (lambda: zipped({"x": bytes(64 << 20)}, zipfile.ZIP_DEFLATED), "manifest.size"),
    "zip bomb that lies": (lambda: packed_with(zipfile.ZIP_DEFLATED, bytes(64 << 20)), "manifest.archive"),
    "zip bomb of bzip2": (lambda: packed_with(zipfile.ZIP_BZIP2, bytes(BOMB)), "manifest.archive"),
    "zip bomb of LZMA": (lambda: packed_with(zipfile.ZIP_LZMA, bytes(64 << 20)), "manifest.archive"),
    "zip of overlapping members": (overlapping, "manifest.archive"),
    "zip with a longer member": (
        lambda: patched(zipped({"x": b"12345"}), (b"PK\1\2", 24, b"\4"), (b"PK\3\4", 22, b"\4")), "manifest.archive",
    ),
    "zip with garbage before it": (lambda: b"PK\3\4" + zipped({"x": b"1"}), "manifest.archive"),
    "zip with garbage after it": (lambda: zipped({"x": b"1"}) + b"#", "manifest.archive"),
    "zip with an end in its comment": (
        lambda: zipped({"x": b"1"}, comment=b"PK\5\6" + bytes(18)), "manifest.archive",
    ),
    "zip with a password": (
        lambda: patched(zipped({"x": b"1"}), (b"PK\1\2", 8, b"\1"), (b"PK\3\4", 6, b"\1")), "manifest.encrypted",
    ),
    "zip of a later version": (lambda: patched(zipped({"x": b"1"}), (b"PK\1\2", 6, b"\x99")), "manifest.archive"),
    "zip with a link": (lambda: linked_in_zip(stat.S_IFLNK | 0o777), "manifest.link"),
    "zip with a device": (lambda: linked_in_zip(stat.S_IFBLK | 0o600), "manifest.link"),
    "zip that climbs": (lambda: zipped({"../x": b"1"}), "manifest.path"),
    "zip from the root": (lambda: zipped({"/x": b"1"}), "manifest.path"),
    "zip without its end": (lambda: zipped({"x": b"1"})[:-30], "manifest.archive"),
}  # fmt: skip
"""Each with the finding for which ``unpack`` refuses it."""


def real() -> list[bytes]:
    """Archives as tools write them."""
    long = {**FILES, f"references/{'n' * 90}/{'m' * 90}.md": b"long"}
    forms = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
    made = [tarred(*long.items(), form=form) for form in forms]
    made += [gzip.compress(each, mtime=0) for each in made]
    return [*made, zipped(long), zipped(long, zipfile.ZIP_DEFLATED)]


def damaged(count: int, seed: int) -> Iterator[bytes]:
    """Copies of real archives with bytes changed, cut, doubled and moved; half of the tar headers get a right sum."""
    chance = random.Random(seed)
    models = real()
    for _ in range(count):
        model = chance.choice(models)
        packed = model.startswith(b"\x1f\x8b") and chance.random() < 0.8
        data = bytearray(gzip.decompress(model) if packed else model)
        for _ in range(chance.randint(1, 4)):
            _change(data, chance)
        if not data.startswith(b"PK") and chance.random() < 0.5:
            _mend(data)
        yield gzip.compress(data, 1, mtime=0) if packed else bytes(data)


_WORDS = (b"\xff" * 12, b"\x80" + b"\xff" * 11, b"7" * 11 + b"\0", b"PK\5\6", b"PK\6\7", b"GNU.sparse.map=", b"xLKgS")


def _change(data: bytearray, chance: random.Random) -> None:
    place, size = chance.randrange(len(data) + 1), chance.choice((1, 8, 512, 1024))
    match chance.randrange(6):
        case 0:
            data[place : place + 1] = bytes([chance.randrange(256)])
        case 1:
            del data[place : place + size]
        case 2:
            data[place:place] = data[place : place + size]
        case 3:
            word = chance.choice(_WORDS)
            data[place : place + len(word)] = word
        case 4:
            block = place // 512 * 512
            data[block + 156 : block + 157] = chance.choice((b"x", b"L", b"K", b"g", b"S", b"1", b"5", b"\0"))
        case _:
            block = place // 512 * 512
            data[block + 124 : block + 136] = b"%011o\0" % chance.choice((0, 1, 511, 4096, 1 << 20, 1 << 32))


def _mend(data: bytearray) -> None:
    for block in range(0, len(data) - 511, 512):
        if data.startswith(b"ustar", block + 257):
            data[block + 148 : block + 156] = b" " * 8
            data[block + 148 : block + 156] = b"%06o\0 " % sum(data[block : block + 512])


def read_bounded(folder: Path, *, mutants: int = 0, seed: int = 0) -> dict[str, Any]:
    """Read every file of a folder, or that many damaged archives, in a child whose memory and time are bounded."""
    paths = [str(ROOT), *(str(ROOT / name) for name in ("backends", "policies", "agent"))]
    done = subprocess.run(
        [sys.executable, "-m", "tests.rigs.archives", str(folder), str(mutants), str(seed)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """In the child: give what each reader of the product said of each archive."""
    from hermes_exec_agent.skills.registry.registry import Registry
    from tests.rigs.skill_makers import home_in

    folder, mutants, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    registry = Registry(home_in(folder / "home"))
    _read_one(registry, zipped(FILES), folder / "first")  # what reading imports is there before it is bounded
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    given = damaged(mutants, seed) if mutants else (each.read_bytes() for each in sorted(folder.glob("*.archive")))
    names = map(str, range(mutants)) if mutants else (each.stem for each in sorted(folder.glob("*.archive")))
    found: dict[str, Any] = {}
    for number, (name, data) in enumerate(zip(names, given, strict=True)):
        began = time.process_time()
        said = _read_one(registry, data, folder / f"of-{number}")
        found[name] = [*said, time.process_time() - began]
    print(json.dumps(found))


def _read_one(registry: Any, data: bytes, folder: Path) -> list[str]:
    from hermes_exec.errors import Refused as BundleRefused
    from hermes_exec.errors import TransferError
    from hermes_exec_agent.skills.registry import bundle
    from hermes_exec_agent.skills.run.clouds import extract_files
    from hermes_exec_policies.gate.archive_members import unpack
    from hermes_exec_policies.gate.verdict import SkillRefused

    folder.mkdir()
    (file := folder / "given").write_bytes(data)
    said: list[str] = []
    try:
        unpack(file, folder / "skill")
        said.append("")
    except SkillRefused as error:
        said.append(error.findings[0].code)
    (folder / "bundle").mkdir()
    try:
        bundle.read(registry, file, folder / "bundle")
        said.append("")
    except (SkillRefused, BundleRefused) as error:
        said.append(type(error).__name__)
    try:
        extract_files(data, folder / "cloud")
        said.append("")
    except TransferError as error:
        said.append(type(error).__name__)
    return said


if __name__ == "__main__":
    main()
