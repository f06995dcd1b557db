"""The states of files that a conversation keeps, so that its changes can be rolled back."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["absent", "file", "link", "unkept"]
_SHA256 = r"[0-9a-f]{64}"
_DIGEST = re.compile(rf"sha256:{_SHA256}|git:{_SHA256}:[0-9a-f]{{40}}")
_MODE = re.compile(r"[0-7]{1,4}")
_OWNER = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class FileState:
    """What is at a path: a file or a link whose content is kept, nothing, or something that was not kept."""

    kind: Kind | str
    """One of `Kind`, as `__post_init__` checks."""
    digest: str = ""
    """Of a file's content, or of a link's text: ``sha256:HEX``, or ``git:STORE:ID`` in a private repository."""
    mode: str = ""
    """Of a file, in octal digits."""
    owner: str = ""
    """Of a file: the numbers of its user and group."""
    above: str = ""
    """Of an absent file: the nearest folder above it that exists."""
    why: str = ""
    """Why it was not kept."""

    def __post_init__(self) -> None:
        """Check the fields, which a target sent or a log contains.

        Raises:
            ValueError: a field is invalid.
        """
        if self.kind not in get_args(Kind):
            raise ValueError(f"there is no state {self.kind!r} of a file")
        if self.kind in ("file", "link") and not _DIGEST.fullmatch(self.digest):
            raise ValueError("the digest of a file is invalid")
        if self.mode and not _MODE.fullmatch(self.mode):
            raise ValueError("the mode of a file is invalid")
        if self.owner and not _OWNER.fullmatch(self.owner):
            raise ValueError("the owner of a file is invalid")
        if self.above and not self.above.startswith("/"):
            raise ValueError("the folder above a file is invalid")

    @classmethod
    def of_content(cls, content: bytes | None) -> FileState:
        """Return the state of a file with this content; without content, of an absent file."""
        return cls("absent") if content is None else cls("file", f"sha256:{hashlib.sha256(content).hexdigest()}")

    @classmethod
    def parse(cls, record: object) -> FileState:
        """Return the state of a record.

        Raises:
            ValueError: the record is invalid.
        """
        if not isinstance(record, dict):
            raise ValueError("the state of a file is not an object")  # noqa: TRY004  callers handle one error
        fields = cast("dict[str, Any]", record)
        names = ("kind", "digest", "mode", "owner", "above", "why")
        return cls(*(str(fields.get(name, "")) for name in names))

    def to_record(self) -> dict[str, str]:
        """Return the state as an event contains it."""
        fields = {
            "kind": self.kind,
            "digest": self.digest,
            "mode": self.mode,
            "owner": self.owner,
            "above": self.above,
            "why": self.why,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of one file."""

    path: str
    """Absolute, in the target, without links."""
    before: FileState | None
    """None if an earlier change of the same turn has it."""
    after: FileState

    def __post_init__(self) -> None:
        """Check the path, which a target sent or a log contains.

        Raises:
            ValueError: it is not an absolute path without dots.
        """
        parts = self.path.split("/")
        if parts[0] or len(parts) < 2 or any(each in ("", ".", "..") for each in parts[1:]) or "\0" in self.path:
            raise ValueError("the path of a file is invalid")

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> FileChange:
        """Return the change of a record.

        Raises:
            ValueError: the record is invalid.
        """
        before = FileState.parse(record["before"]) if record.get("before") else None
        return cls(str(record.get("path", "")), before, FileState.parse(record.get("after")))

    def to_record(self) -> dict[str, Any]:
        """Return the change as an event contains it."""
        record: dict[str, Any] = {"path": self.path, "after": self.after.to_record()}
        return record | ({"before": self.before.to_record()} if self.before else {})
