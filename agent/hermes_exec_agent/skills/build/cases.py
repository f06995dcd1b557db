"""Test cases that a skill must pass and that were not derived from it: from the person's words, or by a model."""

from __future__ import annotations

import ast
import builtins
import contextlib
import json
import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.errors import UsageError
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import complete
from hermes_exec_agent.skills.build.draft import CASES_PROMPT, UnreadableReply, describe_cases, parse_json_object
from hermes_exec_policies.gate.cases import FIELD, NAMED, SENTENCE, Case, Expected, is_written, parse_path
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.skills.registry.record import Version


_log = logging.getLogger("hermes_exec.skills")
_MOST = 5
_TEXTS = {"type": "array", "items": {"type": "string"}}
FILES: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "properties": {"equals": {"type": "string"}, "contains": _TEXTS, "lines": _TEXTS},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "cases": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"arguments": {"type": "object"}, "result": {}, "files": FILES},
                "required": ["arguments"],
            },
        },
        "constant": {"type": "string"},
    },
    "required": ["cases"],
}


async def request_cases(
    model: Model, task: str, request: str, signature: str, schema: dict[str, Any], known: Sequence[Case] = ()
) -> list[Case]:
    """Request cases from a model that sees the request and the function's signature, in a context of its own.

    Cases with the arguments of a ``known`` one are left out, as the function's author may have seen that. Without a
    usable answer there are none; the evidence is weaker then, and its level says so.
    """
    prompt = [
        Message("system", CASES_PROMPT),
        Message("user", describe_cases(task, request, signature)),
    ]
    try:
        reply = await complete(model, prompt, schema=SCHEMA)
        answer = parse_json_object(reply.message.content)
    except (ModelError, UnreadableReply) as error:
        _log.warning("no held-out cases could be had: %s", error)
        return []
    listed, constant = answer.get("cases"), answer.get("constant")
    if not isinstance(listed, list):
        return []
    found = [case for each in listed if (case := _parse_case(each, schema)) is not None]  # pyright: ignore[reportUnknownVariableType]  JSON
    seen = [_bind_arguments(schema, each.arguments) for each in known]
    new = [each for each in found if each.arguments not in seen][:_MOST]
    return [replace(each, constant=" ".join(constant.split())) for each in new] if isinstance(constant, str) else new


def derive_file_case(found: Sequence[Case], known: Sequence[Case], request: str) -> list[Case]:
    """Return the request's statements about files as a case with arguments of ``found``, if it has no example."""
    if not found or any(each.source is Level.REQUEST for each in known):
        return []
    case = max(found, key=lambda each: bool(each.files))
    files = fill_fields(parse_expected_files(request), case.arguments)
    return [Case(case.arguments, None, Level.REQUEST, files=files, returns=False)] if files else []


def list_required(version: Version, given: Sequence[Case], request: str) -> list[Case]:
    """Return the cases that a change of a version must pass: those of the version, with newer ones in their stead.

    Args:
        version: a registered one, whose record has the cases that it passed.
        given: a person's cases, of any skill.
        request: the person's words; examples that call this skill by its name are cases of it.
    """
    evidence: dict[str, Any] = version.evidence.get("evidence") or {}
    recorded: list[dict[str, Any]] = list(evidence.get("held") or ())
    names = {version.function, version.module} - {"run"}
    cases: dict[str, Case] = {}
    for case in (*map(Case.from_facts, recorded), *given, *parse_examples(request, names)):
        if (arguments := _bind_arguments(version.schema, case.arguments)) is not None:
            cases[json.dumps(arguments, sort_keys=True)] = case
    return list(cases.values())


def _bind_arguments(schema: Mapping[str, Any], arguments: dict[str, Any] | list[Any]) -> dict[str, Any] | None:
    """Return the arguments by name, if the skill accepts them."""
    from jsonschema import Draft202012Validator

    if isinstance(arguments, list):
        names = list(schema.get("properties", {}))
        if len(arguments) > len(names):
            return None
        arguments = dict(zip(names, arguments, strict=False))
    checker: Any = Draft202012Validator(dict(schema))
    return arguments if checker.is_valid(arguments) else None


def _parse_case(value: Any, schema: dict[str, Any]) -> Case | None:
    from jsonschema import Draft202012Validator

    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    files: Any = fields.get("files")
    if isinstance(files, dict):
        fields = {
            **fields,
            "files": {strip_data_folder(path): content for path, content in cast("dict[str, Any]", files).items()},
        }
        if files and fields.get("result") is None:  # a function that leaves a file may return anything
            fields.pop("result", None)
    try:
        case = Case.from_json({**fields, "constant": ""}, Level.SEPARATE)
    except UsageError:
        return None
    checker: Any = Draft202012Validator(schema)
    # Arguments that the function does not accept have no known result.
    return case if case and isinstance(case.arguments, dict) and checker.is_valid(case.arguments) else None


def strip_data_folder(path: str) -> str:
    """Return the path below the folder of a skill's data, which people call ``data``."""
    return path.removeprefix("./").removeprefix("data/")


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
_MOST_EXAMPLES = 10


def parse_examples(text: str, names: Collection[str] = ()) -> list[Case]:
    """Return the examples in a text, in order; with ``names``, those that call one of these alone.

    The text's statements about files apply to each of them.
    """
    found = [
        *_parse_json_cases(text),
        *(case for line in text.splitlines() for case in _parse_arrows(line[:_LONGEST], names)),
    ]
    expected = parse_expected_files(text)
    return [
        replace(each, files={**fill_fields(expected, each.arguments), **each.files}) for each in found[:_MOST_EXAMPLES]
    ]


def parse_expected_files(text: str) -> Expected:
    """Return the files that a text says are left, with their content: headers, lines and quoted pieces.

    A path may have fields (``[filename].csv``), which stand for arguments.
    """
    found: Expected = {}
    for sentence in SENTENCE.split(text[: _MOST_EXAMPLES * _LONGEST]):
        paths = {hit[1] for hit in NAMED.finditer(sentence)}
        if len(paths) != 1 or not is_written(sentence):
            continue
        (path,) = paths
        if (content := _parse_content(sentence)) or not _TAKEN.search(sentence):
            found.setdefault(path, {}).update(content)
    return {path: content or {"contains": ""} for path, content in found.items()}


def fill_fields(files: Expected, arguments: dict[str, Any] | list[Any]) -> Expected:
    """Replace fields in paths by arguments; files whose path stays unknown are left out."""
    known = {key.lower(): str(value) for key, value in arguments.items()} if isinstance(arguments, dict) else {}
    found: Expected = {}
    for path, content in files.items():
        with contextlib.suppress(UsageError, KeyError):
            found[parse_path(FIELD.sub(lambda hit: known[hit[0].strip("[]{}<>*").lower()], path))] = content
    return found


def _parse_content(sentence: str) -> dict[str, Any]:
    if (hit := _HEADERS.search(sentence)) and (names := _parse_names(sentence[hit.end() :])):
        return {"contains": names}
    if hit := _LINES.search(sentence):
        return {"lines": [each[1] or each[2] for each in _QUOTED.finditer(sentence, hit.end())]}
    if hit := _CONTAINS.search(sentence):
        return {"contains": [each[1] or each[2] for each in _QUOTED.finditer(sentence, hit.end())]}
    return {}


def _parse_names(text: str) -> list[str]:
    """Return the names that a text begins with; none if they are not plain."""
    head = _ENDS.split(text.lstrip(" :"), maxsplit=1)[0]
    names = [each.strip(" `\"'.[]()") for each in re.split(r",|\band\b|&|;", head)]
    return names if all(_NAME.fullmatch(each) for each in names) else []


def _parse_json_cases(text: str) -> list[Case]:
    """Return the cases in a text that have the form of ``--case``."""
    found: list[Case] = []
    for hit in re.finditer(r"\{", text):
        try:
            value: Any = json.JSONDecoder().raw_decode(text, hit.start())[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and not set(cast("dict[str, Any]", value)) - {"arguments", "result", "files"}:
            with contextlib.suppress(UsageError):
                case = Case.from_json(cast("dict[str, Any]", value), Level.REQUEST)
                found += [case] if case else []
    return found


def _parse_arrows(line: str, names: Collection[str]) -> list[Case]:
    found: list[Case] = []
    for hit in _ARROW.finditer(line):
        arguments = _parse_call(line[: hit.start()], names)
        result = _parse_value(line[hit.end() :])
        if arguments is not None and result is not None:
            found.append(Case(arguments, result[0], Level.REQUEST))
    return found


def _parse_call(text: str, names: Collection[str]) -> Any:
    """Return the arguments of the call that a text ends with."""
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
    """Return the value if JSON represents it without changing it."""
    plain = json.loads(json.dumps(value, allow_nan=False))
    if plain != value:
        raise ValueError
    return plain


def _parse_value(text: str) -> tuple[Any] | None:
    """Return the value that a text begins with, as JSON or Python."""
    try:
        value, end = json.JSONDecoder().raw_decode(text)
        if _AFTER.match(text, end):
            return (value,)
    except (ValueError, RecursionError):
        pass
    for end in range(len(text), 0, -1):
        if _AFTER.match(text, end):
            try:
                return (_as_json(ast.literal_eval(text[:end].strip(" `"))),)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    return None
