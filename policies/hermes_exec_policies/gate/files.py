"""Files of a skill: those that a case expects, those that a run left, and those that a text names.

What a run left is read by the gate from its own copy, made after the sandbox ended (plain files alone, no link is
followed), so a skill has no say in it.
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
"""Bytes of one file that are compared; a larger one is no case's."""
_MOST = 20
_DEEPEST = 8
_LONGEST = 65_536

Expected = dict[str, dict[str, Any]]
"""By paths below /app/data: what is in the file."""


@dataclass(frozen=True, slots=True)
class LeftFile:
    """A file that a run left."""

    size: int
    sha256: str
    data: bytes
    """Its beginning."""


def read_left_files(folder: Path) -> dict[str, LeftFile]:
    """The files in a folder of ours, by their paths."""
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
    """The files of a case: ``{"report.csv": {"equals": "…"}}``, or ``contains``, or ``lines``; with plain paths.

    Raises:
        UsageError: it is something else; one line says what.
    """
    if not isinstance(value, dict) or not value or len(cast("dict[str, Any]", value)) > _MOST:
        raise UsageError(f"the files of a case are an object of 1 to {_MOST} paths", remedy=_EXAMPLE)
    given = cast("dict[str, Any]", value)
    return {parse_path(path): _parse_content(path, content) for path, content in given.items()}


_EXAMPLE = '"files": {"report.csv": {"contains": ["Product,Revenue"]}}'


def parse_path(path: str) -> str:
    """The path of a file below /app/data, without that folder.

    Raises:
        UsageError: it is not below it, or no plain path.
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
    """The first file that is not what a case expects, and what is wrong with it; empty where all of them are."""
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
                if each.rstrip() not in rest:  # takes from it up to the line, so their order counts
                    return f"has no line {each[:200]!r} in that order"
    return ""


def _plain(text: str) -> str:
    """The text with line ends of one kind, and none at its end: what wrote it has its own."""
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
"""What stands for a part of a name, as in ``[filename].csv`` and ``FILENAME.csv``."""
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
    """The files below /app/data that a text says are written, as patterns; ``known`` are files that a skill brings.

    A name counts where it is given below ``data/``, where its sentence speaks of writing, and where that speaks neither
    of writing nor of reading, in whatever language; the arguments of calls do not. Where a part of a name stands for
    others (``[name].csv``), full names of the same ending are its examples.
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
    """Whether a sentence speaks of writing."""
    return _WRITES.search(_QUOTED_CALL.sub(" ", sentence)) is not None


def find_unseen_files(named: Iterable[str], expected: Iterable[Expected]) -> list[str]:
    """Those of the ``named`` files that no case looks at."""
    seen = [posixpath.basename(path) for files in expected for path in files]
    return sorted(each for each in named if not any(fnmatchcase(path, posixpath.basename(each)) for path in seen))
