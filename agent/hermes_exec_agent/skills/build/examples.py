"""What a person said literally: ``slug("A b") -> "a-b"``, a whole case as JSON, and which files are left with what."""

from __future__ import annotations

import ast
import builtins
import contextlib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.errors import UsageError
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.files import FIELD, NAMED, SENTENCE, Expected, is_written, parse_path
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from collections.abc import Collection

_ARROW = re.compile(r"`?\s*(?:->|=>|→|==|\breturns?\b|\bgives?\b|\b(?:should|must) (?:return|give)\b)\s*`?")
_START = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\(|\{")
_AFTER = re.compile(r"$|[`\s),;]|\.(\s|$)")
_HEADERS = re.compile(r"\bwith (?:the |these )?(?:headers?|columns?|header (?:row|line))\b", re.IGNORECASE)
_LINES = re.compile(r"\bwith (?:the |these )?lines?\b", re.IGNORECASE)
_CONTAINS = re.compile(r"\b(?:with the (?:text|content)|contain(?:s|ing)|that says)\b", re.IGNORECASE)
_TAKEN = re.compile(r"\b(?:read|load|open|pars|from|given|take|accept|input)", re.IGNORECASE)
_QUOTED = re.compile(r"\"([^\"\n]+)\"|`([^`\n]+)`")
_ENDS = re.compile(
    r"\s(?:to|in|into|as|at|for|from|using|where|which|that|then|below|under|sorted|ordered|separated|by|of|with|on|or|one"
    r"|each|but|so|it|leaves|writes)\b|->|\.\s|\n",
    re.IGNORECASE,
)
_NAME = re.compile(r"\w[\w%()/-]*(?: \w[\w%()/-]*){0,2}")
_LONGEST = 2000
_MOST = 10


def examples(text: str, names: Collection[str] = ()) -> list[Case]:
    """The examples in a text, in their order; where ``names`` are given, of calls by these alone.

    What the text says of files that are left holds for each of them.
    """
    found = [*_whole(text), *(case for line in text.splitlines() for case in _arrows(line[:_LONGEST], names))]
    said = said_files(text)
    return [replace(each, files={**fill(said, each.arguments), **each.files}) for each in found[:_MOST]]


def said_files(text: str) -> Expected:
    """The files that a text says are left, and what it says is in them: headers, lines and quoted pieces.

    A path may have fields (``[filename].csv``), which stand for arguments.
    """
    found: Expected = {}
    for sentence in SENTENCE.split(text[: _MOST * _LONGEST]):
        paths = {hit[1] for hit in NAMED.finditer(sentence)}
        if len(paths) != 1 or not is_written(sentence):
            continue
        (path,) = paths
        if (content := _said_content(sentence)) or not _TAKEN.search(sentence):
            found.setdefault(path, {}).update(content)
    return {path: content or {"contains": ""} for path, content in found.items()}


def fill(files: Expected, arguments: dict[str, Any] | list[Any]) -> Expected:
    """The same, with arguments in the place of fields; without those files whose path cannot be told."""
    known = {key.lower(): str(value) for key, value in arguments.items()} if isinstance(arguments, dict) else {}
    found: Expected = {}
    for path, content in files.items():
        with contextlib.suppress(UsageError, KeyError):
            found[parse_path(FIELD.sub(lambda hit: known[hit[0].strip("[]{}<>*").lower()], path))] = content
    return found


def _said_content(sentence: str) -> dict[str, Any]:
    if (hit := _HEADERS.search(sentence)) and (names := _listed(sentence[hit.end() :])):
        return {"contains": names}
    if hit := _LINES.search(sentence):
        return {"lines": [each[1] or each[2] for each in _QUOTED.finditer(sentence, hit.end())]}
    if hit := _CONTAINS.search(sentence):
        return {"contains": [each[1] or each[2] for each in _QUOTED.finditer(sentence, hit.end())]}
    return {}


def _listed(text: str) -> list[str]:
    """The names that a text begins with; none where they are not plain."""
    head = _ENDS.split(text.lstrip(" :"), maxsplit=1)[0]
    names = [each.strip(" `\"'.[]()") for each in re.split(r",|\band\b|&|;", head)]
    return names if all(_NAME.fullmatch(each) for each in names) else []


def _whole(text: str) -> list[Case]:
    """Cases in the form of ``--case``."""
    found: list[Case] = []
    for hit in re.finditer(r"\{", text):
        try:
            told: Any = json.JSONDecoder().raw_decode(text, hit.start())[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict) and not set(cast("dict[str, Any]", told)) - {"arguments", "result", "files"}:
            with contextlib.suppress(UsageError):
                case = Case.read(cast("dict[str, Any]", told), Level.REQUEST)
                found += [case] if case else []
    return found


def _arrows(line: str, names: Collection[str]) -> list[Case]:
    found: list[Case] = []
    for hit in _ARROW.finditer(line):
        arguments = _called(line[: hit.start()], names)
        result = _value(line[hit.end() :])
        if arguments is not None and result is not None:
            found.append(Case(arguments, result[0], Level.REQUEST))
    return found


def _called(text: str, names: Collection[str]) -> Any:
    """The arguments of the call that a text ends with."""
    for hit in reversed(list(_START.finditer(text))):
        try:
            node = ast.parse(text[hit.start() :].strip(" `"), mode="eval").body
            match node:
                case ast.Call(func=ast.Name(id=name)) if not hasattr(builtins, name):
                    if names and name not in names:
                        return None
                    by_place = [ast.literal_eval(each) for each in node.args]
                    by_name = {each.arg: ast.literal_eval(each.value) for each in node.keywords if each.arg}
                    if (by_place and by_name) or len(by_name) != len(node.keywords):
                        return None
                    return _as_json(by_name or by_place)
                case ast.Dict():
                    return _as_json(ast.literal_eval(node))
                case _:
                    continue
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            continue
    return None


def _as_json(value: Any) -> Any:
    """The value if JSON can say it without turning it into another one."""
    plain = json.loads(json.dumps(value, allow_nan=False))
    if plain != value:
        raise ValueError
    return plain


def _value(text: str) -> tuple[Any] | None:
    """The value that a text begins with, of JSON or of Python."""
    try:
        told, end = json.JSONDecoder().raw_decode(text)
        if _AFTER.match(text, end):
            return (told,)
    except (ValueError, RecursionError):
        pass
    for end in range(len(text), 0, -1):
        if _AFTER.match(text, end):
            try:
                return (_as_json(ast.literal_eval(text[:end].strip(" `"))),)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    return None
