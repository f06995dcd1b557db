"""Repair a registered skill that failed in use: find the cause, and build a version that returns a result instead.

A skill is repaired once in a conversation, and never where that would surprise the person: not if the sandbox refused
something, not if the version is pinned or has grants, and not if the next version could only have weaker evidence.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, Refused
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import complete
from hermes_exec_agent.skills.build.cases import list_required
from hermes_exec_agent.skills.build.draft import DIAGNOSIS_PROMPT, UnreadableReply, describe_failure, parse_json_object
from hermes_exec_policies.gate.cases import Case, strongest_level
from hermes_exec_policies.gate.grants import Grants
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.skills.build.builder import SkillBuilder
    from hermes_exec_agent.skills.registry.record import Skill, Version
    from hermes_exec_agent.skills.run.outcome import SkillOutcome

_SHOWN = 2000
"""Characters of arguments and of output that a model reads."""
_OURS = frozenset({"lost"})
"""Kinds of failures that a skill cannot cause."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"fault": {"type": "string", "enum": ["skill", "call"]}, "why": {"type": "string"}},
    "required": ["fault", "why"],
}


class NotRepaired(HermesError):
    """A skill that failed in use stays unchanged; the message has the cause."""

    state = "the version that failed is the current one"


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A call that returned no result."""

    version: Version
    arguments: dict[str, Any]
    error: str
    logs: str

    @property
    def text(self) -> str:
        """The failure, for the model that repairs it."""
        printed = f"\n{self.logs[-_SHOWN:]}" if self.logs.strip() else ""
        return f"with the arguments {json.dumps(self.arguments, ensure_ascii=False)[:_SHOWN]}: {self.error}{printed}"


def find_obstacle(skill: Skill, version: Version, outcome: SkillOutcome) -> str:
    """Return why a failure must not be repaired automatically; empty if it may."""
    if outcome.denied:
        return "its sandbox refused an operation, which a person should examine"
    if outcome.kind in _OURS:
        return "the cause of its end is unknown"
    if skill.pinned:
        return "it is pinned"
    if skill.current != version.number:
        return f"version {skill.current} is the current one"
    if version.grants and Grants.from_facts(version.grants) != Grants():
        return "a person granted it more than skills have"
    return ""


async def repair(shop: SkillBuilder, model: Model, failed: FailedRun, request: str) -> Version:
    """Find out why a skill failed; if the skill itself is at fault, improve and register it.

    Args:
        shop: builds the next version, within its limits.
        model: finds the cause.
        failed: the call. It must return a result afterwards; which one is known only if a case says so.
        request: the person's own words, in which literal examples of this skill are cases.

    Raises:
        NotMended: the call was wrong, or a next version could only have weaker evidence.
        NotRegistered: it did not pass; the current version stays.
        Refused: the agent may not register skills.
        ModelError: the model could not be asked.
    """
    version = failed.version
    held = list_required(version, shop.person_cases, request)
    order = list(Level)
    if not version.self_tested and order.index(strongest_level(held)) < order.index(Level(version.level)):
        raise NotRepaired(f"what {version.name} had to hold is not recorded, so a change could only be weaker")
    files = await shop.files(version)
    why = await _diagnose(model, files[version.entry], failed)
    again = Case(failed.arguments, None, Level.SELF_TESTED, anything=True)
    try:
        return await shop.improve(
            version.name, f"{failed.text}\nIt is so because: {why}", request=request, again=[again]
        )
    except Refused as error:
        raise NotRepaired(str(error)) from error


async def _diagnose(model: Model, script: str, failed: FailedRun) -> str:
    """Return why the skill failed.

    Raises:
        NotMended: the call was wrong, or the cause is unknown.
        ModelError: the model did not answer.
    """
    prompt = [Message("system", DIAGNOSIS_PROMPT), Message("user", describe_failure(script, failed.text))]
    reply = await complete(model, prompt, schema=SCHEMA)
    try:
        answer = parse_json_object(reply.message.content)
    except UnreadableReply:
        raise NotRepaired(f"the cause of the failure of {failed.version.name} is unknown") from None
    why = " ".join(str(answer.get("why", "")).split())[:_SHOWN]
    if answer.get("fault") != "skill":
        raise NotRepaired(f"the call was wrong, not {failed.version.name}: {why}", remedy="other arguments")
    return why
