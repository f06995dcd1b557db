"""A version as one file, to be taken elsewhere: its files, what was recorded of it, and the signature.

The signature tells whose gate it passed. Nobody's gate but this installation's counts here: what is imported is judged
as anything else.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from hermes_exec.config.paths import shown
from hermes_exec.errors import Refused, UsageError
from hermes_exec_agent.skills.registry import content
from hermes_exec_agent.skills.registry.content import private_folder
from hermes_exec_agent.skills.registry.log import sign, signed
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
    """What a bundle says, and whose key signed it."""

    facts: dict[str, Any]
    signer: str
    """The fingerprint of the key; who holds it is not told."""
    ours: bool
    """Whether that is this installation."""


def write(registry: Registry, version: Version, path: Path) -> None:
    """Write a version to the new file ``path``.

    Raises:
        content.Changed: its files are not what was signed.
        UsageError: the file is there already.
    """
    record = json.dumps(version.facts(), sort_keys=True).encode()
    public = registry.key.public_key().public_bytes_raw()
    signature = {"key": public.hex(), "signature": sign(registry.key, _BUNDLE, record).hex()}
    with private_folder() as folder:
        content.copy(registry.tree(version), version.files, folder / "tree")
        with _new(path) as file, tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, _RECORD, record, 0o644)
            _add(archive, _SIGNATURE, json.dumps(signature).encode(), 0o644)
            for each in version.files:
                _add(archive, _FILES + each.path, (folder / "tree" / each.path).read_bytes(), each.mode)


def write_flat(registry: Registry, version: Version, path: Path) -> None:
    """Write the skill's script alone to the new file ``path``, for reading. It is never what runs.

    Raises:
        content.Changed: its files are not what was signed.
        UsageError: the file is there already.
    """
    text = module_text(registry.tree(version), version)
    with _new(path) as file:
        file.write(text)


@contextlib.contextmanager
def _new(path: Path) -> Generator[BinaryIO]:
    """A new file, which lasts when this is left; nothing of it stays where something goes wrong."""
    try:
        file = path.open("xb")
    except FileExistsError:
        raise UsageError(f"{shown(path)} is there already", remedy="name a file that is to be made") from None
    except FileNotFoundError:
        raise UsageError(f"{shown(path.absolute().parent)}: there is no such folder") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink()
        raise


def read(registry: Registry, path: Path, into: Path) -> tuple[Bundle, Tree]:
    """Take a bundle apart into a new folder of the skill's name in ``into``.

    Raises:
        Refused: it is none, its signature does not hold, or its files are not those that were signed.
    """
    from hermes_exec_policies.gate.skill_names import module_name, skill_name
    from hermes_exec_policies.gate.tree import Writer

    parts = _parts(path)
    try:
        record, signed_by = parts.pop(_RECORD)[1], json.loads(parts.pop(_SIGNATURE)[1])
        public, signature = bytes.fromhex(signed_by["key"]), bytes.fromhex(signed_by["signature"])
        facts = cast("dict[str, Any]", json.loads(record))
        listed = {each["path"]: (each["mode"], each["size"], each["sha256"]) for each in facts["files"]}
        name = skill_name(module_name(facts["name"]))
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(f"{shown(path)} is no bundle of a skill") from error
    if not _signed(public, record, signature):
        raise Refused(f"{shown(path)}: its signature does not hold")
    writer = Writer(into / name)
    for file, (mode, data) in parts.items():
        writer.add(file.removeprefix(_FILES), bool(mode & 0o111), data)
    tree = writer.tree()
    if {each.path: (each.mode, each.size, each.sha256) for each in tree.files} != listed:
        raise Refused(f"{shown(path)}: its files are not those that were signed")
    ours = public == registry.key.public_key().public_bytes_raw()
    return Bundle(facts, _fingerprint(public), ours), tree


def _parts(path: Path) -> dict[str, tuple[int, bytes]]:
    """The files of an archive, by name. Nothing is unpacked by their names."""
    from hermes_exec_policies.gate import verdict
    from hermes_exec_policies.gate.archive_members import Bounds, MemberKind, read_archive, read_members

    bounds = Bounds(members=_MANY, file=_MOST, unpacked=_MOST)
    parts: dict[str, tuple[int, bytes]] = {}
    try:
        for member in read_members(read_archive(path, bounds), bounds):
            known = member.name in {_RECORD, _SIGNATURE} or member.name.startswith(_FILES)
            if member.kind is not MemberKind.FILE or member.name in parts or not known:
                raise Refused(f"{shown(path)} is no bundle of a skill: {ascii(member.name)[:80]}")
            parts[member.name] = (member.mode, member.data)
    except FileNotFoundError as error:
        raise UsageError(f"{shown(path)}: there is no such file") from error
    except OSError as error:
        raise UsageError(f"{shown(path)} cannot be read: {error.strerror}") from error
    except verdict.Refused as error:
        raise Refused(f"{shown(path)} is no bundle of a skill: {error.findings[0].operator}") from error
    return parts


def _add(archive: tarfile.TarFile, name: str, data: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    archive.addfile(member, io.BytesIO(data))


def _signed(public: bytes, record: bytes, signature: bytes) -> bool:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        return signed(Ed25519PublicKey.from_public_bytes(public), _BUNDLE, record, signature)
    except ValueError:
        return False


def _fingerprint(public: bytes) -> str:
    import hashlib

    return hashlib.sha256(public).hexdigest()
