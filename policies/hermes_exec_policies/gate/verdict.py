"""The gate's report: findings by stage, their text for a model, and the evidence of an accepted skill."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hermes_exec.errors import HermesError

FUNCTION_POLICY = "skill-validate"
"""The policy under which a function is judged, and then runs, unless another one is named."""
MANIFEST, AUDIT, DEPENDENCIES, PROOF, SUITES = "manifest", "audit", "dependencies", "proof", "suites"
_GENERIC = "refused for security. This is final: it is not tried again, and a person can see why"
_TOLD = 600


class Kind(StrEnum):
    """The severity of a finding."""

    ADVICE = "advice"
    """Advice, which refuses nothing."""
    FUNCTIONAL = "functional"
    """An error that can be fixed; a model gets the reason and may try again."""
    SECURITY = "security"
    """Final: an act that was observed in a run, from outside the sandbox. Its details are never sent to a model, which
    could use them to evade the detector."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check."""

    stage: str
    kind: Kind
    code: str
    """For programs: ``manifest.name``, ``audit.dynamic-code``, …"""
    operator: str
    """The whole text, for a person."""
    path: str = ""
    line: int = 0
    told: str = ""
    """The text for a model, if the whole text would reveal too much."""

    @property
    def model(self) -> str:
        """The text that a model may see."""
        if self.kind is Kind.SECURITY:
            return _GENERIC
        if self.told:
            return self.told
        where = f"{self.path}:{self.line}: " if self.line else f"{self.path}: " if self.path else ""
        return where + self.operator

    def facts(self) -> dict[str, Any]:
        """Return the finding as JSON data for the operator's programs."""
        found: dict[str, Any] = {
            "stage": self.stage, "kind": str(self.kind), "code": self.code, "operator": self.operator,
            "model": self.model,
        }  # fmt: skip
        return found | ({"path": self.path} if self.path else {}) | ({"line": self.line} if self.line else {})


def functional(code: str, operator: str, path: str = "", line: int = 0, told: str = "") -> Finding:
    """Create a finding that can be fixed; its stage is the first component of the code."""
    return Finding(code.partition(".")[0], Kind.FUNCTIONAL, code, _one_line(operator), path, line, told)


def security(code: str, operator: str, path: str = "", line: int = 0) -> Finding:
    """Create a final finding, about an act that was observed in a run.

    The author of a text or a file can have meant no harm, and can fix it: such a finding is `functional`.
    """
    return Finding(code.partition(".")[0], Kind.SECURITY, code, _one_line(operator), path, line)


def advice(code: str, operator: str, path: str = "", line: int = 0) -> Finding:
    """Create a finding that refuses nothing."""
    return Finding(code.partition(".")[0], Kind.ADVICE, code, _one_line(operator), path, line)


def _one_line(text: str) -> str:
    """Return a text as one printable line of bounded length, as quotations come from the skill's author."""
    flat = "".join(each if each.isprintable() else " " for each in text)
    return flat if len(flat) <= _TOLD else flat[: _TOLD - 1] + "…"


class SkillRefused(HermesError):
    """A directory or an archive is not a valid skill; no code of it ran."""

    def __init__(self, *findings: Finding) -> None:
        self.findings = findings
        super().__init__(f"the skill is refused: {findings[0].operator}")


class Level(StrEnum):
    """The strength of the evidence that a skill fulfils the request, weakest first."""

    SELF_TESTED = "self-tested"
    """The skill's own tests, or cases that do not need every way and part of the function."""
    SEPARATE = "separate"
    """Cases from another model context, which had the request and never the code."""
    REQUEST = "request"
    """Examples in the request. The skill's author reads them, so skills no longer get this level; older records with
    it count as self-tested."""
    PERSON = "person"
    """Cases from a person: their results are confirmed, and no others."""

    @property
    def unseen(self) -> bool:
        """Whether the skill's author cannot see cases of this level."""
        return self in {Level.SEPARATE, Level.PERSON}


class Right(StrEnum):
    """A right of a skill, weakest first. Each has evidence of its own; a skill has the rights that it earned."""

    READ = "read"
    """The model may read its text and files as a guide."""
    SCRIPTS = "scripts"
    """Its scripts may run in a sandbox of their own. Nothing else is promised of them."""
    CALL = "call"
    """It is a function, which is called by name with JSON."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that a skill works, and the environment in which it was recorded."""

    level: Level
    cases: int
    """The number of held-out cases that passed."""
    tests: int
    """The number of its own tests that passed."""
    mutants: int
    killed: int
    """The number of mutants that its tests noticed."""
    specification: str
    """The digest of the launch specification, without the uid."""
    interpreter: str
    held: tuple[dict[str, Any], ...] = ()
    """The cases that passed, which later versions must pass, too."""
    files: tuple[str, ...] = ()
    """The files that it must write, if the request named any."""
    answered: int = 0
    """The number of calls that failed in use and return a result now."""
    usual: tuple[tuple[str, str, int], ...] = ()
    """Refused calls that its imported modules make by themselves: code, text, and the highest count of a process."""


@dataclass(frozen=True, slots=True)
class Report:
    """The gate's answer. An internal error is raised instead, and the skill does not count as accepted."""

    findings: tuple[Finding, ...]
    name: str = ""
    module: str = ""
    summary: str = ""
    digest: str = ""
    """The digest of the judged files."""
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
    rights: tuple[Right, ...] = ()
    """The rights that it earned."""
    proof: dict[str, Any] = field(default_factory=dict[str, Any])
    """The proof of the sandbox: its place, and the mechanisms and attempts of `Proof.facts`; empty without one."""

    @property
    def accepted(self) -> bool:
        """Whether it earned a right, and no finding refuses it; a function needs evidence, too."""
        if not self.rights or (Right.CALL in self.rights and self.evidence is None):
            return False
        return all(each.kind is Kind.ADVICE for each in self.findings)

    @property
    def security(self) -> bool:
        """Whether there is a security finding, which is final."""
        return any(each.kind is Kind.SECURITY for each in self.findings)

    @property
    def outcome(self) -> str:
        """``accepted``, ``functional``, ``security``, or ``incomplete`` if not every stage was requested."""
        if self.security:
            return str(Kind.SECURITY)
        if any(each.kind is Kind.FUNCTIONAL for each in self.findings):
            return str(Kind.FUNCTIONAL)
        return "accepted" if self.accepted else "incomplete"

    @property
    def level(self) -> str:
        """The strength of the evidence."""
        return str(self.evidence.level) if self.evidence else ""

    @property
    def reasons(self) -> list[str]:
        """The texts for a model: after a security finding that alone, else every finding that can be fixed."""
        if self.security:
            return [_GENERIC]
        return [each.model for each in self.findings if each.kind is not Kind.SECURITY]

    def facts(self) -> dict[str, Any]:
        """Return the whole report as JSON data for the operator's programs."""
        from dataclasses import asdict

        facts: dict[str, Any] = asdict(self)
        facts |= {"findings": [each.facts() for each in self.findings]}
        facts |= {"accepted": self.accepted, "outcome": self.outcome}
        plain: dict[str, Any] = json.loads(json.dumps(facts))
        return plain

    def for_model(self) -> dict[str, Any]:
        """Return the part of the report that the skill's author may see."""
        return {"accepted": self.accepted, "outcome": self.outcome, "reasons": self.reasons, "level": self.level}
