"""A version as one file for another installation: its files, and the signed statement about them.

The signature names the installation whose gate it passed. Only this installation's gate counts here: an imported bundle
is validated like any other skill.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.skills.registry import attestation, content
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.registry.script_copies import module_text

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from hermes_exec_agent.skills.registry.attestation import Attestation
    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.tree import Tree

STATEMENT, _FILES = "statement.dsse.json", "files/"
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MOST = 64 << 20
_MANY = 1200


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a bundle, and its signer."""

    attestation: Attestation
    ours: bool
    """Whether it is this installation's key."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """The record of the version."""
        return self.attestation.record

    @property
    def signer(self) -> str:
        """The fingerprint of the key; its holder is unknown."""
        return self.attestation.signer


def write(registry: Registry, version: Version, path: Path) -> None:
    """Write a version to the new file ``path``.

    Raises:
        content.Changed: its files differ from the signed list.
        UsageError: the file exists.
    """
    statement = attestation.sign_version(version, registry.key)
    with private_folder() as folder:
        content.copy_verified(registry.tree(version), version.files, folder / "tree")
        with _new(path) as file, tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, STATEMENT, statement, 0o644)
            for each in version.files:
                _add(archive, _FILES + each.path, (folder / "tree" / each.path).read_bytes(), each.mode)


def write_flat(registry: Registry, version: Version, path: Path) -> None:
    """Write the skill's script alone to the new file ``path``, for reading. The registry never runs it.

    Raises:
        content.Changed: its files differ from the signed list.
        UsageError: the file exists.
    """
    text = module_text(registry.tree(version), version)
    with _new(path) as file:
        file.write(text)


@contextlib.contextmanager
def _new(path: Path) -> Generator[BinaryIO]:
    """Create a file, and sync it on success or remove it on failure."""
    try:
        file = path.open("xb")
    except FileExistsError:
        raise UsageError(f"{to_printable(path)} is there already", remedy="name a new file") from None
    except FileNotFoundError:
        raise UsageError(f"{to_printable(path.absolute().parent)}: there is no such folder") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink()
        raise


def read(registry: Registry | None, path: Path, into: Path) -> tuple[Bundle, Tree]:
    """Unpack a bundle into a new folder of the skill's name in ``into``; without a registry, no key is ours.

    Raises:
        Refused: it is not a bundle, its signature is invalid, or its files are not those that were signed.
    """
    from hermes_exec_policies.gate.tree import SkillTreeWriter

    parts = _parts(path)
    name = to_printable(path)
    if STATEMENT not in parts:
        raise Refused(f"{name} is not a bundle of a skill: it has no {STATEMENT}")
    found = attestation.read_attestation(parts.pop(STATEMENT)[1], name)
    writer = SkillTreeWriter(into / _name_of(found, name))
    for file, (mode, data) in parts.items():
        writer.add(file.removeprefix(_FILES), bool(mode & 0o111), data)
    tree = writer.tree()
    if {each.path: (each.mode, each.size, each.sha256) for each in tree.files} != found.files:
        raise Refused(f"{name}: its files are not those that were signed")
    return Bundle(found, registry is not None and found.signer == registry.signer), tree


def _name_of(found: Attestation, file: str) -> str:
    """Return the name of the skill, which is safe as a folder's name."""
    name = str(found.record["name"])
    if not _NAME.fullmatch(name):
        raise Refused(f"{file}: {ascii(name)[:80]} is not the name of a skill")
    return name


def _parts(path: Path) -> dict[str, tuple[int, bytes]]:
    """Return the files of an archive by name. No name is used as a path."""
    from hermes_exec_policies.gate import verdict
    from hermes_exec_policies.gate.archive_members import ArchiveBounds, MemberKind, read_archive, read_members

    bounds = ArchiveBounds(members=_MANY, file=_MOST, unpacked=_MOST)
    parts: dict[str, tuple[int, bytes]] = {}
    try:
        for member in read_members(read_archive(path, bounds), bounds):
            known = member.name == STATEMENT or member.name.startswith(_FILES)
            if member.kind is not MemberKind.FILE or member.name in parts or not known:
                raise Refused(f"{to_printable(path)} is not a bundle of a skill: {ascii(member.name)[:80]}")
            parts[member.name] = (member.mode, member.data)
    except FileNotFoundError as error:
        raise UsageError(f"{to_printable(path)}: there is no such file") from error
    except OSError as error:
        raise UsageError(f"{to_printable(path)} cannot be read: {error.strerror}") from error
    except verdict.SkillRefused as error:
        raise Refused(f"{to_printable(path)} is not a bundle of a skill: {error.findings[0].operator}") from error
    return parts


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    archive.addfile(member, io.BytesIO(data))
