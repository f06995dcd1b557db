"""A registered skill failed in use: why, and the next version, which gives a result where this one gave none.

It is done once for a skill in a conversation, and never where a person would be surprised: not where the sandbox
refused something, not to a version that is pinned or has grants, and not if the next version could only be weaker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_exec.errors import HermesError, Refused
from hermes_exec_agent.models.messages import Message
from hermes_exec_agent.models.protocol import complete
from hermes_exec_agent.skills.build.cases import held_to
from hermes_exec_agent.skills.build.draft import DIAGNOSIS_PROMPT, Unreadable, describe_failure, loaded
from hermes_exec_policies.gate.cases import Case, strongest
from hermes_exec_policies.gate.grants import Grants
from hermes_exec_policies.gate.verdict import Level

if TYPE_CHECKING:
    from hermes_exec_agent.models.protocol import Model
    from hermes_exec_agent.skills.build.builder import Workshop
    from hermes_exec_agent.skills.registry.record import Skill, Version
    from hermes_exec_agent.skills.run.runner import Outcome

_SHOWN = 2000
"""Characters of arguments, and of what was printed, that a model is shown."""
_OURS = frozenset({"lost"})
"""Ends for which nothing of a skill's own can be blamed."""
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"fault": {"type": "string", "enum": ["skill", "call"]}, "why": {"type": "string"}},
    "required": ["fault", "why"],
}


class NotMended(HermesError):
    """A skill that failed in use stays as it is; says why."""

    state = "the version that failed is the current one"


@dataclass(frozen=True, slots=True)
class Failed:
    """One call that gave no result."""

    version: Version
    arguments: dict[str, Any]
    error: str
    logs: str

    @property
    def text(self) -> str:
        """For whoever is to mend it."""
        printed = f"\n{self.logs[-_SHOWN:]}" if self.logs.strip() else ""
        return f"with the arguments {json.dumps(self.arguments, ensure_ascii=False)[:_SHOWN]}: {self.error}{printed}"


def why_not(skill: Skill, version: Version, outcome: Outcome) -> str:
    """Why a failure is nobody's to mend but a person's; empty where it may be mended."""
    if outcome.denied:
        return "its sandbox refused it something, which is for a person to look at"
    if outcome.kind in _OURS:
        return "it is not known what ended it"
    if skill.pinned:
        return "it is pinned"
    if skill.current != version.number:
        return f"version {skill.current} is the current one"
    if version.grants and Grants.of(version.grants) != Grants():
        return "a person granted it more than skills have"
    return ""


async def mended(shop: Workshop, model: Model, failed: Failed, request: str) -> Version:
    """Find out why a skill failed; where that is its own fault, have it improved and registered.

    Args:
        shop: where it is done, with its bounds.
        model: who finds out why.
        failed: the call. It has to give a result afterwards; which one is known only where somebody said so before.
        request: the person's own words, in which literal examples of this skill are cases.

    Raises:
        NotMended: the call was wrong and not the skill, or a next version could only be weaker.
        NotRegistered: it did not pass; the version that is there stays the current one.
        Refused: who asks is not to register anything.
        ModelError: a model could not be asked.
    """
    version = failed.version
    held = held_to(version, shop.given, request)
    order = list(Level)
    if not version.self_tested and order.index(strongest(held)) < order.index(Level(version.level)):
        raise NotMended(f"what {version.name} had to hold is not recorded, so a change could only be weaker")
    files = await shop.files(version)
    why = await _diagnosed(model, files[version.entry], failed)
    again = Case(failed.arguments, None, Level.SELF_TESTED, anything=True)
    try:
        return await shop.improve(
            version.name, f"{failed.text}\nIt is so because: {why}", request=request, again=[again]
        )
    except Refused as error:
        raise NotMended(str(error)) from error


async def _diagnosed(model: Model, script: str, failed: Failed) -> str:
    """Why it failed.

    Raises:
        NotMended: by the fault of whoever called it, or nobody can tell.
        ModelError: nobody answered.
    """
    prompt = [Message("system", DIAGNOSIS_PROMPT), Message("user", describe_failure(script, failed.text))]
    reply = await complete(model, prompt, schema=SCHEMA)
    try:
        answer = loaded(reply.message.content)
    except Unreadable:
        raise NotMended(f"nobody could tell why {failed.version.name} failed") from None
    why = " ".join(str(answer.get("why", "")).split())[:_SHOWN]
    if answer.get("fault") != "skill":
        raise NotMended(f"the call was wrong, not {failed.version.name}: {why}", remedy="other arguments")
    return why
