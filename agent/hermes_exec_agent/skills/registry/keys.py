"""The key of this installation, and the signed head of the log, which lies beside it.

A signature says that this installation's gate accepted something, no more. The head says how far the log has come,
so that an older copy of the log, or a shorter one, is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_exec.config.paths import read_regular, shown, write_private
from hermes_exec.errors import ConfigError, Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_KEY = "key.pem"
_HEAD = b"hermes-exec skills: head 1\0"


def sign(key: Ed25519PrivateKey, purpose: bytes, message: bytes) -> bytes:
    """The signature of a message for one purpose: it is worth nothing for another."""
    return key.sign(purpose + message)


def signed(key: Ed25519PublicKey, purpose: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature is of this message, for this purpose, by this key."""
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, purpose + message)
    except InvalidSignature:
        return False
    return True


def fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256 of a public key, in hexadecimal."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def has_key(folder: Path) -> bool:
    """Whether there is something by the name of a key in ``folder``."""
    return os.path.lexists(folder / _KEY)


def open_key(folder: Path, *, make: bool) -> Ed25519PrivateKey:
    """The key in ``folder``; where there is none, a new one if ``make``. Two who make it at once get the same one.

    Raises:
        Refused: there is none, others can read it, or it is no key.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = folder / _KEY
    if make and not path.exists():
        _make(path)
    try:
        found = path.lstat()
        content = read_regular(path)
    except (OSError, ConfigError) as error:
        raise Refused(
            f"{shown(path)}: the key of this installation cannot be read, so nothing that it signed can be checked",
            remedy="bring it back from a backup; without it, start a new registry and import bundles into it",
        ) from error
    if found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise Refused(
            f"{shown(path)}: others can read the key, so its signatures prove nothing",
            remedy="move key and registry away, and start anew with bundles that are proven again",
        )
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise Refused(f"{shown(path)} holds no key", remedy="bring it back from a backup") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise Refused(f"{shown(path)} holds another kind of key", remedy="bring it back from a backup")
    return key


def _make(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    draft = path.with_name(f".key.{secrets.token_hex(8)}")
    write_private(draft, key)
    try:
        os.link(draft, path)  # unlike a rename, it never replaces the key of whoever was faster
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    sync_folder(path.parent)


@dataclass(frozen=True, slots=True)
class Head:
    """How far a log had come when it was last signed."""

    registry: str
    """The log's own name, drawn when it was made."""
    folder: str
    counter: int
    """How many events there were."""
    chain: str
    """The chained hash of the last of them."""


def head_file(folder: Path, registry: Path) -> Path:
    """Where the head of the registry in the folder ``registry`` is kept."""
    return folder / f"head-{hashlib.sha256(os.fsencode(os.path.realpath(registry))).hexdigest()[:16]}.json"


def write_head(path: Path, head: Head, key: Ed25519PrivateKey) -> None:
    """Replace the head in one step; after a crash it is the old one or the new."""
    signature = sign(key, _HEAD, _canonical(head))
    write_private(path, json.dumps({**asdict(head), "signature": signature.hex()}).encode() + b"\n")
    sync_folder(path.parent)


def read_head(path: Path, key: Ed25519PublicKey) -> Head | None:
    """The head; None where there is none.

    Raises:
        Refused: it is none of ours.
    """
    if not os.path.lexists(path):
        return None
    try:
        facts = json.loads(read_regular(path))
        signature = bytes.fromhex(facts.pop("signature"))
        head = Head(**facts)
        good = signed(key, _HEAD, _canonical(head), signature) and type(head.counter) is int
    except (ConfigError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _no_head(path) from error
    if not good:
        raise _no_head(path)
    return head


def _no_head(path: Path) -> Refused:
    return Refused(
        f"{shown(path)}: the signed head of the registry was changed", remedy="bring both back from one backup"
    )


def _canonical(head: Head) -> bytes:
    return json.dumps(asdict(head), sort_keys=True, separators=(",", ":")).encode()


def sync_folder(folder: Path) -> None:
    """Make new names in a folder last through a loss of power."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
