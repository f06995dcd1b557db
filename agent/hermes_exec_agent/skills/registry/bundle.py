"""A version as one file for another installation: its files, its record, and the signature.

The signature names the installation whose gate it passed. Only this installation's gate counts here: an imported bundle
is validated like any other skill.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hermes_exec.config.paths import to_printable
from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.registry.log import is_signed, sign
from hermes_exec_agent.skills.registry.script_copies import module_text

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from hermes_exec_agent.skills.registry.record import Version
    from hermes_exec_agent.skills.registry.registry import Registry
    from hermes_exec_policies.gate.tree import Tree

_BUNDLE = b"hermes-exec skills: bundle 1\0"
_RECORD, _SIGNATURE, _FILES = "record.json", "signature.json", "files/"
_MOST = 16 << 20
_MANY = 600


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a bundle, and its signer."""

    facts: dict[str, Any]
    signer: str
    """The fingerprint of the key; its holder is unknown."""
    ours: bool
    """Whether it is this installation's key."""


def write(registry: Registry, version: Version, path: Path) -> None:
    """Write a version to the new file ``path``.

    Raises:
        content.Changed: its files differ from the signed list.
        UsageError: the file exists.
    """
    record = json.dumps(version.facts(), sort_keys=True).encode()
    public = registry.key.public_key().public_bytes_raw()
    signature = {"key": public.hex(), "signature": sign(registry.key, _BUNDLE, record).hex()}
    with private_folder() as folder:
        content.copy_verified(registry.tree(version), version.files, folder / "tree")
        with _new(path) as file, tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, _RECORD, record, 0o644)
            _add(archive, _SIGNATURE, json.dumps(signature).encode(), 0o644)
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
        raise UsageError(f"{to_printable(path)} is there already", remedy="name a file that is to be made") from None
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


def read(registry: Registry, path: Path, into: Path) -> tuple[Bundle, Tree]:
    """Unpack a bundle into a new folder of the skill's name in ``into``.

    Raises:
        Refused: it is not a bundle, its signature is invalid, or its files are not those that were signed.
    """
    from hermes_exec_policies.gate.skill_names import module_name, skill_name
    from hermes_exec_policies.gate.tree import SkillTreeWriter

    parts = _parts(path)
    try:
        record, signed_by = parts.pop(_RECORD)[1], json.loads(parts.pop(_SIGNATURE)[1])
        public, signature = bytes.fromhex(signed_by["key"]), bytes.fromhex(signed_by["signature"])
        facts = cast("dict[str, Any]", json.loads(record))
        listed = {each["path"]: (each["mode"], each["size"], each["sha256"]) for each in facts["files"]}
        name = skill_name(module_name(facts["name"]))
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{to_printable(path)} is no bundle of a skill") from error
    if not _is_signed(public, record, signature):
        raise Refused(f"{to_printable(path)}: its signature does not hold")
    writer = SkillTreeWriter(into / name)
    for file, (mode, data) in parts.items():
        writer.add(file.removeprefix(_FILES), bool(mode & 0o111), data)
    tree = writer.tree()
    if {each.path: (each.mode, each.size, each.sha256) for each in tree.files} != listed:
        raise Refused(f"{to_printable(path)}: its files are not those that were signed")
    ours = public == registry.key.public_key().public_bytes_raw()
    return Bundle(facts, _fingerprint(public), ours), tree


def _parts(path: Path) -> dict[str, tuple[int, bytes]]:
    """Return the files of an archive by name. No name is used as a path."""
    from hermes_exec_policies.gate import verdict
    from hermes_exec_policies.gate.archive_members import ArchiveBounds, MemberKind, read_archive, read_members

    bounds = ArchiveBounds(members=_MANY, file=_MOST, unpacked=_MOST)
    parts: dict[str, tuple[int, bytes]] = {}
    try:
        for member in read_members(read_archive(path, bounds), bounds):
            known = member.name in {_RECORD, _SIGNATURE} or member.name.startswith(_FILES)
            if member.kind is not MemberKind.FILE or member.name in parts or not known:
                raise Refused(f"{to_printable(path)} is no bundle of a skill: {ascii(member.name)[:80]}")
            parts[member.name] = (member.mode, member.data)
    except FileNotFoundError as error:
        raise UsageError(f"{to_printable(path)}: there is no such file") from error
    except OSError as error:
        raise UsageError(f"{to_printable(path)} cannot be read: {error.strerror}") from error
    except verdict.SkillRefused as error:
        raise Refused(f"{to_printable(path)} is no bundle of a skill: {error.findings[0].operator}") from error
    return parts


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    archive.addfile(member, io.BytesIO(data))


def _is_signed(public: bytes, record: bytes, signature: bytes) -> bool:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        return is_signed(Ed25519PublicKey.from_public_bytes(public), _BUNDLE, record, signature)
    except ValueError:
        return False


def _fingerprint(public: bytes) -> str:
    import hashlib

    return hashlib.sha256(public).hexdigest()
