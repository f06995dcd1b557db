"""Literal examples in what a person said: ``slug("A b") -> "a-b"``, or a whole case as JSON."""

from __future__ import annotations

import ast
import builtins
import json
import re
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from collections.abc import Collection

_ARROW = re.compile(r"`?\s*(?:->|=>|→|==|\breturns?\b|\bgives?\b|\b(?:should|must) (?:return|give)\b)\s*`?")
_START = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\(|\{")
_AFTER = re.compile(r"$|[`\s),;]|\.(\s|$)")
_LONGEST = 2000
_MOST = 10


def examples(text: str, names: Collection[str] = ()) -> list[Case]:
    """The examples in a text, in their order; where ``names`` are given, of calls by these alone."""
    found = [*_whole(text), *(case for line in text.splitlines() for case in _arrows(line[:_LONGEST], names))]
    return found[:_MOST]


def _whole(text: str) -> list[Case]:
    """Cases in the form of ``--case``."""
    found: list[Case] = []
    for hit in re.finditer(r"\{", text):
        try:
            told: Any = json.JSONDecoder().raw_decode(text, hit.start())[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict) and set(cast("dict[str, Any]", told)) == {"arguments", "result"}:
            found.append(Case(told["arguments"], told["result"], Level.REQUEST))  # pyright: ignore[reportUnknownArgumentType]  JSON
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
