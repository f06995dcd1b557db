"""What the gate says of a skill: findings by stage, what a model may see of them, and the evidence for a yes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hermes_exec.errors import HermesError

MANIFEST, AUDIT, DEPENDENCIES, PROOF, SUITES = "manifest", "audit", "dependencies", "proof", "suites"
_GENERIC = "refused for security. This is final: it is not tried again, and a person can see why"
_TOLD = 600


class Kind(StrEnum):
    """How a finding is treated."""

    ADVICE = "advice"
    """Worth knowing; refuses nothing."""
    FUNCTIONAL = "functional"
    """To be mended; a model gets the reason and may try again."""
    SECURITY = "security"
    """Final. A model is never told what was found, or it would be handed the detector to work against."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the gate found."""

    stage: str
    kind: Kind
    code: str
    """For programs: ``manifest.name``, ``audit.dynamic-code``, …"""
    operator: str
    """All of it, for a person."""
    path: str = ""
    line: int = 0
    told: str = ""
    """What a model is told instead, where all of it would give too much away."""

    @property
    def model(self) -> str:
        """What a model may see of it."""
        if self.kind is Kind.SECURITY:
            return _GENERIC
        if self.told:
            return self.told
        where = f"{self.path}:{self.line}: " if self.line else f"{self.path}: " if self.path else ""
        return where + self.operator

    def facts(self) -> dict[str, Any]:
        """For programs of the operator's."""
        found: dict[str, Any] = {
            "stage": self.stage, "kind": str(self.kind), "code": self.code, "operator": self.operator,
            "model": self.model,
        }  # fmt: skip
        return found | ({"path": self.path} if self.path else {}) | ({"line": self.line} if self.line else {})


def functional(code: str, operator: str, path: str = "", line: int = 0, told: str = "") -> Finding:
    """A finding that can be mended; its stage is the code's first word."""
    return Finding(code.partition(".")[0], Kind.FUNCTIONAL, code, _one_line(operator), path, line, told)


def security(code: str, operator: str, path: str = "", line: int = 0) -> Finding:
    """A finding that is final."""
    return Finding(code.partition(".")[0], Kind.SECURITY, code, _one_line(operator), path, line)


def advice(code: str, operator: str, path: str = "", line: int = 0) -> Finding:
    """A finding that refuses nothing."""
    return Finding(code.partition(".")[0], Kind.ADVICE, code, _one_line(operator), path, line)


def _one_line(text: str) -> str:
    """One printable line of bounded length: what is quoted comes from whoever wrote the skill."""
    flat = "".join(each if each.isprintable() else " " for each in text)
    return flat if len(flat) <= _TOLD else flat[: _TOLD - 1] + "…"


class SkillRefused(HermesError):
    """A directory or an archive is no skill that could be looked at further; nothing of it ran."""

    def __init__(self, *findings: Finding) -> None:
        self.findings = findings
        super().__init__(f"the skill is refused: {findings[0].operator}")


class Level(StrEnum):
    """How strong the evidence is that a skill does what was asked for, from the weakest on."""

    SELF_TESTED = "self-tested"
    """Nothing but the tests that came with it."""
    SEPARATE = "separate"
    """Cases of another model context, which saw the request and never the code."""
    REQUEST = "request"
    """Examples that stand in the request. Whoever writes the skill reads them, so they are the level of no skill any
    more; records of before say it, and count as self-tested."""
    PERSON = "person"
    """Cases that a person gave."""

    @property
    def unseen(self) -> bool:
        """Whether a case of it was made where whoever writes the skill does not see it."""
        return self in {Level.SEPARATE, Level.PERSON}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen of a skill, by whom it was asked for, and where."""

    level: Level
    cases: int
    """Held-out cases that held."""
    tests: int
    """Tests of its own that passed."""
    mutants: int
    killed: int
    """Of the mutants, how many its tests noticed."""
    specification: str
    """The launch specification's digest, without its user's number."""
    interpreter: str
    held: tuple[dict[str, Any], ...] = ()
    """Those cases themselves, so that a later version can be held to them."""
    files: tuple[str, ...] = ()
    """Those that it was asked to leave, as far as they were named."""
    answered: int = 0
    """Calls that failed in use and give a result now."""
    usual: tuple[tuple[str, str, int], ...] = ()
    """What its modules are refused by themselves: code, words, and the most that one process asked for it."""


@dataclass(frozen=True, slots=True)
class Report:
    """The gate's answer. An error of ours is none: it is raised, and nothing counts as accepted then."""

    findings: tuple[Finding, ...]
    name: str = ""
    module: str = ""
    summary: str = ""
    digest: str = ""
    """Of the very files that were judged."""
    entry: str = ""
    function: str = ""
    schema: dict[str, Any] = field(default_factory=dict[str, Any])
    """JSON Schema of its arguments."""
    grants: dict[str, Any] = field(default_factory=dict[str, Any])
    policy: str = ""
    policy_digest: str = ""
    environment: str = ""
    """The digest of its packages; empty without any."""
    environment_folder: str = ""
    evidence: Evidence | None = None
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def accepted(self) -> bool:
        """Whether it passed every stage; without evidence it did not."""
        return self.evidence is not None and all(each.kind is Kind.ADVICE for each in self.findings)

    @property
    def security(self) -> bool:
        """Whether the answer is final."""
        return any(each.kind is Kind.SECURITY for each in self.findings)

    @property
    def outcome(self) -> str:
        """``accepted``, ``functional``, ``security``, or ``incomplete`` where not every stage was asked for."""
        if self.security:
            return str(Kind.SECURITY)
        if any(each.kind is Kind.FUNCTIONAL for each in self.findings):
            return str(Kind.FUNCTIONAL)
        return "accepted" if self.accepted else "incomplete"

    @property
    def level(self) -> str:
        """How strong the evidence is."""
        return str(self.evidence.level) if self.evidence else ""

    @property
    def reasons(self) -> list[str]:
        """What a model may see: after a security finding that alone, else everything that can be mended."""
        if self.security:
            return [_GENERIC]
        return [each.model for each in self.findings if each.kind is not Kind.SECURITY]

    def facts(self) -> dict[str, Any]:
        """All of it, for programs of the operator's, as JSON has it."""
        from dataclasses import asdict

        facts: dict[str, Any] = asdict(self)
        facts |= {"findings": [each.facts() for each in self.findings]}
        facts |= {"accepted": self.accepted, "outcome": self.outcome}
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain

    def for_model(self) -> dict[str, Any]:
        """What may be handed to whatever wrote the skill."""
        return {"accepted": self.accepted, "outcome": self.outcome, "reasons": self.reasons, "level": self.level}
