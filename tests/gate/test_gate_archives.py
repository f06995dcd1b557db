"""Archives from untrusted sources: each reader reads them whole or refuses them, in bounded memory and time."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from hermes_exec.errors import Refused
from hermes_exec_agent.skills.registry import bundle
from hermes_exec_agent.skills.registry.registry import Registry
from hermes_exec_policies.gate.archive_members import ArchiveBounds, MemberKind, read_members
from tests.conftest import require_part
from tests.rigs.archives import FILES, HOSTILE, damaged, read_bounded, real
from tests.rigs.breadth import IN_FULL, WHOLE
from tests.rigs.skill_makers import home_in

BOUNDS = ArchiveBounds(members=100, file=1 << 20, unpacked=8 << 20)
_MUTANTS = 8000 if IN_FULL else 1200 if WHOLE else 240


def test_every_hostile_archive_is_refused_in_bounded_memory_and_time(tmp_path: Path) -> None:
    for name, (make, _) in HOSTILE.items():
        (tmp_path / f"{name}.archive").write_bytes(make())
    found = read_bounded(tmp_path)
    assert {name: said[0] for name, said in found.items()} == {name: code for name, (_, code) in HOSTILE.items()}
    assert all(said[1] for said in found.values())
    slow = {name: said[-1] for name, said in found.items() if said[-1] > 2}
    assert not slow
    assert not (tmp_path / "x").exists()


def test_damaged_archives_are_refused_or_read_and_nothing_else(tmp_path: Path) -> None:
    """A child that runs out of its memory or its time, or meets another exception, gives no answer."""
    found = read_bounded(tmp_path, mutants=_MUTANTS, seed=15)
    assert len(found) == _MUTANTS
    codes = {said[0] for said in found.values()}
    assert {"", "manifest.archive", "manifest.size", "manifest.link", "manifest.path"} <= codes


def contents(data: bytes) -> dict[str, tuple[int, bytes]]:
    return {
        each.name: (each.mode & 0o777, each.data) for each in read_members(data, BOUNDS) if each.kind is MemberKind.FILE
    }


def test_what_tools_write_is_read_as_they_read_it(tmp_path: Path) -> None:
    require_part("tar", "it writes archives of its own")
    for path, data in FILES.items():
        (tmp_path / "in" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / path).write_bytes(data)
    long = tmp_path / "in" / ("d" * 60) / ("e" * 60) / ("n" * 90)
    long.parent.mkdir(parents=True)
    long.write_bytes(b"long")
    made = real()
    for form in ("v7", "ustar", "gnu", "oldgnu", "pax"):
        chosen = ["in/SKILL.md", "in/scripts"] if form == "v7" else ["in"]
        words = ["tar", f"--format={form}", "-cz", "-C", str(tmp_path), *chosen]
        made.append(subprocess.run(words, check=True, capture_output=True).stdout)
    for data in made:
        assert contents(data) == theirs(data)
        assert len(contents(data)) > 1


def theirs(data: bytes) -> dict[str, tuple[int, bytes]]:
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {
                each.filename: (each.external_attr >> 16 & 0o777, archive.read(each)) for each in archive.infolist()
            }
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {each.name: (each.mode & 0o777, file.read()) for each in archive if (file := archive.extractfile(each))}


@pytest.mark.parametrize("kind", ["folder", "device", "FIFO"])
def test_what_is_no_file_is_no_bundle_and_never_blocks(tmp_path: Path, kind: str) -> None:
    os.mkfifo(tmp_path / "FIFO")
    path = {"folder": tmp_path, "device": Path("/dev/zero"), "FIFO": tmp_path / "FIFO"}[kind]
    with pytest.raises(Refused, match="not a regular file"):
        bundle.read(Registry(home_in(tmp_path)), path, tmp_path / "into")


def test_the_damaged_archives_are_the_same_each_time() -> None:
    assert list(damaged(20, 3)) == list(damaged(20, 3))
