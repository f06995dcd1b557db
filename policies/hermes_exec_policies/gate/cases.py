"""Test cases: arguments of a skill, and the result and the data files that it must produce.

The gate reads files of a run from its own copy, made after the sandbox ended (regular files alone, no link is
followed), so a skill cannot influence it.
"""

from __future__ import annotations

import hashlib
import json
import math
import posixpath
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.errors import UsageError
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path


DATA = "/app/data"
_KINDS = ("equals", "contains", "lines")
_READ = 1 << 20
"""Bytes of one file that are compared; a case cannot expect a larger file."""
_MOST_FILES = 20
_DEEPEST = 8
_LONGEST_TEXT = 65_536
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
    """Return the files in a folder of this process, by their paths."""
    return {
        each.relative_to(folder).as_posix(): _read(each)
        for each in sorted(folder.rglob("*"))
        if each.is_file() and not each.is_symlink()
    }


def read_texts(told: Any) -> dict[str, LeftFile]:
    """Return files by their paths from texts that a process in the sandbox reported."""
    texts = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    data = {path: str(text).encode(errors="replace") for path, text in texts.items()}
    return {path: LeftFile(len(each), hashlib.sha256(each).hexdigest(), each) for path, each in data.items()}


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
    if not isinstance(value, dict) or not value or len(cast("dict[str, Any]", value)) > _MOST_FILES:
        raise UsageError(f"the files of a case are an object of 1 to {_MOST_FILES} paths", remedy=_EXAMPLE)
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
        raise UsageError(f"{path[:80]!r} is not a file below {DATA}", remedy=f"report.csv, or {DATA}/report.csv")
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
        if sum(map(len, cast("list[str]", listed))) > _LONGEST_TEXT:
            raise UsageError(f"{kind!r} of {path[:80]!r} is longer than {_LONGEST_TEXT} characters")
    return known


def find_difference(expected: Expected, left: Mapping[str, LeftFile]) -> tuple[str, str]:
    """Return the path of the first unexpected file and how it differs; empty if all files are as expected."""
    for path, content in expected.items():
        if path not in left:
            return path, "does not exist"
        if wrong := _compare(content, left[path]):
            return path, wrong
    return "", ""


def _compare(content: Mapping[str, Any], file: LeftFile) -> str:
    if file.size > _READ:
        return f"is larger than {_READ} bytes"
    try:
        text = _normalize(file.data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    lines = [each.rstrip() for each in text.split("\n")]
    for kind, told in content.items():
        if kind == "equals" and _normalize(told) != text:
            return f"is {text[:200]!r} instead of {_normalize(told)[:200]!r}"
        if kind == "contains":
            for each in [told] if isinstance(told, str) else told:
                if _normalize(each) not in text:
                    return f"does not contain {each[:200]!r}"
        if kind == "lines":
            rest = iter(lines)
            for each in told.splitlines() if isinstance(told, str) else told:
                if each.rstrip() not in rest:  # the search consumes lines, so their order counts
                    return f"has no line {each[:200]!r} in that order"
    return ""


def _normalize(text: str) -> str:
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


_LONGEST_REASON = 300
"""The most characters of a reason."""
_CLOSE = 1e-9
_EXACT = 2**53
"""The bound up to which floating-point numbers represent every integer."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call, its expected result, and the files that it must write."""

    arguments: dict[str, Any] | list[Any]
    result: Any
    source: Level
    anything: bool = False
    """Whether any result is accepted: the call failed in use. Such a case does not strengthen the evidence."""
    files: Expected = field(default_factory=dict[str, dict[str, Any]])
    """The expected content of the files that it writes, by their paths below /app/data."""
    returns: bool = True
    """Whether the case has an expected result; a case with files may have none."""
    constant: str = ""
    """Why the result may be the same for all arguments."""

    @property
    def has_known_result(self) -> bool:
        """Whether it shows what is right: a test's own result may be false, and a call that failed in use has none."""
        return self.source != Level.SELF_TESTED and not self.anything

    def facts(self) -> dict[str, Any]:
        """Return the case as JSON data for the evidence."""
        found: dict[str, Any] = {"arguments": self.arguments, "source": str(self.source)}
        found |= {"result": self.result} if self.returns else {}
        found |= {"files": self.files} if self.files else {}
        return found | ({"constant": self.constant} if self.constant else {})

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Case:
        """Create a case from the output of ``facts``."""
        return cls(
            facts["arguments"], facts.get("result"), Level(facts["source"]), files=dict(facts.get("files") or {}),
            returns="result" in facts, constant=str(facts.get("constant", "")),
        )  # fmt: skip

    def accepts(self, result: Any, left: Mapping[str, LeftFile]) -> bool:
        """Return whether the result and the written files are the expected ones."""
        returned = self.anything or not self.returns or is_same(result, self.result)
        return returned and not any(find_difference(self.files, left))

    @classmethod
    def parse(cls, text: str, source: Level = Level.PERSON) -> Case:
        """Parse a case: ``{"arguments": {…}, "result": …, "files": {"report.csv": {"contains": …}}}``.

        Raises:
            UsageError: it is not valid.
        """
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            told = None
        found = cls.from_json(told, source) if isinstance(told, dict) else None  # pyright: ignore[reportUnknownArgumentType]  JSON
        if found is None:
            raise UsageError(
                f"{text[:60]!r} is not a case", remedy='{"arguments": {"rows": [1]}, "result": 1}, as JSON'
            )
        return found

    @classmethod
    def from_json(cls, told: Mapping[str, Any], source: Level) -> Case | None:
        """Create a case from a JSON object with arguments, and a result or files; None if it has neither.

        Raises:
            UsageError: its arguments or its files are invalid.
        """
        arguments = told.get("arguments")
        if arguments is None or not told.keys() & {"result", "files"}:
            return None
        if not isinstance(arguments, dict | list):
            raise UsageError("the arguments of a case are an object or a list")
        files = parse_expected(told["files"]) if told.get("files") else {}
        if not files and "result" not in told:
            return None
        constant = " ".join(str(told.get("constant") or "").split())[:_LONGEST_REASON]
        return cls(
            arguments,  # pyright: ignore[reportUnknownArgumentType]  JSON
            told.get("result"),
            source,
            files=files,
            returns="result" in told,
            constant=constant,
        )


def strongest_level(cases: Sequence[Case]) -> Level:
    """Return the level of evidence of passed cases; only those that the skill's author has not seen count."""
    return max((case.source for case in cases if case.source.unseen), key=list(Level).index, default=Level.SELF_TESTED)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; floating-point numbers approximately. ``true`` is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        if (isinstance(one, int) and isinstance(other, int)) or _is_large(one) or _is_large(other):
            return one == other
        # The tolerance is relative, unless ``other`` is 0: an absolute one would accept any small number for 6e-34.
        try:
            return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=0 if other else _CLOSE)
        except OverflowError:  # an integer beyond the range of floats equals no float
            return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  JSON
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))  # pyright: ignore[reportUnknownArgumentType]  JSON
    return type(one) is type(other) and bool(one == other)  # pyright: ignore[reportUnknownArgumentType]  JSON


def _is_large(value: float) -> bool:
    """Return whether a value is an integer that floating-point numbers may not represent."""
    return isinstance(value, int) and abs(value) > _EXACT
