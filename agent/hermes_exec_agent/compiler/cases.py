"""Held-out cases: what a skill has to hold that was not made from it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

from hermes_exec_agent.compiler import words
from hermes_exec_agent.compiler.draft import Unreadable, loaded
from hermes_exec_agent.errors import ModelError
from hermes_exec_agent.messages import Message
from hermes_exec_agent.models.whole import complete
from hermes_exec_policies.gate.cases import Case
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Model

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
