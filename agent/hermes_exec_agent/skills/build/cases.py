"""Held-out cases: what a skill has to hold that was not made from it."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from hermes_exec.errors import UsageError
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.whole_reply import complete
from hermes_exec_agent.skills.build import prompts
from hermes_exec_agent.skills.build.draft import Unreadable, loaded
from hermes_exec_agent.skills.build.examples import examples, fill, said_files
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


async def separate(
    model: Model, task: str, request: str, signature: str, schema: dict[str, Any], known: Sequence[Case] = ()
) -> list[Case]:
    """Cases by a model that sees the request and how the function is called, in a context of its own.

    Those with the arguments of a ``known`` case are left out, as the author of the function may have seen that one.
    Without an answer that can be used there are none: the evidence is weaker then, and says so.
    """
    asked = [
        Message("system", prompts.CASES),
        Message("user", prompts.asked_for(task, request, signature)),
    ]
    try:
        reply = await complete(model, asked, schema=SCHEMA)
        answer = loaded(reply.message.content)
    except (ModelError, Unreadable) as error:
        _log.warning("no held-out cases could be had: %s", error)
        return []
    told, constant = answer.get("cases"), answer.get("constant")
    if not isinstance(told, list):
        return []
    found = [case for each in told if (case := _case(each, schema)) is not None]  # pyright: ignore[reportUnknownVariableType]  JSON
    seen = [_taken(schema, each.arguments) for each in known]
    new = [each for each in found if each.arguments not in seen][:_MOST]
    return [replace(each, constant=" ".join(constant.split())) for each in new] if isinstance(constant, str) else new


def said_of(found: Sequence[Case], known: Sequence[Case], request: str) -> list[Case]:
    """What a request says of files, as a case with arguments of the separate context where it has no example itself."""
    if not found or any(each.source is Level.REQUEST for each in known):
        return []
    case = max(found, key=lambda each: bool(each.files))
    files = fill(said_files(request), case.arguments)
    return [Case(case.arguments, None, Level.REQUEST, files=files, returns=False)] if files else []


def held_to(version: Version, given: Sequence[Case], request: str) -> list[Case]:
    """What a change of a version has to hold: all that the version held, unless somebody said otherwise since.

    Args:
        version: a registered one, whose record has the cases that it held.
        given: a person's cases, of whichever skill.
        request: a person's words; examples that call this skill by its name are cases of it.
    """
    evidence: dict[str, Any] = version.evidence.get("evidence") or {}
    recorded: list[dict[str, Any]] = list(evidence.get("held") or ())
    names = {version.function, version.module} - {"run"}
    said: dict[str, Case] = {}
    for case in (*map(Case.of, recorded), *given, *examples(request, names)):
        if (arguments := _taken(version.schema, case.arguments)) is not None:
            said[json.dumps(arguments, sort_keys=True)] = case
    return list(said.values())


def _taken(schema: Mapping[str, Any], arguments: dict[str, Any] | list[Any]) -> dict[str, Any] | None:
    """The arguments by their names, if a skill takes them."""
    from jsonschema import Draft202012Validator

    if isinstance(arguments, list):
        names = list(schema.get("properties", {}))
        if len(arguments) > len(names):
            return None
        arguments = dict(zip(names, arguments, strict=False))
    checker: Any = Draft202012Validator(dict(schema))
    return arguments if checker.is_valid(arguments) else None


def _case(told: Any, schema: dict[str, Any]) -> Case | None:
    from jsonschema import Draft202012Validator

    if not isinstance(told, dict):
        return None
    said = cast("dict[str, Any]", told)
    files: Any = said.get("files")
    if isinstance(files, dict):
        said = {**said, "files": {shorten(path): content for path, content in cast("dict[str, Any]", files).items()}}
        if files and said.get("result") is None:  # of a file nobody knows whether the function also says something
            said.pop("result", None)
    try:
        case = Case.read({**said, "constant": ""}, Level.SEPARATE)
    except UsageError:
        return None
    checker: Any = Draft202012Validator(schema)
    # Of arguments that the function does not take, nobody can know what becomes.
    return case if case and isinstance(case.arguments, dict) and checker.is_valid(case.arguments) else None


def shorten(path: str) -> str:
    """The path below the folder of a skill's data, which a person knows as ``data``."""
    return path.removeprefix("./").removeprefix("data/")
