"""The common parts of uploads, downloads and syncs: their options and the report of their outcome."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from hermes_exec.errors import ProtocolError, UsageError
from hermes_exec.files.errors import path_error
from hermes_exec.files.info import Progress, Skipped, TransferReport
from hermes_exec.guest.files.ignore_patterns import Ignore
from hermes_exec.guest.files.tree_stream import SPECIAL
from hermes_exec.terminal.encoding import describe_kind, encode, validate_callback, validate_choice, validate_flag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_exec.guest.files.tree_receiver import TreeReceiver

Links = Literal["refuse", "skip", "keep"]
LOCAL_CHUNK = 1 << 20
_NAMED = 3


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """The options of a transfer, besides its two paths."""

    progress: Progress | None = None
    verify: bool = True
    parents: bool = True
    links: Links = "refuse"
    ignore: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        """Check values that a type checker may not have seen."""
        validate_callback(self.progress, "progress")
        validate_flag(self.verify, "verify")
        validate_flag(self.parents, "parents")
        validate_choice(self.links, "links", get_args(Links))

    def parse_ignore(self) -> Ignore:
        """Return the ignore patterns, parsed."""
        return Ignore(self.ignore)


def encode_patterns(ignore: Iterable[str | bytes]) -> tuple[bytes, ...]:
    """Return ignore patterns as bytes; a single string is one pattern, not one for each letter."""
    try:
        patterns = [ignore] if isinstance(ignore, str | bytes) else list(ignore)
    except TypeError:
        raise UsageError(f"ignore: {describe_kind(ignore)} is not a list of patterns", remedy='["*.pyc"]') from None
    return tuple(encode(pattern, "ignore") for pattern in patterns)


@dataclass(frozen=True, slots=True)
class TreeOutcome:
    """The result that the receiver of a tree reports at the end, on either side."""

    files: int
    size: int
    outside: list[list[bytes]]
    skipped: list[list[Any]]

    @classmethod
    def from_receiver(cls, receiver: TreeReceiver) -> TreeOutcome:
        """Build the outcome from the receiver of this side."""
        landing = receiver.writer
        return cls(landing.files, landing.bytes, landing.outside, receiver.skipped)

    @classmethod
    def from_answer(cls, answer: dict[str, Any]) -> TreeOutcome:
        """Parse the guest's answer, which is untrusted."""
        try:
            outside = [[bytes(path), bytes(target)] for path, target in answer["outside"]]
            skipped = [[bytes(path), int(why), int(code)] for path, why, code in answer["skipped"]]
            return cls(int(answer["files"]), int(answer["bytes"]), outside, skipped)
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the guest's answer is invalid: {error}") from None

    def to_report(self, what: str, path: str, links: Links) -> TransferReport:
        """Return the report; raise TransferError when entries had to be left out without permission."""
        special: list[Skipped] = []
        unreadable: list[Skipped] = []
        for name, why, code in self.skipped:
            if why == SPECIAL:
                special.append(Skipped(os.fsdecode(name), "neither a file, a folder nor a link"))
            else:
                unreadable.append(Skipped(os.fsdecode(name), os.strerror(code)))
        outside = [
            Skipped(os.fsdecode(name), f"a link to {os.fsdecode(target)}, which may be outside of the tree")
            for name, target in self.outside
        ]
        if unreadable:
            code = next(code for _, why, code in self.skipped if why != SPECIAL)
            raise self._build_skip_error(what, path, unreadable, code, "leave them out by patterns to ignore")
        if outside and links == "refuse":
            remedy = "links=skip leaves such links out, links=keep copies them"
            raise self._build_skip_error(what, path, outside, errno.EXDEV, remedy)
        return TransferReport(self.files - len(outside), self.size, (*special, *outside))

    @staticmethod
    def _build_skip_error(what: str, path: str, entries: list[Skipped], code: int, remedy: str) -> Exception:
        named = "; ".join(f"{entry.path}: {entry.reason}" for entry in entries[:_NAMED])
        more = f" and {len(entries) - _NAMED} more" if len(entries) > _NAMED else ""
        return path_error(what, path, code, named + more, state="everything else was copied", remedy=remedy)


class ProgressMeter:
    """Reports progress: bytes done and in all, files done and in all."""

    def __init__(self, progress: Progress | None, total_bytes: int, total_files: int) -> None:
        self._progress = progress
        self._totals = total_bytes, total_files

    def update(self, done_bytes: int, done_files: int) -> None:
        """Report the progress; totals that were estimated too low grow."""
        if self._progress is not None:
            total_bytes, total_files = self._totals
            self._progress(done_bytes, max(total_bytes, done_bytes), done_files, max(total_files, done_files))


def take_blocks(blocks: Iterable[bytes], size: int = LOCAL_CHUNK // 8) -> list[bytes]:
    """Return the next blocks, about ``size`` bytes; none at the end."""
    taken: list[bytes] = []
    length = 0
    for block in blocks:
        taken.append(block)
        length += len(block)
        if length >= size:
            break
    return taken


def resolve_destination(destination: bytes, name: bytes) -> bytes:
    """Return the path of the file: a destination that ends with a slash is the folder to put it into."""
    if not destination.endswith(b"/"):
        return destination
    return destination + name.rstrip(b"/").rpartition(b"/")[2]
