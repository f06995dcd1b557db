"""The log: what happened to skills, one event after another, each chained to the one before and signed.

Nothing is ever changed or removed. The chain runs over short lines that hold what a list shows, and each line holds
the hash of its event's body, so that ten thousand skills are listed without reading what was recorded of each.
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

from hermes_exec.config.paths import read_regular, shown, write_private
from hermes_exec.errno_hints import is_full, remedy_at
from hermes_exec.errors import ConfigError, HermesError, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

    from hermes_exec_agent.skills.registry.home import Home


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


class Event(NamedTuple):
    """What a list needs to know of an event."""

    seq: int
    at: float
    """Seconds since 1970."""
    kind: str
    name: str
    """The skill's."""
    version: int
    facts: Mapping[str, Any]
    """Few and short, by the kind of event."""
    body: str
    """SHA-256 of all that was recorded, in hexadecimal."""
    chain: bytes
    """The chained hash up to this event."""


class Log:
    """The events of one registry. Whoever appends holds ``home.locked()``."""

    def __init__(self, home: Home, key: Callable[[], Ed25519PrivateKey]) -> None:
        """``key`` opens the key, once there is something to be verified or signed."""
        self._home = home
        self._key = key
        self._head = head_file(home.keys, home.folder)
        # What was verified stays so while neither the head nor the file is another one.
        self._known: list[Event] = []
        self._key_of_known: tuple[Head | None, int, int, int] | None = None

    def events(self) -> list[Event]:
        """All events, in their order, with chain and head verified.

        Raises:
            Refused: the log was changed, shortened or exchanged.
        """
        return self._verified()

    def body(self, event: Event) -> dict[str, Any]:
        """All that was recorded with an event of ``events``.

        Raises:
            Refused: it was changed, or its signature was.
        """
        with closing(self._open()) as base:
            rows = _all(base, "SELECT body, signature FROM events JOIN bodies USING (seq) WHERE seq = ?", (event.seq,))
        text, signature = rows[0] if rows else (None, None)
        if not isinstance(text, str) or hashlib.sha256(text.encode()).hexdigest() != event.body:
            raise self._changed(f"what was recorded as event {event.seq} was changed")
        if not self._genuine(event, signature):
            raise self._changed(f"event {event.seq} has no good signature")
        found: dict[str, Any] = json.loads(text)
        return found

    def append(self, kind: str, name: str, version: int, facts: Mapping[str, Any], body: Mapping[str, Any]) -> Event:
        """Record an event; when this returns it lasts, and before that it is there whole or not at all.

        Raises:
            Refused: the log was changed by somebody else.
            HermesError: it could not be written.
        """
        events = self._verified(make=True)
        if not events:
            # The log's own name comes first: a head is of this log and no other.
            events = [self._write(None, "created", "", 0, {"registry": os.urandom(16).hex()}, {})]
            self._advance(events[0], events[0])
        event = self._write(events[-1], kind, name, version, facts, body)
        self._advance(events[0], event)
        return event

    def _write(
        self,
        last: Event | None,
        kind: str,
        name: str,
        version: int,
        facts: Mapping[str, Any],
        body: Mapping[str, Any],
    ) -> Event:
        text = _json(body)
        seq, at, digest = (last.seq if last else 0) + 1, time.time(), hashlib.sha256(text.encode()).hexdigest()
        line = _json([seq, at, kind, name, version, facts, digest])
        event = Event(seq, at, kind, name, version, facts, digest, _chained(last.chain if last else b"", line))
        signature = sign(self._key(), _EVENT, _stamp(event))
        try:
            with closing(self._open()) as base:
                base.execute("BEGIN IMMEDIATE")
                base.execute("INSERT INTO events VALUES (?, ?, ?)", (seq, line, signature))
                base.execute("INSERT INTO bodies VALUES (?, ?)", (seq, text))
                base.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._unwritten("nothing was recorded", error) from error
        return event

    def _advance(self, first: Event, last: Event) -> None:
        folder = os.path.realpath(self._home.folder)
        head = Head(str(first.facts["registry"]), folder, last.seq, last.chain.hex())
        try:
            write_head(self._head, head, self._key())
        except OSError as error:
            raise HermesError(
                f"{shown(self._head)}: the signed head cannot be written: {error.strerror}",
                state="it is recorded, and the head follows with the next event",
            ) from error

    def _signed_head(self) -> Head | None:
        if not os.path.lexists(self._head):
            return None
        head = read_head(self._head, self._key().public_key())
        if head is not None and head.folder != os.path.realpath(self._home.folder):
            raise self._changed("its signed head is that of another registry")
        return head

    def _verified(self, *, make: bool = False) -> list[Event]:
        head = self._signed_head()
        if not self._home.log.exists():
            if head is not None:
                raise self._changed("the log is gone")
            if make:
                self._create()
            return []
        seen = self._home.log.stat()
        key = (head, seen.st_ino, seen.st_size, seen.st_mtime_ns)
        if key == self._key_of_known:
            return self._known
        events = self._read()
        if head is None and len(events) > 1:
            head = self._signed_head()  # the first one was written while we read
        self._check(events, head)
        if make and events and (head is None or head.counter < len(events)):
            self._advance(events[0], events[-1])
        self._known, self._key_of_known = events, key
        return events

    def _read(self) -> list[Event]:
        """The events as they stand there; nothing is verified yet but their order."""
        with closing(self._open()) as base:
            rows = _all(base, "SELECT seq, line FROM events ORDER BY seq")
        events: list[Event] = []
        chain = b""
        try:
            parsed = _parsed(f"[{','.join(line for _, line in rows)}]")
            for place, ((seq, line), (number, *rest)) in enumerate(zip(rows, parsed, strict=True), 1):
                chain = _chained(chain, line)
                at, kind, name, version, facts, body = rest
                events.append(Event(number, at, kind, name, version, facts, body, chain))
                if seq != place or number != place:
                    raise self._changed("events are missing, doubled or in another order")
        except (ValueError, TypeError, IndexError, KeyError, RecursionError) as error:
            raise self._changed("a line of the log makes no sense") from error
        return events

    def _check(self, events: Sequence[Event], head: Head | None) -> None:
        """Compare the log with its head. After a crash between an event and its head, the log is ahead."""
        counter = head.counter if head is not None else 0
        if counter > len(events):
            raise self._changed(f"it is older than it was: {counter} events were recorded, and {len(events)} are there")
        if head is None and len(events) > 1:
            raise self._changed("its signed head is gone")
        if head is not None and events[counter - 1].chain.hex() != head.chain:
            raise self._changed("events were changed, or it is another one")
        for event in events[counter:]:
            with closing(self._open()) as base:
                ((signature,),) = _all(base, "SELECT signature FROM events WHERE seq = ?", (event.seq,))
            if not self._genuine(event, signature):
                raise self._changed(f"event {event.seq} is not ours")

    def _genuine(self, event: Event, signature: object) -> bool:
        return isinstance(signature, bytes) and signed(self._key().public_key(), _EVENT, _stamp(event), signature)

    def _create(self) -> None:
        """Make an empty log under another name first: nobody ever sees half of one."""
        draft = self._home.log.with_name(f".{self._home.log.name}.new")
        try:
            draft.unlink(missing_ok=True)
            os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with closing(_connect(draft)) as base:
                base.executescript(_SCHEMA)
            draft.rename(self._home.log)
        except (OSError, sqlite3.Error) as error:
            raise self._unwritten("no registry could be made", error) from error

    def _open(self) -> sqlite3.Connection:
        path = self._home.log
        try:
            with path.open("rb") as file:
                start = file.read(100)
            # A write-ahead log would be a second file that the chain knows nothing of.
            if start[:16] != b"SQLite format 3\0" or start[18:20] != b"\1\1" or path.is_symlink():
                raise self._changed("it is no database of ours")
            base = _connect(path)
            ((application,),) = _all(base, "PRAGMA application_id")
        except OSError as error:
            remedy = remedy_at(path, error.errno, "bring registry and key back from one backup")
            raise Refused(f"{shown(path)}: the registry cannot be read: {error.strerror}", remedy=remedy) from error
        except sqlite3.Error as error:
            raise self._changed(f"it cannot be read ({error})") from error
        if application != _APPLICATION:
            base.close()
            raise self._changed("it is no database of ours")
        return base

    def _unwritten(self, what: str, error: Exception) -> HermesError:
        full = is_full(self._home.folder)
        code = errno.ENOSPC if full else getattr(error, "errno", None)
        remedy = remedy_at(self._home.folder, code, "look at free space and rights there")
        return HermesError(f"{shown(self._home.log)}: {what}: {error}", remedy=remedy)

    def _changed(self, how: str) -> Refused:
        return Refused(
            f"{shown(self._home.log)}: the registry cannot be trusted: {how}",
            remedy="bring registry and key back from one backup, or move both away and import bundles",
        )


def _connect(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_PATIENCE_S, isolation_level=None)
    for setting in ("trusted_schema = OFF", "synchronous = EXTRA", "journal_mode = DELETE", "cell_size_check = ON"):
        base.execute(f"PRAGMA {setting}")
    return base


def _all(base: sqlite3.Connection, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    try:
        return base.execute(query, values).fetchall()
    except (sqlite3.Error, OverflowError) as error:
        raise Refused(f"the registry cannot be read: {error}", remedy="bring it back from a backup") from error


def _chained(chain: bytes, line: str) -> bytes:
    """The hash of what was before and of a line. What was before is 32 bytes, or nothing at the first line."""
    return hashlib.sha256(_CHAIN + chain + line.encode()).digest()


def _stamp(event: Event) -> bytes:
    return event.seq.to_bytes(8) + event.chain


def _parsed(text: str) -> Any:
    """Many lines at once, by the parser that is twice as fast; it knows no half of a surrogate pair, and json does."""
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
