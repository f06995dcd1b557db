"""Data files of a skill: those that a case expects, those that a run wrote, and those that a text names.

The gate reads files of a run from its own copy, made after the sandbox ended (regular files alone, no link is
followed), so a skill cannot influence it.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

DATA = "/app/data"
_KINDS = ("equals", "contains", "lines")
_READ = 1 << 20
"""Bytes of one file that are compared; a case cannot expect a larger file."""
_MOST = 20
_DEEPEST = 8
_LONGEST = 65_536

Expected = dict[str, dict[str, Any]]
"""The expected content of files, by their paths below /app/data."""


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file that a run wrote."""

    size: int
    sha256: str
    data: bytes
    """Its beginning."""


def read_left_files(folder: Path) -> dict[str, LeftFile]:
    """Return the files in a folder of ours, by their paths."""
    return {
        each.relative_to(folder).as_posix(): _read(each)
        for each in sorted(folder.rglob("*"))
        if each.is_file() and not each.is_symlink()
    }


def _read(path: Path) -> LeftFile:
    digest, size, first = hashlib.sha256(), 0, b""
    with path.open("rb") as file:
        while piece := file.read(_READ):
            first = first or piece
            size += len(piece)
            digest.update(piece)
    return LeftFile(size, digest.hexdigest(), first)


def parse_expected(value: Any) -> Expected:
    """Parse the files of a case: ``{"report.csv": {"equals": "…"}}``, or ``contains``, or ``lines``; paths are plain.

    Raises:
        UsageError: the value has another form; the message names the error in one line.
    """
    if not isinstance(value, dict) or not value or len(cast("dict[str, Any]", value)) > _MOST:
        raise UsageError(f"the files of a case are an object of 1 to {_MOST} paths", remedy=_EXAMPLE)
    given = cast("dict[str, Any]", value)
    return {parse_path(path): _parse_content(path, content) for path, content in given.items()}


_EXAMPLE = '"files": {"report.csv": {"contains": ["Product,Revenue"]}}'


def parse_path(path: str) -> str:
    """Return the path of a file relative to /app/data.

    Raises:
        UsageError: the path is outside of /app/data, or not a plain path.
    """
    below = path.removeprefix(f"{DATA}/")
    parts = below.split("/")
    if (
        any(part in {"", ".", ".."} for part in parts)
        or len(parts) > _DEEPEST
        or not below.isprintable()
        or len(below) > 255
    ):
        raise UsageError(f"{path[:80]!r} is no file below {DATA}", remedy=f"report.csv, or {DATA}/report.csv")
    return below


def _parse_content(path: str, content: Any) -> dict[str, Any]:
    known = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    if not known or set(known) - set(_KINDS):
        raise UsageError(f"{path[:80]!r} of a case has one of {', '.join(_KINDS)}", remedy=_EXAMPLE)
    for kind, told in known.items():
        listed = [told] if isinstance(told, str) else told
        if kind == "equals" and not isinstance(told, str):
            raise UsageError(f"'equals' of {path[:80]!r} is the whole text of the file")
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):  # pyright: ignore[reportUnknownVariableType]  JSON
            raise UsageError(f"{kind!r} of {path[:80]!r} is a text, or a list of texts")
        if sum(map(len, cast("list[str]", listed))) > _LONGEST:
            raise UsageError(f"{kind!r} of {path[:80]!r} is longer than {_LONGEST} characters")
    return known


def find_difference(expected: Expected, left: Mapping[str, LeftFile]) -> tuple[str, str]:
    """Return the path of the first unexpected file and how it differs; empty if all files are as expected."""
    for path, content in expected.items():
        if path not in left:
            return path, "is not there"
        if wrong := _compare(content, left[path]):
            return path, wrong
    return "", ""


def _compare(content: Mapping[str, Any], file: LeftFile) -> str:
    if file.size > _READ:
        return f"is larger than {_READ} bytes"
    try:
        text = _plain(file.data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return "is no text in UTF-8"
    lines = [each.rstrip() for each in text.split("\n")]
    for kind, told in content.items():
        if kind == "equals" and _plain(told) != text:
            return f"is {text[:200]!r} instead of {_plain(told)[:200]!r}"
        if kind == "contains":
            for each in [told] if isinstance(told, str) else told:
                if _plain(each) not in text:
                    return f"does not contain {each[:200]!r}"
        if kind == "lines":
            rest = iter(lines)
            for each in told.splitlines() if isinstance(told, str) else told:
                if each.rstrip() not in rest:  # the search consumes lines, so their order counts
                    return f"has no line {each[:200]!r} in that order"
    return ""


def _plain(text: str) -> str:
    """Normalize line ends, which depend on the writer, and remove those at the end."""
    return text.replace("\r\n", "\n").removesuffix("\n")


_ENDINGS = (
    "csv|tsv|jsonl|json|ndjson|txt|md|html|htm|xml|yaml|yml|toml|ini|svg|png|jpg|jpeg|gif|pdf|xlsx|docx|zip|tar|tar.gz|gz"
    "|log|sql|db|sqlite|ics|vcf|tex|rst|parquet|dat|out"
)
NAMED = re.compile(
    rf"(?<![\w./@\[\]{{}}<>*~:-])(?:{DATA}/|(?:\./)?data/|\./)?((?:[\w\[\]{{}}<>*-]+/)*[\w\[\]{{}}<>*.-]*[\w\]}}>*]\.(?:{_ENDINGS}))(?![\w/])",
    re.IGNORECASE,
)
FIELD = re.compile(
    r"\[[^\[\]]*\]|\{[^{}]*\}|<[^<>]*>|\*+|(?<![^\W_])(?!README|TO[D]O|CHANGELOG|LICENSE)[A-Z]{3,}(?![^\W_])"
)
"""A placeholder for a part of a name, as in ``[filename].csv`` and ``FILENAME.csv``."""
SENTENCE = re.compile(r"\n\s*\n|(?<=[.!?;])\s+|\n(?=\s*[-*|#>\d])")
_WRITES = re.compile(
    r"\b(writ|wrote|sav(e|ing)|stor(e|ing)|creat|leav(e|ing)|left|export|produc|generat|output|dump|append|put|mak(e|ing)"
    r"|render|record|add(s|ed)? to|schreib|speicher|erstell|erzeug|leg(e|t) )",
    re.IGNORECASE,
)
_READS = re.compile(
    r"\b(read|load|open|pars|from|given|take|accept|input|such as|like|for example|e\.g\.|called|named|instead of|lies"
    r"|lese|aus)",
    re.IGNORECASE,
)
_QUOTED_CALL = re.compile(r"(?<!\w)\w+\((?:[^()\n]|\([^()\n]*\))*\)")


def find_named_files(text: str, known: Collection[str] = ()) -> set[str]:
    """Return patterns of the files below /app/data that a text names as written; ``known`` are the skill's own files.

    A name counts if it is below ``data/``, if its sentence mentions writing, or if the sentence mentions neither
    writing nor reading, in any language; arguments of calls do not count. If a name has a placeholder
    (``[name].csv``), full names with the same suffix are examples of it.
    """
    found: set[str] = set()
    for sentence in SENTENCE.split(text):
        plain = _QUOTED_CALL.sub(" ", sentence)
        writes = is_written(sentence) or _READS.search(plain) is None
        for hit in NAMED.finditer(plain):
            below = hit[0] != hit[1]
            if (writes or below) and hit[1] not in known and posixpath.basename(hit[1]) not in known:
                found.add(FIELD.sub("*", hit[1]))
    endings = {posixpath.splitext(each)[1] for each in found if "*" in each}
    return {each for each in found if "*" in each or posixpath.splitext(each)[1] not in endings}


def is_written(sentence: str) -> bool:
    """Return whether a sentence mentions writing."""
    return _WRITES.search(_QUOTED_CALL.sub(" ", sentence)) is not None


def find_unseen_files(named: Iterable[str], expected: Iterable[Expected]) -> list[str]:
    """Return the ``named`` files that no case checks."""
    seen = [posixpath.basename(path) for files in expected for path in files]
    return sorted(each for each in named if not any(fnmatchcase(path, posixpath.basename(each)) for path in seen))
