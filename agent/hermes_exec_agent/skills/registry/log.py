"""The signed log of skills, and the key of this installation.

Events are chained to their predecessors and signed, and never changed or removed. The chain covers short lines with the
fields of a list, and each line has the hash of its event's body, so that ten thousand skills are listed without reading
their records. A signature states that this installation's gate accepted a version. The signed head, which is stored
next to the key, has the length of the log, so that an older or shorter copy of the log is detected.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import sqlite3
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hermes_exec.config.paths import read_regular, to_printable, write_private
from hermes_exec.errno_hints import is_disk_full, path_remedy
from hermes_exec.errors import ConfigError, HermesError, Refused
from hermes_exec_agent.database_files import check_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from hermes_exec_agent.skills.registry.home import RegistryHome

_EVENT = b"hermes-exec skills: event 1\0"
_CHAIN = b"hermes-exec skills: chain 1\0"
_PATIENCE_S = 30.0
_APPLICATION = 0x68785347
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = 1;
CREATE TABLE events (seq INTEGER PRIMARY KEY CHECK (seq > 0), line TEXT NOT NULL, signature BLOB NOT NULL) STRICT;
CREATE TABLE bodies (seq INTEGER PRIMARY KEY REFERENCES events, body TEXT NOT NULL) STRICT;
CREATE TRIGGER nothing_changes BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER nothing_goes BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
CREATE TRIGGER no_body_changes BEFORE UPDATE ON bodies BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER no_body_goes BEFORE DELETE ON bodies BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
"""


class SkillEvent(NamedTuple):
    """The fields of an event that a list needs."""

    seq: int
    at: float
    """Seconds since 1970."""
    kind: str
    name: str
    """The skill's."""
    version: int
    facts: Mapping[str, Any]
    """Few and short fields, by the kind of event."""
    body: str
    """SHA-256 of the complete record, in hexadecimal."""
    chain: bytes
    """The chained hash up to this event."""


class SkillLog:
    """The events of one registry. Writers hold ``home.locked()``."""

    def __init__(self, home: RegistryHome, key: Callable[[], Ed25519PrivateKey]) -> None:
        """``key`` opens the key when something is verified or signed."""
        self._home = home
        self._key = key
        self._head = head_file(home.keys, home.folder)
        # Verified events stay valid while neither the head nor the file changes.
        self._known: list[SkillEvent] = []
        self._key_of_known: tuple[Head | None, int, int, int] | None = None

    def events(self) -> list[SkillEvent]:
        """Return all events in order, with chain and head verified.

        Raises:
            Refused: the log was changed, shortened or replaced.
        """
        return self._verify()

    def body(self, event: SkillEvent) -> dict[str, Any]:
        """Return the complete record of an event.

        Raises:
            Refused: the record or its signature was changed.
        """
        with closing(self._open()) as base:
            rows = _fetch_all(
                base, "SELECT body, signature FROM events JOIN bodies USING (seq) WHERE seq = ?", (event.seq,)
            )
        text, signature = rows[0] if rows else (None, None)
        if not isinstance(text, str) or hashlib.sha256(text.encode()).hexdigest() != event.body:
            raise self._create_tamper_error(f"what was recorded as event {event.seq} was changed")
        if not self._is_genuine(event, signature):
            raise self._create_tamper_error(f"event {event.seq} has no good signature")
        found: dict[str, Any] = json.loads(text)
        return found

    def append(
        self, kind: str, name: str, version: int, facts: Mapping[str, Any], body: Mapping[str, Any]
    ) -> SkillEvent:
        """Record an event; it lasts when this returns, and is never recorded in part.

        Raises:
            Refused: another program changed the log.
            HermesError: the event cannot be written.
        """
        events = self._verify(make=True)
        if not events:
            # The first event names the log, so that a head belongs to this log alone.
            events = [self._write(None, "created", "", 0, {"registry": os.urandom(16).hex()}, {})]
            self._advance(events[0], events[0])
        event = self._write(events[-1], kind, name, version, facts, body)
        self._advance(events[0], event)
        return event

    def _write(
        self,
        last: SkillEvent | None,
        kind: str,
        name: str,
        version: int,
        facts: Mapping[str, Any],
        body: Mapping[str, Any],
    ) -> SkillEvent:
        text = _json(body)
        seq, at, digest = (last.seq if last else 0) + 1, time.time(), hashlib.sha256(text.encode()).hexdigest()
        line = _json([seq, at, kind, name, version, facts, digest])
        event = SkillEvent(seq, at, kind, name, version, facts, digest, _chain_hash(last.chain if last else b"", line))
        signature = sign(self._key(), _EVENT, _stamp(event))
        try:
            with closing(self._open()) as base:
                base.execute("BEGIN IMMEDIATE")
                base.execute("INSERT INTO events VALUES (?, ?, ?)", (seq, line, signature))
                base.execute("INSERT INTO bodies VALUES (?, ?)", (seq, text))
                base.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._write_error("nothing was recorded", error) from error
        return event

    def _advance(self, first: SkillEvent, last: SkillEvent) -> None:
        folder = os.path.realpath(self._home.folder)
        head = Head(str(first.facts["registry"]), folder, last.seq, last.chain.hex())
        try:
            write_head(self._head, head, self._key())
        except OSError as error:
            raise HermesError(
                f"{to_printable(self._head)}: the signed head cannot be written: {error.strerror}",
                state="it is recorded, and the head follows with the next event",
            ) from error

    def _read_head(self) -> Head | None:
        if not os.path.lexists(self._head):
            return None
        head = read_head(self._head, self._key().public_key())
        if head is not None and head.folder != os.path.realpath(self._home.folder):
            raise self._create_tamper_error("its signed head is that of another registry")
        return head

    def _verify(self, *, make: bool = False) -> list[SkillEvent]:
        head = self._read_head()
        if not self._home.log.exists():
            if head is not None:
                raise self._create_tamper_error("the log is gone")
            if make:
                self._create()
            return []
        seen = self._home.log.stat()
        key = (head, seen.st_ino, seen.st_size, seen.st_mtime_ns)
        if key == self._key_of_known:
            return self._known
        events = self._read()
        if head is None and len(events) > 1:
            head = self._read_head()  # another process wrote the first one meanwhile
        self._check(events, head)
        if make and events and (head is None or head.counter < len(events)):
            self._advance(events[0], events[-1])
        self._known, self._key_of_known = events, key
        return events

    def _read(self) -> list[SkillEvent]:
        """Read the events; only their order is checked."""
        with closing(self._open()) as base:
            rows = _fetch_all(base, "SELECT seq, line FROM events ORDER BY seq")
        events: list[SkillEvent] = []
        chain = b""
        try:
            parsed = _parse_lines(f"[{','.join(line for _, line in rows)}]")
            for place, ((seq, line), (number, *rest)) in enumerate(zip(rows, parsed, strict=True), 1):
                chain = _chain_hash(chain, line)
                at, kind, name, version, facts, body = rest
                events.append(SkillEvent(number, at, kind, name, version, facts, body, chain))
                if seq != place or number != place:
                    raise self._create_tamper_error("events are missing, doubled or in another order")
        except (ValueError, TypeError, IndexError, KeyError, RecursionError) as error:
            raise self._create_tamper_error("a line of the log makes no sense") from error
        return events

    def _check(self, events: Sequence[SkillEvent], head: Head | None) -> None:
        """Compare the log with its head. After a crash between an event and its head, the log is ahead."""
        counter = head.counter if head is not None else 0
        if counter > len(events):
            raise self._create_tamper_error(
                f"it is older than it was: {counter} events were recorded, and {len(events)} are there"
            )
        if head is None and len(events) > 1:
            raise self._create_tamper_error("its signed head is gone")
        if head is not None and events[counter - 1].chain.hex() != head.chain:
            raise self._create_tamper_error("events were changed, or it is another one")
        for event in events[counter:]:
            with closing(self._open()) as base:
                ((signature,),) = _fetch_all(base, "SELECT signature FROM events WHERE seq = ?", (event.seq,))
            if not self._is_genuine(event, signature):
                raise self._create_tamper_error(f"event {event.seq} is not ours")

    def _is_genuine(self, event: SkillEvent, signature: object) -> bool:
        return isinstance(signature, bytes) and is_signed(self._key().public_key(), _EVENT, _stamp(event), signature)

    def _create(self) -> None:
        """Create an empty log under another name first, so that other processes never see a partial one."""
        draft = self._home.log.with_name(f".{self._home.log.name}.new")
        try:
            draft.unlink(missing_ok=True)
            os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with closing(_connect(draft)) as base:
                base.executescript(_SCHEMA)
            draft.rename(self._home.log)
        except (OSError, sqlite3.Error) as error:
            raise self._write_error("no registry could be made", error) from error

    def _open(self) -> sqlite3.Connection:
        path = self._home.log
        try:
            check_readable(path)
            # A write-ahead log would be a second file outside of the chain.
            if path.is_symlink() or path.with_name(f"{path.name}-wal").exists():
                raise self._create_tamper_error("it is not a database of ours")
            base = _connect(path)
            ((application,),) = _fetch_all(base, "PRAGMA application_id")
        except OSError as error:
            remedy = path_remedy(path, error.errno, "bring registry and key back from one backup")
            raise Refused(
                f"{to_printable(path)}: the registry cannot be read: {error.strerror}", remedy=remedy
            ) from error
        except sqlite3.Error as error:
            raise self._create_tamper_error(f"it cannot be read ({error})") from error
        if application != _APPLICATION:
            base.close()
            raise self._create_tamper_error("it is not a database of ours")
        return base

    def _write_error(self, what: str, error: Exception) -> HermesError:
        full = is_disk_full(self._home.folder)
        code = errno.ENOSPC if full else getattr(error, "errno", None)
        remedy = path_remedy(self._home.folder, code, "look at free space and rights there")
        return HermesError(f"{to_printable(self._home.log)}: {what}: {error}", remedy=remedy)

    def _create_tamper_error(self, how: str) -> Refused:
        return Refused(
            f"{to_printable(self._home.log)}: the registry cannot be trusted: {how}",
            remedy="bring registry and key back from one backup, or move both away and import bundles",
        )


def _connect(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE_S, isolation_level=None)
    if base.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        base.close()
        raise sqlite3.DatabaseError("it has a write-ahead log")
    for setting in ("trusted_schema = OFF", "synchronous = EXTRA", "journal_mode = DELETE", "cell_size_check = ON"):
        base.execute(f"PRAGMA {setting}")
    return base


def _fetch_all(base: sqlite3.Connection, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    try:
        return base.execute(query, values).fetchall()
    except (sqlite3.Error, OverflowError) as error:
        raise Refused(f"the registry cannot be read: {error}", remedy="bring it back from a backup") from error


def _chain_hash(chain: bytes, line: str) -> bytes:
    """Return the hash of a line and of the chain before it, which is 32 bytes, or empty for the first line."""
    return hashlib.sha256(_CHAIN + chain + line.encode()).digest()


def _stamp(event: SkillEvent) -> bytes:
    return event.seq.to_bytes(8) + event.chain


def _parse_lines(text: str) -> Any:
    """Parse many lines with the faster parser; only json accepts half of a surrogate pair."""
    from pydantic_core import from_json

    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


_KEY = "key.pem"
_HEAD = b"hermes-exec skills: head 1\0"


def sign(key: Ed25519PrivateKey, purpose: bytes, message: bytes) -> bytes:
    """Sign a message for one purpose; the signature is invalid for another."""
    return key.sign(purpose + message)


def is_signed(key: Ed25519PublicKey, purpose: bytes, message: bytes, signature: bytes) -> bool:
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
    """Whether ``folder`` has an entry with the key's name."""
    return os.path.lexists(folder / _KEY)


def open_key(folder: Path, *, make: bool) -> Ed25519PrivateKey:
    """Return the key in ``folder``; with ``make`` a missing one is created. Concurrent callers get the same one.

    Raises:
        Refused: it is missing, others can read it, or it is not a key.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    path = folder / _KEY
    if make and not path.exists():
        _create_key(path)
    try:
        found = path.lstat()
        content = read_regular(path)
    except (OSError, ConfigError) as error:
        raise Refused(
            f"{to_printable(path)}: the key of this installation cannot be read, so nothing that it signed can"
            " be checked",
            remedy="bring it back from a backup; without it, start a new registry and import bundles into it",
        ) from error
    if found.st_mode & 0o077 or found.st_uid != os.geteuid():
        raise Refused(
            f"{to_printable(path)}: others can read the key, so its signatures prove nothing",
            remedy="move key and registry away, and start again with bundles that are proven again",
        )
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise Refused(f"{to_printable(path)} holds no key", remedy="bring it back from a backup") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise Refused(f"{to_printable(path)} holds another kind of key", remedy="bring it back from a backup")
    return key


def _create_key(path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    draft = path.with_name(f".key.{secrets.token_hex(8)}")
    write_private(draft, key)
    try:
        os.link(draft, path)  # unlike a rename, it never replaces another process's key
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    sync_folder(path.parent)


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a log when it was last signed."""

    registry: str
    """The log's random name."""
    folder: str
    counter: int
    """The number of events."""
    chain: str
    """The chained hash of the last event."""


def head_file(folder: Path, registry: Path) -> Path:
    """Return the path of the head of the registry in the folder ``registry``."""
    return folder / f"head-{hashlib.sha256(os.fsencode(os.path.realpath(registry))).hexdigest()[:16]}.json"


def write_head(path: Path, head: Head, key: Ed25519PrivateKey) -> None:
    """Replace the head atomically."""
    signature = sign(key, _HEAD, _canonical(head))
    write_private(path, json.dumps({**asdict(head), "signature": signature.hex()}).encode() + b"\n")
    sync_folder(path.parent)


def read_head(path: Path, key: Ed25519PublicKey) -> Head | None:
    """Return the head; None if there is none.

    Raises:
        Refused: it is not a head of this installation.
    """
    if not os.path.lexists(path):
        return None
    try:
        facts = json.loads(read_regular(path))
        signature = bytes.fromhex(facts.pop("signature"))
        head = Head(**facts)
        good = is_signed(key, _HEAD, _canonical(head), signature) and type(head.counter) is int
    except (ConfigError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _head_error(path) from error
    if not good:
        raise _head_error(path)
    return head


def _head_error(path: Path) -> Refused:
    return Refused(
        f"{to_printable(path)}: the signed head of the registry was changed", remedy="bring both back from one backup"
    )


def _canonical(head: Head) -> bytes:
    return json.dumps(asdict(head), sort_keys=True, separators=(",", ":")).encode()


def sync_folder(folder: Path) -> None:
    """Sync new names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
