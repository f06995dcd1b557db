"""Changes of texts: replacements of one string by another, and patches in the form V4A, which many models write.

A hunk is found by its lines alone, first verbatim, then without the blanks at their ends: models get blanks wrong, and
line numbers are not part of the form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from hermes_exec.errors import UsageError

_BEGIN, _END, _EOF = "*** Begin Patch", "*** End Patch", "*** End of File"
_ADD, _DELETE, _UPDATE, _MOVE = "*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "


@dataclass(frozen=True, slots=True)
class FileChange:
    """The new content of a file; ``text`` is None if it is deleted."""

    text: str | None
    moved: str = ""
    """Its new path, if it is moved."""
    summary: str = ""


class PatchOperation(Protocol):
    """One change of one file."""

    @property
    def path(self) -> str:
        """The file's path."""
        ...

    def change(self, text: str | None) -> FileChange:
        """Return the file's new content, given its current text; None if it does not exist.

        Raises:
            UsageError: the change does not fit the file.
        """
        ...


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace one string by another."""

    path: str
    old: str
    new: str
    everywhere: bool = False

    def change(self, text: str | None) -> FileChange:
        """Return the text with the new string."""
        if text is None:
            raise UsageError(f"there is no file {self.path}", remedy="write_file makes one")
        if not self.old or self.old == self.new:
            raise UsageError("old_string is empty, or the same as new_string")
        count = text.count(self.old)
        if not count:
            raise UsageError(f"old_string is not in {self.path}", remedy="read_file, and copy it without line numbers")
        if count > 1 and not self.everywhere:
            raise UsageError(
                f"old_string is {count} times in {self.path}", remedy="more lines around it, or replace_all"
            )
        return FileChange(text.replace(self.old, self.new), summary=f"{count} replaced")


@dataclass(frozen=True, slots=True)
class Add:
    """A new file."""

    path: str
    text: str

    def change(self, text: str | None) -> FileChange:
        """Return the new text."""
        if text is not None:
            raise UsageError(f"{self.path} is there already", remedy=f"{_UPDATE}{self.path}")
        return FileChange(self.text, summary="new")


@dataclass(frozen=True, slots=True)
class Delete:
    """A deleted file."""

    path: str

    def change(self, text: str | None) -> FileChange:
        """Return a deletion."""
        if text is None:
            raise UsageError(f"there is no file {self.path} to delete")
        return FileChange(None)


@dataclass(slots=True)
class Hunk:
    """Lines of a file, and their replacement."""

    anchors: list[str] = field(default_factory=list[str])
    """Lines before it, in order, that are looked for first."""
    old: list[str] = field(default_factory=list[str])
    new: list[str] = field(default_factory=list[str])
    last: bool = False
    """Whether it is at the end of the file."""


@dataclass(slots=True)
class Update:
    """A changed file."""

    path: str
    moved: str = ""
    hunks: list[Hunk] = field(default_factory=list[Hunk])

    def change(self, text: str | None) -> FileChange:
        """Return the text with every hunk applied."""
        if text is None:
            raise UsageError(f"there is no file {self.path} to update", remedy=f"{_ADD}{self.path}")
        newline = "\r\n" if "\r\n" in text else "\n"
        lines = text.replace("\r\n", "\n").split("\n")
        at = 0
        for number, hunk in enumerate(self.hunks, 1):
            for anchor in hunk.anchors:
                found = _find(lines, [anchor], at)
                at = found + 1 if found >= 0 else at
            place = _place(lines, hunk, at)
            if place < 0:
                wanted = "\n".join(hunk.old[:5])
                raise UsageError(
                    f"hunk {number} does not fit {self.path}; there are no such lines:\n{wanted}",
                    remedy="read_file, and copy the lines as they are",
                )
            lines[place : place + len(hunk.old)] = hunk.new
            at = place + len(hunk.new)
        return FileChange(newline.join(lines), self.moved, f"{len(self.hunks)} hunks")


def _place(lines: list[str], hunk: Hunk, at: int) -> int:
    if not hunk.old:  # lines to add after the anchor, or at the end
        return at if hunk.anchors and not hunk.last else len(lines) - (1 if lines[-1] == "" else 0)
    if hunk.last:
        end = len(lines) - (1 if lines[-1] == "" else 0) - len(hunk.old)
        if end >= at and _find(lines[: end + len(hunk.old)], hunk.old, end) == end:
            return end
    found = _find(lines, hunk.old, at)
    return found if found >= 0 else _find(lines, hunk.old, 0)


def _find(lines: list[str], wanted: list[str], start: int) -> int:
    for plain in (str, str.rstrip, str.strip):
        look = [plain(each) for each in wanted]
        for at in range(start, len(lines) - len(wanted) + 1):
            if [plain(each) for each in lines[at : at + len(wanted)]] == look:
                return at
    return -1


def parse(text: str) -> list[PatchOperation]:
    """Parse a patch into changes.

    Raises:
        UsageError: the text is not a patch; the message names the line.
    """
    lines = text.strip("\n").split("\n")
    if not lines or lines[0].strip() != _BEGIN:
        raise UsageError(f"a patch begins with {_BEGIN!r}")
    if lines[-1].strip() != _END:
        raise UsageError(f"a patch ends with {_END!r}", remedy="send all of it")
    found: list[PatchOperation] = []
    at = 1
    while at < len(lines) - 1:
        line = lines[at]
        end = next(each for each in range(at + 1, len(lines)) if lines[each].startswith((_ADD, _DELETE, _UPDATE, _END)))
        found.append(_operation(line, lines[at + 1 : end], at + 1))
        at = end
    if not found:
        raise UsageError("the patch changes nothing", remedy=f"{_UPDATE}PATH, {_ADD}PATH or {_DELETE}PATH")
    return found


def _operation(line: str, body: list[str], number: int) -> PatchOperation:
    if line.startswith(_DELETE):
        return Delete(line.removeprefix(_DELETE).strip())
    if line.startswith(_ADD):
        bad = next((each for each in body if each and not each.startswith("+")), None)
        if bad is not None:
            raise UsageError(f"each line of a new file begins with +, and this does not: {bad[:60]!r}")
        return Add(line.removeprefix(_ADD).strip(), "".join(f"{each[1:]}\n" for each in body))
    if not line.startswith(_UPDATE):
        raise UsageError(f"line {number} of the patch should name a file: {line[:60]!r}")
    update = Update(line.removeprefix(_UPDATE).strip())
    if body and body[0].startswith(_MOVE):
        update.moved = body.pop(0).removeprefix(_MOVE).strip()
    while body and not body[-1]:  # blank lines between two files
        body.pop()
    _hunks(update, body)
    if not update.hunks and not update.moved:
        raise UsageError(f"nothing is to change in {update.path}", remedy="lines that begin with - and +")
    return update


def _hunks(update: Update, body: list[str]) -> None:
    hunk = Hunk()
    for line in [*body, "@@"]:
        if line.startswith("@@"):
            if hunk.old or hunk.new:
                update.hunks.append(hunk)
                hunk = Hunk()
            if anchor := line[2:].removesuffix("@@").strip():
                hunk.anchors.append(anchor)
        elif line == _EOF:
            hunk.last = True
        elif line.startswith("+"):
            hunk.new.append(line[1:])
        elif line.startswith("-"):
            hunk.old.append(line[1:])
        elif line.startswith(" ") or not line:
            hunk.old.append(line[1:])
            hunk.new.append(line[1:])
        else:
            raise UsageError(f"a line of a hunk begins with a blank, + or -, and this does not: {line[:60]!r}")
