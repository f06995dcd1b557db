"""Held-out cases: what a skill has to hold that was not made from it."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_agent.compiler import words
from hermes_exec_agent.compiler.draft import Unreadable, loaded
from hermes_exec_agent.compiler.examples import examples
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.messages import Message
from hermes_exec_agent.models.whole import complete
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.skills.record import Version

_log = logging.getLogger("hermes_exec.skills")
_MOST = 5
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "cases": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"arguments": {"type": "object"}, "result": {}},
                "required": ["arguments", "result"],
            },
        }
    },
    "required": ["cases"],
}


async def separate(model: Model, task: str, request: str, signature: str, schema: dict[str, Any]) -> list[Case]:
    """Cases by a model that sees the request and how the function is called, in a context of its own.

    Without an answer that can be used there are none: the evidence is weaker then, and says so.
    """
    asked = [
        Message("system", words.CASES),
        Message("user", words.asked_for(task, request, signature)),
    ]
    try:
        reply = await complete(model, asked, schema=SCHEMA)
        told = loaded(reply.message.content).get("cases", [])
    except (ModelError, Unreadable) as error:
        _log.warning("no held-out cases could be had: %s", error)
        return []
    if not isinstance(told, list):
        return []
    return [case for each in told[:_MOST] if (case := _case(each, schema)) is not None]  # pyright: ignore[reportUnknownVariableType]  JSON


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
    case = cast("dict[str, Any]", told)
    arguments = case.get("arguments")
    if not isinstance(arguments, dict) or "result" not in case:
        return None
    given = cast("dict[str, Any]", arguments)
    checker: Any = Draft202012Validator(schema)
    # Of arguments that the function does not take, nobody can know what becomes.
    return Case(given, case["result"], Level.SEPARATE) if checker.is_valid(given) else None
